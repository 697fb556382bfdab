"""Opens transports to release trees (published release folders): system calls on this machine, or one shell session over SSH."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steps.clients.releases.local_transport import LocalTransport
from steps.clients.releases.release_tree import TreeLayout
from steps.clients.releases.shell_session import PROGRAM, ShellTransport
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract.release_layout import ReleaseTarget
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
"""Options of ssh. The host's key must be known; ServerAlive ends a dead connection after 15 s."""
_START = """exec sh -c 'eval "$(head -c {size})"'"""
"""The remote command. The user's login shell reads it first, and csh takes neither a line end nor a ! within quotes."""


@contextmanager
def connected(target: ReleaseTarget, secrets: Path, layout: TreeLayout = TreeLayout()) -> Iterator[TreeTransport]:
    """Open a transport to a target's tree, by SSH if it has a host, and close it at the end. Raises a StepError."""
    transport: TreeTransport = connect(target, secrets, layout) if target.host else LocalTransport(Path(target.root), layout)
    try:
        yield transport
    finally:
        transport.close()


def connect(target: ReleaseTarget, secrets: Path, layout: TreeLayout = TreeLayout()) -> ShellTransport:
    """Return a shell session on the target's host. Raises BadTask for a bad host or user name, Unreachable without a connection."""
    program = PROGRAM.read_bytes()
    words, where = command(target, secrets, len(program)), f"{target.host}:{target.root}"
    return ShellTransport(words, target.root, where, program=program, layout=layout)


def command(target: ReleaseTarget, secrets: Path, size: int) -> tuple[str, ...]:
    """Return the ssh command, which reads a program of `size` bytes from its input and runs it.

    If the target names `known_hosts`, the SSH configuration of this user is ignored.
    """
    for what, text in (("host", target.host), ("user", target.user or "-")):
        # ssh would take a name with a leading dash for an option, such as -oProxyCommand=…
        if not text.isprintable() or not text or " " in text or (text.startswith("-") and text != "-"):
            raise BadTask(f"{text!r} is no {what} to publish to", hint="see the place in the spec")
    words = ["ssh", *(word for option in _OPTIONS for word in ("-o", option))]
    if target.known_hosts:
        known = f'"{_file(secrets, target.known_hosts)}"'
        words += ["-F", "none", "-o", f"UserKnownHostsFile={known}", "-o", "GlobalKnownHostsFile=none"]
    if target.ssh_key:
        words += ["-o", "IdentitiesOnly=yes", "-i", str(_file(secrets, target.ssh_key))]
    words += ["-p", str(target.port), *(("-l", target.user) if target.user else ())]
    return (*words, "--", target.host, _START.format(size=size))


def _file(secrets: Path, name: str) -> Path:
    file = secrets / name
    if "/" in name or name.startswith(".") or not file.is_file():
        raise BadTask(f"there is no secret file {name}", hint="see the place in the spec, and the secrets that it names")
    if '"' in str(file) or "%" in str(file):  # ssh reads both within UserKnownHostsFile
        raise BadTask(f"the folder of secrets {secrets} has a sign in its name that SSH would not take as one")
    return file
