"""Linters and types are tests: one command says whether the tree is clean."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent


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
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT / folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
