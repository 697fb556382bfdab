"""Measure the CPU time of starting: imports of `python -m steps` by verb, and `bringup`'s light commands from start to end."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import Figures

LIMIT = 0.150
VERBS = ("open", "play", "apply", "wait", "judge", "job", "announce", "confirm", "seal", "report")
CLIENT = "urllib3, yaml"
LIGHT_COMMANDS = ("--help", "status", "runs", "faults", "stages")
COMMAND_LIMIT = 0.5
TRIES = 5


def cpu(code: str) -> float:
    """Least CPU seconds of a child interpreter that runs this code."""
    return least_cpu([sys.executable, "-c", code], {})


def least_cpu(command: list[str], environment: dict[str, str]) -> float:
    """Least CPU seconds of a command, whatever its exit code, among some tries."""
    best = float("inf")
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}, capture_output=True)
        assert done.returncode in (0, 64), done.stderr
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def main() -> None:
    """Measure."""
    figures = Figures("imports of python -m steps")
    bare = cpu("pass")
    figures.note("bare interpreter", f"{bare:.3f} s")
    for verb in VERBS:
        code = f"import steps.__main__, steps.clients.environment, steps.runtime.context, steps.verbs.{verb}"
        figures.at_most(f"imports of verb {verb}, CPU beside the interpreter", cpu(code) - bare, LIMIT, "s")
    code = f"import steps.__main__, steps.clients.environment, steps.runtime.context, steps.verbs.wait, {CLIENT}"
    figures.at_most("the same of wait with its Kubernetes client", cpu(code) - bare, LIMIT, "s")
    with tempfile.TemporaryDirectory() as home:
        for command in LIGHT_COMMANDS:
            words = [str(Path(sys.executable).with_name("bringup")), command]
            figures.at_most(f"bringup {command}, CPU", least_cpu(words, {"BRINGUP_HOME": home}), COMMAND_LIMIT, "s")
    figures.exit()


if __name__ == "__main__":
    main()
