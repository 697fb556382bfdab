"""Find the interpreters of Python programs that are no dependencies of bringup, such as EasyBuild and ReFrame."""

import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path


def interpreter_of(program: str, module: str, variable: str, environ: Mapping[str, str]) -> str:
    """Return the interpreter that a program is installed for; empty if there is none.

    That is the one which the environment names in `variable`, else this one if it has `module`, else the one beside the program in
    PATH.
    """
    if named := environ.get(variable):
        return named
    if find_spec(module) is not None:
        return sys.executable
    path = shutil.which(program, path=environ.get("PATH"))
    beside = Path(path).resolve().with_name("python") if path else None
    return str(beside) if beside is not None and beside.exists() else ""
