"""Measure the size of the step image and the time until a change of `steps` is in it: `python tests/bench/step_image.py`.

The first build takes what the cache lacks from the mirrors; the figures are of the builds after it.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figures

ROOT = Path(__file__).parents[2]
SIZE_LIMIT_MB = 150.0
CHANGE_LIMIT_S = 2.0
TRIES = 3


def build(tree: Path, out: Path) -> dict[str, Any]:
    """`bringup image step build` in a process of its own."""
    words = [sys.executable, "-c", "from workflows.cli.main import main; main()", "image", "step", "build", "-o", "json"]
    done = subprocess.run(
        [*words, "--tree", str(tree), "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(json.loads(done.stdout))


def cpu() -> float:
    """CPU seconds of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure."""
    figures = Figures("step image")
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder) / "tree", Path(folder) / "step.tar"
        for name in ("steps", "playbooks", "images"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "uv.lock", tree)
        began = time.monotonic()
        built = build(tree, out)
        figures.note("first build, with what the cache lacked", f"{time.monotonic() - began:.1f} s")
        figures.at_most("compressed size", built["size"] / 1e6, SIZE_LIMIT_MB, "MB")
        wall, processor = [], []
        for number in range(TRIES):
            (tree / "steps/changed.py").write_text(f'"""Changed for the {time.time_ns()}th time, try {number}."""\n')
            began, used = time.monotonic(), cpu()
            build(tree, out)
            wall.append(time.monotonic() - began)
            processor.append(cpu() - used)
        figures.at_most("build after a change of steps, CPU of all processes", min(processor), CHANGE_LIMIT_S, "s")
        figures.note("the same, wall clock", f"{min(wall):.1f} s at a load of {os.getloadavg()[0]:.0f}")
        figures.note("digest of the changed image", "differs" if build(tree, out)["digest"] != built["digest"] else "SAME")
    figures.exit()


if __name__ == "__main__":
    main()
