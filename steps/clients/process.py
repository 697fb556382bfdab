"""Programs run as subprocesses: the only user of subprocesses beside the Ansible client."""

import subprocess
from collections.abc import Sequence

from msgspec import Struct

from steps.errors import BadTask, Temporary


class Done(Struct, frozen=True, kw_only=True):
    """Result of a program; its output as text, within the caller's limit."""

    code: int
    out: str
    err: str


def run(command: Sequence[str], *, data: bytes = b"", seconds: float = 30.0) -> Done:
    """Run a program without a shell. Raises BadTask if it is not installed, Temporary after `seconds`."""
    try:
        done = subprocess.run(list(command), input=data, capture_output=True, timeout=seconds, check=False)
    except FileNotFoundError as error:
        raise BadTask(f"{command[0]} is not installed", hint=f"install the package that brings {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise Temporary(f"{command[0]} took longer than {seconds:.0f} s") from error
    return Done(code=done.returncode, out=done.stdout.decode(errors="replace"), err=done.stderr.decode(errors="replace"))
