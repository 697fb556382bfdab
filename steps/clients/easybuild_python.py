"""Find the interpreter that EasyBuild is installed for: locks and builds must run the same EasyBuild."""

from collections.abc import Mapping
from typing import Final

from steps.clients import python_programs

INTERPRETER: Final = "EB_PYTHON"
"""Variable with the interpreter that EasyBuild is installed for, as `eb` reads it."""
MISSING: Final = "EasyBuild is not installed"
HINT: Final = "pip install easybuild, or name the interpreter that has it by EB_PYTHON"


def find_interpreter(environ: Mapping[str, str]) -> str:
    """Return EasyBuild's interpreter: EB_PYTHON, else this one, else the one beside `eb` in PATH; empty if there is none."""
    return python_programs.interpreter_of("eb", "easybuild", INTERPRETER, environ)
