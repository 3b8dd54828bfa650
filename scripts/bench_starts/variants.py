"""The ways in which the disk is served: adapt commands here.

In commands, {data} is the modelled disk, {cache} the cache-disk, {control} the control socket, {name} the task,
{memory} a folder in memory, {cache_size} and {read_area} the sizes of --cache-size and --read-area. A variant whose `needs` the given dcd does not know is skipped.
"""
import collections
import subprocess

# create: makes the cache. serve: without where to (FUSE or NBD), which is added.
# record: put before a command, records it as a sequence; run once per task before anything is measured.
# learn: this many starts of each task go before the measured ones.
# settle_s: quiet time after recording or learning, in which dcd copies what it wants to keep.
Variant = collections.namedtuple("Variant", "name title needs create serve record learn settle_s",
                                 defaults=((), (), (), 0, 0))

SERVE = ("serve", "--cache-disk", "{cache}", "--data-disk", "{data}", "--memory-directory", "{memory}", "--quiet")
CREATE = ("create", "--cache-disk", "{cache}", "--cache-size", "{cache_size}", "--data-disk", "{data}")
CREATE_WITH_AREA = (*CREATE, "--read-area", "{read_area}")

VARIANTS = (
    Variant("plain", "disk alone", None, serve=("slow-disk", "--disk", "{data}", "--quiet")),
    Variant("dcd", "dcd, no sequences", None, CREATE, SERVE),
    Variant("recorded", "dcd, recorded sequence", ("sequence", "--help"), CREATE_WITH_AREA, SERVE,
            record=("sequence", "record", "--control", "{control}", "--name", "{name}", "--"), settle_s=10),
    Variant("detected", "dcd, found by itself", ("sequence", "--help"), CREATE_WITH_AREA, SERVE, learn=3, settle_s=10),
)


def missing(variant, dcd):
    """Why this dcd cannot do the variant; none if it can."""
    if variant.needs is None:
        return None
    done = subprocess.run([dcd, *variant.needs], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return f"`dcd {' '.join(variant.needs)}`: {(done.stderr.strip().splitlines() or ['failed'])[0]}"
