"""Runs every bench command, one after the other; ends with 1 if a figure is SHORT or a command broke.

What cannot be measured on this machine is listed with its reason. Half an hour on two idle cores.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from figures import SHORT, SKIPPED

HERE = Path(__file__).parent
NO_COMMANDS = (
    *("all", "argo_followed", "argo_home", "argo_played", "fabric_faults", "figures", "real_hosts", "real_server"),
    *("os_prep_items", "os_prep_measured", "os_prep_ours", "os_prep_peers", "os_prep_shell"),
)
"""Files in this folder that are no benchmarks: shared modules and this one."""


def run(command: Path) -> tuple[list[str], list[str]]:
    """Run one command and pass on what it prints: what is wrong with it, and what it could not measure."""
    process = subprocess.Popen([sys.executable, str(command)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip())
    short = [line for line in lines if line.endswith(SHORT)]
    code = process.wait()
    broken = [] if not code or short else [f"ended with {code}"]
    return [f"{command.stem}: {' '.join(one.split())}" for one in short + broken], [
        f"{command.stem}: {' '.join(line.split())}" for line in lines if SKIPPED in line
    ]


def main() -> int:
    """Run them, then say what is wrong and what is missing."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    wrong: list[str] = []
    missing: list[str] = []
    for command in [path for path in sorted(HERE.glob("*.py")) if path.stem not in NO_COMMANDS]:
        bad, left = run(command)
        wrong, missing = wrong + bad, missing + left
    print("# all")
    print("\n".join([*missing, *wrong]) or "everything was measured")
    print(f"{SHORT}: {len(wrong)} of the above" if wrong else "PASS: all measured figures are within their limits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
