"""A file server and its clients, for real: the kernel's own NFS, in a machine under QEMU.

The clients are network namespaces of that machine, with addresses, names and caches of their own; all of it sees their mounts.

The server can restart, go away, unexport a folder and forget it; mounts wait for it or give up.
"""

import io
import select
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.boot.published.nfs_guest import Answer, Asked
from tests.hosts.machine.qemu import Machine

ROOT = Path(__file__).parents[3]
CODE = ("steps", "tests/boot/published", "tests/hosts/hostlab", "tests/unit/clients/published")
PYTHON = (3, 11)
"""Debian 12's: what is compiled for it here loads there."""
SERVER = Path("/srv")
VERSIONS = ("4.2", "3")
CLIENTS = ("one", "two")
GRACE = 10
"""Seconds for which a server that starts waits for clients that it knows; the least that it takes."""
EXPORTS = {
    "images": "rw,no_root_squash",
    "squashed": "rw,root_squash",
    "readonly": "ro,no_root_squash",
    "again": "rw,no_root_squash",
}
"""Folder → how it is exported."""
SOFT = "timeo=10,retrans=1"
"""For how long a soft mount waits: two seconds."""
MOUNTS = {
    "one": {
        "one": ("images", "hard"),
        "soft": ("images", f"soft,{SOFT}"),
        "softerr": ("images", f"softerr,{SOFT}"),
        "squashed": ("squashed", "hard"),
        "readonly": ("readonly", "hard"),
        "again": ("again", "hard"),
    },
    "two": {"two": ("images", "hard"), "quick": ("images", "hard,actimeo=1")},
}
"""Client → its mounts: name, what they are of, options."""
SERVE = f"""set -e
systemctl stop firewalld  # it lets nothing but SSH in, and these clients come from outside
mkdir -p {" ".join(str(SERVER / name) for name in EXPORTS)} /etc/nfs.conf.d /run/systemd/network
cat > /etc/exports
echo '[nfsd]\nlease-time={GRACE}\ngrace-time={GRACE}' > /etc/nfs.conf.d/quick.conf
systemctl start nfs-server
echo '[Match]\nName=client*\n[Link]\nUnmanaged=yes' > /run/systemd/network/05-clients.network
networkctl reload
"""
JOIN = """set -e
ip netns add {name}
ip link add client{number} type veth peer name eth0 netns {name}
ip address add 10.9.{number}.1/24 dev client{number}
ip link set client{number} up
ip -n {name} address add 10.9.{number}.2/24 dev eth0
ip -n {name} link set eth0 up
"""
OPTIONS = {"4.2": "vers=4.2", "3": "vers=3,nolock"}
"""Nothing here asks for an advisory lock: rpc.statd is not needed."""
ENTER = "nsenter --net=/run/netns/{name} unshare --uts sh -ec"
"""Runs a line of shell as a client; a server tells clients from each other by their names."""
READY = "ready"
ANSWER_SECONDS = 150.0
END_SECONDS = 20.0


@dataclass(frozen=True)
class Agent:
    """A process in the machine that does what it is told, one thing at a time."""

    process: "subprocess.Popen[bytes]"

    def begin(self, call: str, **words: object) -> None:
        """Tell it to do something."""
        assert self.process.stdin
        self.process.stdin.write(msgspec.json.encode(Asked(call, words)) + b"\n")
        self.process.stdin.flush()

    def end(self) -> Answer:
        """Wait for the answer to the call that was begun, and return it."""
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        assert ready, "no answer in time"
        line = self.process.stdout.readline()
        assert line, "it ended"
        return msgspec.json.decode(line, type=Answer)

    def answer(self, call: str, **words: object) -> Answer:
        """Do something, whatever comes of it."""
        self.begin(call, **words)
        return self.end()

    def done(self) -> Any:
        """Wait for the answer to the call that was begun, which must not be an error, and return its value."""
        answer = self.end()
        assert (answer.error, answer.ended) == ("", 0), answer.said
        return answer.value

    def ask(self, call: str, **words: object) -> Any:
        """Do something that succeeds."""
        self.begin(call, **words)
        return self.done()


@dataclass(frozen=True)
class Site:
    """The machine, and agents: one for each client, one that reads, and the server's."""

    machine: Machine
    one: Agent
    two: Agent
    reader: Agent
    server: Agent

    def run(self, line: str) -> str:
        """A line of shell, on the server."""
        return str(self.server.ask("shell", line=line))


@contextmanager
def served(machine: Machine) -> Iterator[Site]:
    """The server and its clients' mounts, `/mnt/VERSION/NAME`, for as long as the machine runs."""
    exports = "".join(f"{SERVER / name} 10.9.0.0/16({options},sync,no_subtree_check)\n" for name, options in EXPORTS.items())
    _send(machine)
    with ExitStack() as stack:
        machine.run(SERVE, text=exports)
        for number, name in enumerate(CLIENTS, start=1):
            machine.run(JOIN.format(name=name, number=number))
            machine.run("\n".join(mounting(name, version) for version in VERSIONS))
        yield Site(machine, *(stack.enter_context(_agent(machine, *before)) for before in ((), APART, (), ())))


APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation", "slave")
"""Another machine, as far as a process can tell: nobody knows from outside whether it is still there."""


def mounting(name: str, version: str, only: str = "") -> str:
    """A line of shell that mounts what a client has of one version of NFS."""
    number = CLIENTS.index(name) + 1
    lines = [f"hostname {name}"]
    for mount, (export, options) in MOUNTS[name].items():
        if only in ("", mount):
            every = f"{OPTIONS[version]},nosharecache,{options}"
            lines.append(f"mkdir -p /mnt/{version}/{mount}")
            lines.append(f"mount -t nfs -o {every} 10.9.{number}.1:{SERVER / export} /mnt/{version}/{mount}")
    return f"{ENTER.format(name=name)} '{' && '.join(lines)}'"


def _send(machine: Machine) -> None:
    """Our code, and the one library that it needs there, compiled already."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        for folder in CODE:
            archive.add(ROOT / folder, folder)
        archive.add(Path(msgspec.__file__).parent, "msgspec")
    command = machine.words("mkdir -p /root/code && tar -C /root/code -xz")
    subprocess.run(command, input=data.getvalue(), check=True, timeout=ANSWER_SECONDS)


@contextmanager
def _agent(machine: Machine, *before: str) -> Iterator[Agent]:
    command = " ".join((*before, "env", "PYTHONPATH=/root/code", "python3", "-m", "tests.boot.published.nfs_guest"))
    with subprocess.Popen(machine.words(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Agent(process)
        finally:
            process.terminate()
            process.wait(END_SECONDS)


def fitting() -> str:
    """Why this Python's libraries would not load there; empty where they do."""
    here = sys.version_info[:2]
    return "" if here == PYTHON else f"the machine has Python {PYTHON}, this one is {here}: msgspec is compiled for each"
