"""A tree on another machine: one OpenSSH connection with one session in it; the host's key must be known."""

from pathlib import Path

from steps.clients.published.shell import PROGRAM, Session
from steps.contract.image.published import Place
from steps.errors import BadTask

_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ControlPath=none",
    "LogLevel=ERROR",
)
"""ServerAlive ends a dead connection after 15 s."""
_START = """exec sh -c 'eval "$(head -c {size})"'"""
"""The user's login shell reads it first, which may be csh: no quoted word goes over a line end there, nor has it a !."""


def connect(place: Place, secrets: Path) -> Session:
    """A session on the place's host. Raises BadTask for names that are none, Unreachable where it cannot be had."""
    program = PROGRAM.read_bytes()
    return Session(command(place, secrets, len(program)), place.root, f"{place.host}:{place.root}", program=program)


def command(place: Place, secrets: Path, size: int) -> tuple[str, ...]:
    """The ssh command; what it starts takes a program of so many bytes from its input. With a key or known hosts of the place,
    nothing of this user's own SSH counts."""
    for what, text in (("host", place.host), ("user", place.user or "-")):
        if not text.isprintable() or not text or " " in text or (text.startswith("-") and text != "-"):
            raise BadTask(f"{text!r} is no {what} to publish to", hint="see the place in the spec")
    words = ["ssh", *(word for option in _OPTIONS for word in ("-o", option))]
    if place.known_hosts:
        known = f'"{_file(secrets, place.known_hosts)}"'
        words += ["-F", "none", "-o", f"UserKnownHostsFile={known}", "-o", "GlobalKnownHostsFile=none"]
    if place.ssh_key:
        words += ["-o", "IdentitiesOnly=yes", "-i", str(_file(secrets, place.ssh_key))]
    words += ["-p", str(place.port), *(("-l", place.user) if place.user else ())]
    return (*words, "--", place.host, _START.format(size=size))


def _file(secrets: Path, name: str) -> Path:
    found = secrets / name
    if "/" in name or name.startswith(".") or not found.is_file():
        raise BadTask(f"there is no secret file {name}", hint="see the place in the spec, and the secrets that it names")
    if '"' in str(found) or "%" in str(found):
        raise BadTask(f"the folder of secrets {secrets} has a sign in its name that SSH would not take as one")
    return found
