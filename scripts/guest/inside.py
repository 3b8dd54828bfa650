#!/usr/bin/env python3
"""Runs cases; the first program in the guest. What they tell goes to the directory shared with the host, line by line."""
import json
import os
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True

from guest import cases, peers  # noqa: E402
from guest.daemon import Guest  # noqa: E402
from guest.problem import Failure, Skip  # noqa: E402

SHARE = "/run/share"
MODPROBE = "/run/modprobe"


def main():
    """All cases of the task, one after the other."""
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    os.makedirs(SHARE, exist_ok=True)
    if not os.path.ismount(SHARE):
        subprocess.run(["mount", "-t", "9p", "-o", "trans=virtio,version=9p2000.L,cache=none,msize=512000", "share", SHARE], check=True)
    with open(os.path.join(SHARE, "task.json"), encoding="utf-8") as file:
        task = json.load(file)
    if task.get("modules"):
        have_modules(task)
    known = {**cases.all_cases(), **peers.CASES}
    for name in task["cases"]:
        tell({"began": name})
        tell({"ended": name, **run(known[name], Guest(task, SHARE, name))})


def have_modules(task):
    """Modules are where programs look for them, also when the kernel itself needs one."""
    modules = f"/lib/modules/{os.uname().release}"
    os.makedirs(modules, exist_ok=True)
    subprocess.run(["mount", "--bind", task["modules"], modules], check=True)
    with open(MODPROBE, "w", encoding="utf-8") as out:
        out.write(f'#!/bin/sh\nexec {task["busybox"]} modprobe "$@"\n')
    os.chmod(MODPROBE, 0o755)
    with open("/proc/sys/kernel/modprobe", "w", encoding="utf-8") as out:
        out.write(MODPROBE)


def run(case, guest):
    """One case; what came of it."""
    begin = time.monotonic()
    outcome, reason = "passed", ""
    try:
        case.function(guest)
    except Skip as skip:
        outcome, reason = "skipped", str(skip)
    except Failure as failure:
        outcome, reason = "failed", str(failure)
    except Exception:  # pylint: disable=broad-except  # whatever a case does, the others are run
        outcome, reason = "failed", traceback.format_exc(limit=-4)
    try:
        guest.clear()
    except Exception:  # pylint: disable=broad-except
        outcome, reason = "failed", f"{reason}\nafter the case: {traceback.format_exc(limit=-4)}".strip()
    log = guest.daemon_messages()
    return {"outcome": outcome, "reason": reason, "log": log if outcome == "failed" else "",
            "seconds": round(time.monotonic() - begin, 1)}


def tell(fact):
    """Writes a line for the host."""
    with open(os.path.join(SHARE, "results.jsonl"), "a", encoding="utf-8") as out:
        out.write(json.dumps(fact) + "\n")


main()
