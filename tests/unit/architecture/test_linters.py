"""Linters and types are tests: one command says whether the tree is clean."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
CACHE = Path(os.environ.get("BRINGUP_CACHE") or Path.home() / ".cache" / "bringup") / "mypy"
"""Results of mypy by the contents of each module, for fresh clones too: without them it takes half a CPU minute."""


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        (".", ["ruff", "check", "."]),
        (".", ["ruff", "format", "--check", "."]),
        (".", ["mypy"]),
        ("playbooks", ["ansible-lint", "--offline", "--nocolor", "--profile", "production", "."]),  # finds its ansible.cfg there
    ],
    ids=["ruff", "format", "mypy", "ansible-lint"],
)
def test_clean(folder: str, command: list[str]) -> None:
    environment = {"MYPY_CACHE_DIR": str(CACHE)} | os.environ
    words = [BIN / command[0], *command[1:]]
    done = subprocess.run(words, cwd=ROOT / folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
