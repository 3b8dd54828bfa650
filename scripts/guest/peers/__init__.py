"""dcd beside the kernel's caches, in turn, on the same two disks of one guest.

| file | holds |
|---|---|
| `setups.py` | what is compared: how each is made of a slow disk and a cache disk, emptied, and taken down |
| `disks.py` | the two disks: of the machine, or models of both in the guest |
| `workloads.py`, `programs.py`, `files.py` | what is measured on a block device, or on the file system on it |
| `steady.py` | how far medians can be trusted, and when there are rounds enough |
| `rounds.py` | the two cases that the guest runs: all workloads in turn, and the start after a power cut |
"""
from .rounds import BENCH, RECOVERY  # noqa: F401
from .setups import AGAIN, SETUPS  # noqa: F401
from .workloads import SCENARIOS  # noqa: F401

CASES = {case.name: case for case in (BENCH, RECOVERY)}
