"""Find the interpreter that EasyBuild is installed for: locks and builds must run the same EasyBuild."""

import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

INTERPRETER: Final = "EB_PYTHON"
"""Variable with the interpreter that EasyBuild is installed for, as `eb` reads it."""
MISSING: Final = "EasyBuild is not installed"
HINT: Final = "pip install easybuild, or name the interpreter that has it by EB_PYTHON"


def find_interpreter(environ: Mapping[str, str]) -> str:
    """Return EasyBuild's interpreter: EB_PYTHON, else this one, else the one beside `eb` in PATH; empty if there is none."""
    if named := environ.get(INTERPRETER):
        return named
    if find_spec("easybuild") is not None:
        return sys.executable
    program = shutil.which("eb", path=environ.get("PATH"))
    beside = Path(program).resolve().with_name("python") if program else None
    return str(beside) if beside is not None and beside.exists() else ""
