"""Public keys that a command line names by file; an error names the file's path."""

import re
from pathlib import Path

import typer

_LINE = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[\w.@-]+ [A-Za-z0-9+/=]+( .*)?")
_LONGEST = 16384
"""Size limit of a .pub file in characters: an RSA key of 16 kbit takes 2,800."""


def read(file: Path, option: str = "--signer") -> str:
    """Return the line of an SSH public key. Raises BadParameter for a file without a key, OSError if it cannot be read."""
    with file.open(errors="replace") as stream:
        line = stream.read(_LONGEST).strip()
    if not _LINE.fullmatch(line):
        raise typer.BadParameter(f"{option} {file}: there is no SSH public key in it; name a .pub file, as ssh-keygen writes it")
    return line
