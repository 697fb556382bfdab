"""Runs one command and says what it took: `os_prep_measured.py REPORT COMMAND…`; CPU counts whatever the command started.

SSH's master connections leave their session, so that nobody waits for them: as a subreaper this process inherits them, ends them,
and counts them too.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Run, end what is left, write `{wall, cpu, code}` in seconds to REPORT, and end as the command did."""
    report, command = Path(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    began = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    wall = time.monotonic() - began
    while left := children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    report.write_text(json.dumps({"wall": wall, "cpu": used.ru_utime + used.ru_stime, "code": code}))
    return code


def children() -> list[int]:
    """Processes whose parent we are now."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


if __name__ == "__main__":
    sys.exit(main())
