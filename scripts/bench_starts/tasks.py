"""What is started: adapt or add here."""
import collections

from bench_common.c_project import TOUCHED

# `prepare` runs before the caches are dropped and is not measured. Both run in the image, on a terminal.
Task = collections.namedtuple("Task", "name command prepare", defaults=(None,))

STARTS = (
    Task("emacs", ("emacs", "-nw", "--eval", "(kill-emacs)")),
    Task("vim", ("vim", "-c", "q")),
    Task("python-numpy", ("python3", "-c", "import numpy")),
    Task("gcc", ("gcc", "-O1", "-I/srv/project/include", "-o", "/tmp/f0.o", "-c", "/srv/project/part1/f0.c")),
    Task("git-status", ("git", "-C", "/srv/tree", "status", "--short")),
    Task("gimp", ("gimp", "-i", "-b", "(gimp-quit 0)")),
)
MAKE = (Task("make", ("make", "-C", "/srv/project"), ("touch", f"/srv/project/{TOUCHED}")),)

# A terminal without questions to it, and no more of the user's surroundings than a path.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "TERM": "linux",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}
