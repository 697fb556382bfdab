"""Commands start fast because nothing heavy is imported before it is needed: modules are counted, not seconds."""

import subprocess
import sys

import pytest

HEAVY = {"hera", "pydantic", "rich", "yaml", "jinja2", "urllib3", "kubernetes", "ansible_runner", "aiohttp"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from workflows.cli.main import run
assert run({arguments!r}) == 0
print(*sorted({HEAVY!r} & {{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


@pytest.mark.parametrize(
    "command", ["plan", "validate", "status", "watch", "logs", "approve", "cancel", "report", "timeline", "verify"]
)
def test_only_what_renders_imports_hera(command: str) -> None:
    code = f"""
import sys
from workflows.cli.main import run
run([{command!r}, "nowhere"])
print("hera" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"BRINGUP_HOME": "/nonexistent"}
    )
    assert done.stdout.split()[-1] == "False"
