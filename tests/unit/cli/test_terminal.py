"""A rehearsal in a terminal of 60 columns: the table of stages, a clean end, colours only where they are wanted."""

import fcntl
import os
import pty
import re
import struct
import termios
from typing import Any

import pytest

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
CURSOR_ON = "\x1b[?25h"


def in_a_terminal(environment: dict[str, str], command: list[str], columns: int) -> tuple[int, str]:
    """Run a command under a pseudo-terminal: exit code, and all that it wrote."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux says EIO once the other side is closed
            break
        if not part:
            break
        written += part
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written.decode()


@pytest.mark.parametrize("colour", [True, False])
def test_a_rehearsal_in_a_narrow_terminal(machine: Any, small: str, command: str, colour: bool) -> None:
    spec = machine.folder / "small.yaml"
    spec.write_text(small)
    environment = machine.environment({"TERM": "xterm-256color", "NO_COLOR": None if colour else "1"})
    code, written = in_a_terminal(environment, [command, "rehearse", str(spec), "--until", "os_prep"], 60)
    assert code == 0, written
    assert bool(COLOUR.search(written)) == colour
    assert written.rfind(CURSOR_ON) > written.rfind("\x1b[?25l")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert re.search(r"stage +status +task +nodes +elapsed", text)
    assert re.search(r"os_prep +pass +judge +19/19 +\d+\.\d s", text)
    assert "h200-16: pass: all 1 stages passed" in text.replace("\r\n", "\n")
