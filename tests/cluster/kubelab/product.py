"""Runs the product's own command line against the real cluster."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def bringup(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One command of `bringup` with runs in `home`, to its end."""
    command = [str(Path(sys.executable).with_name("bringup")), *arguments]
    environment = os.environ | {"BRINGUP_HOME": str(home), "COLUMNS": "200"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
