"""Random synchronous writes of 4 KiB to images of a real Ceph behind qemu-nbd, with dcd in front, and alone.

A cluster of one node, in memory, so that RBD has nothing to wait for but itself and the distance, which is between whoever writes and
qemu-nbd.
"""
import contextlib
import os
import subprocess

from bench_common.distance import Distance
from bench_common.system import run

from . import network
from .stand import answers, free_port, process, until

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "ceph-cluster")


@contextlib.contextmanager
def cluster(folder):
    """The name of its ceph.conf."""
    home = os.path.join(folder, "ceph")
    conf = run(SCRIPT, home, "start").strip()
    try:
        yield conf
    finally:
        subprocess.run([SCRIPT, home, "stop"])


def measure(settings, folder):
    """All rounds, bars, and text."""
    with cluster(folder) as conf:

        @contextlib.contextmanager
        def disk(settings, folder, name):
            run("rbd", "--conf", conf, "create", name, "--size", f"{network.SIZE_MIB}M")
            port = free_port()
            with process("qemu-nbd", "-t", "-f", "raw", "-b", "127.0.0.1", "-p", port, "--shared=0", f"rbd:rbd/{name}:conf={conf}"):
                until("qemu-nbd answers", lambda: answers(port))
                with Distance(port, settings.network_round_trip_ms) as far:
                    yield f"nbd://127.0.0.1:{far.port}"

        return network.measure(settings, folder, disk)
