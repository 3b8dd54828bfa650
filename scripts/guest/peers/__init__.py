"""dcd beside the kernel's caches, in turn, on the same two disks of one guest.

| file | holds |
|---|---|
| `setups.py` | what is compared: how each is made of a slow disk and a cache disk, emptied, and taken down |
| `workloads.py` | what is measured on a block device, or on the file system on it |
| `rounds.py` | the two cases that the guest runs: all workloads in turn, and the start after a power cut |
"""
from .rounds import BENCH, RECOVERY  # noqa: F401
from .setups import AGAIN, SETUPS  # noqa: F401
from .workloads import SCENARIOS  # noqa: F401

CASES = {case.name: case for case in (BENCH, RECOVERY)}
