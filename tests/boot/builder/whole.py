"""Builds what is missing of a recipe's layers and packs the image, in a process of its own: `whole.py IMAGES`.

The recipe and its files lie in IMAGES too. Says each line on stdout, first the day that it sees, and last what was packed, as JSON.
"""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from steps.nodeimage.contract import resolved_recipe
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.files import image_assembly
from steps.stages.image_assemble.contract import Assembled
from tests.boot.builder import clock, shipped
from tests.boot.pipeline.site import ELSEWHERE

ROOT = Path(__file__).parents[3]
SECONDS = 900.0
ONE_PROCESSOR = ("taskset", "--cpu-list", "0")
UMASK = 0o077
RECIPE, FILES = "recipe.json", "files.json"


def main(folder: str) -> None:
    """Build it."""
    images = Path(folder)
    read = resolved_recipe.decode((images / RECIPE).read_bytes())
    print(datetime.now(UTC).date(), flush=True)
    shipped.build(images, read, msgspec.json.decode((images / FILES).read_bytes(), type=dict[str, bytes]))
    made = image_assembly.assemble(images, read, lambda line: print(line, flush=True))
    print(msgspec.json.encode(made).decode(), flush=True)


def elsewhere(images: Path, wanted: Recipe, files: dict[str, bytes], days: int) -> tuple[list[str], Assembled]:
    """Have it built so many days from now, on one processor, under another umask and in another environment; what it said."""
    (images / RECIPE).write_bytes(resolved_recipe.encode(wanted))
    (images / FILES).write_bytes(msgspec.json.encode(files))
    command = [*ONE_PROCESSOR, sys.executable, "-m", __name__, str(images)]
    settings = {**os.environ, **ELSEWHERE, "PYTHONPATH": f"{clock.later(images / 'later', days)}:{ROOT}"}
    done = subprocess.run(
        command, cwd=ROOT, env=settings, umask=UMASK, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    day, *lines, made = done.stdout.splitlines()
    assert abs((datetime.fromisoformat(day).replace(tzinfo=UTC) - datetime.now(UTC)).days - days) <= 2, f"it saw {day}"
    return lines, msgspec.json.decode(made, type=Assembled)


if __name__ == "__main__":
    main(*sys.argv[1:])
