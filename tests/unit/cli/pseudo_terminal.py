"""A command in a terminal of a person, who may have a width and may answer a question."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Sequence

QUESTION = "? [y/N]"


def in_a_terminal(
    environment: dict[str, str], command: Sequence[str], columns: int = 0, answer: str = "", question: str = QUESTION
) -> tuple[int, str]:
    """Run it, and give the answer once it asks: exit code, and all that it wrote."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, environment)
    if columns:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written, sign = b"", question.encode()
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux says EIO once the other side is closed
            break
        if not part:
            break
        asked, written = sign in written, written + part
        if answer and not asked and sign in written:
            os.write(terminal, f"{answer}\n".encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written.decode()
