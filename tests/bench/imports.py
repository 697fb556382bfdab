"""What `python -m steps` costs before it does anything: CPU time of interpreter and imports, by verb."""

import os
import resource
import subprocess
import sys

from figures import Figures

LIMIT = 0.150
VERBS = ("open", "play", "apply", "wait", "judge", "job", "announce", "confirm", "seal", "report")
CLIENT = "urllib3, yaml"
TRIES = 5


def cpu(code: str) -> float:
    """Least CPU seconds of a child interpreter that runs this code."""
    best = float("inf")
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
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
    figures.exit()


if __name__ == "__main__":
    main()
