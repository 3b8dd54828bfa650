"""A guest that is a process: User Mode Linux, which computes as fast as this machine and pays for system calls and faults.

| file | holds |
|---|---|
| `kernel.py`, `kernel.config` | its kernel, built once from a Debian source package |
| `machine.py`, `init.sh` | a boot, as the host and as the guest see it |
| `clock.c` | for measurements: a clock without system calls, which programs of the guest are given |
"""
