"""A play: which playbook runs on which hosts, and what each host made of it.

`PlayRequest` goes to the Ansible client (or, in rehearsal, as JSON to the simulated hosts); `PlayResult` comes back. A module
of ours hands facts back to us as the key `observation` of its Ansible result; the last one of each host is `HostOutcome.facts`.
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

PYTHON = "/usr/bin/python3"
"""Where Python lies on a host of which nobody says otherwise."""
ENDED = "bringup_ended"
"""Fact that a playbook of several plays sets on each host that has come to its end: where every host of one batch fails, Ansible
ends such a playbook for all, and says nothing about the others."""


class HostKeys(StrEnum):
    """What SSH does with host keys: `strict` is the default; `accept-new` is for a first contact that the spec allows, whose keys
    are kept and hold from then on; `off` is said by no spec."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"
    OFF = "off"


class HttpProxy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An HTTP proxy that makes connections for SSH (CONNECT). `password_path` is the secret file with its login's password."""

    address: str
    port: int
    user: str = ""
    password_path: str = ""

    @classmethod
    def of(cls, url: str, user: str = "", password_path: str = "") -> "HttpProxy":
        """The proxy of a URL as a spec has it, `http://HOST:PORT`; an IPv6 address stands in brackets."""
        address, _, port = url.removeprefix("http://").removesuffix("/").rpartition(":")
        return cls(address=address.strip("[]"), port=int(port), user=user, password_path=password_path)

    @property
    def url(self) -> str:
        """Its URL, without the login."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{address}:{self.port}"


class Jump(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The SSH host through which another is reached; its host key is checked like any other. `jump` is the one before it, and
    `proxy` stands before the first of them alone."""

    address: str
    port: int = 22
    user: str = "root"
    key_path: str = ""
    jump: "Jump | None" = None
    proxy: HttpProxy | None = None

    @classmethod
    def of(cls, text: str, key_path: str = "") -> "Jump":
        """Jump hosts as a spec has them, `user@host:port` with commas between, the nearest first: the last, those before inside."""
        before, _, last = text.rpartition(",")
        user, _, place = last.rpartition("@")
        address, _, port = place.partition(":")
        jump = cls.of(before, key_path) if before else None
        return cls(address=address, port=int(port or 22), user=user or "root", key_path=key_path, jump=jump)

    def behind(self, proxy: HttpProxy | None) -> "Jump":
        """The same hosts, the first of them reached through a proxy."""
        if self.jump is None:
            return msgspec.structs.replace(self, proxy=proxy)
        return msgspec.structs.replace(self, jump=self.jump.behind(proxy))


def through(jump: Jump | None, proxy: HttpProxy | None) -> tuple[Jump | None, HttpProxy | None]:
    """The `jump` and the `proxy` of a host that is behind both: the proxy stands before the first jump host, if there is one."""
    return (None, proxy) if jump is None else (jump.behind(proxy), None)


class PlayHost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one host is reached. `key_path` is a file below the secrets folder; empty means the SSH agent's keys. `proxy` stands
    before the host itself; where there is a jump host it stands before the first of those."""

    name: str
    address: str
    port: int = 22
    user: str = "root"
    key_path: str = ""
    jump: Jump | None = None
    proxy: HttpProxy | None = None
    python: str = PYTHON
    groups: tuple[str, ...] = ()
    variables: dict[str, Any] = {}


class RoleArchive(Struct, frozen=True, kw_only=True):
    """A role of the site: its name, the file that holds it (in a task: its name in the tasks folder), the digest of its content."""

    name: str
    file: str
    digest: str


class PlayRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of one playbook.

    `playbook` is a name below `playbooks/` without `.yml`. `secret_variables` maps a variable to the file that holds its value:
    only the path is in the request. Times are seconds: the whole play, and the longest silence between two events.
    `role` is one of the site, which the playbook finds beside ours. `helpers` are reached as `hosts` are, but not played: tasks may
    be delegated to them, and what becomes of them is no outcome. `together`: a host that fails stops those after it, so that a
    second try is one of all hosts. `met` is the folder that keeps the keys of first contacts, where `host_keys` allows these.
    `post_quantum`: SSH's own order of key exchanges holds, also where that is slow.
    """

    playbook: str
    hosts: tuple[PlayHost, ...]
    helpers: tuple[PlayHost, ...] = ()
    variables: dict[str, Any] = {}
    secret_variables: dict[str, str] = {}
    known_hosts: str = ""
    host_keys: HostKeys = HostKeys.STRICT
    met: str = ""
    post_quantum: bool = False
    forks: int = 50
    timeout_seconds: int = 1800
    idle_timeout_seconds: int = 1500
    check: bool = False
    together: bool = False
    role: RoleArchive | None = None

    @property
    def reached(self) -> tuple[PlayHost, ...]:
        """Every host that SSH may dial: those that are played, then the helpers."""
        return self.hosts + self.helpers


class HostStatus(StrEnum):
    """How the play ended for one host. `cancelled`: it was cut off by a time-out, a signal or the end of others before its end."""

    OK = "ok"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    CANCELLED = "cancelled"


class FailureKind(StrEnum):
    """Why a host is not `ok`, read from SSH's and Ansible's messages; `task_failed` where none of the others fits.

    `helper`: another host, to which a task was delegated, could not be reached. `controller`: Ansible itself ended before the play
    did, as where memory runs out; no host is to blame. `no_turn`: others failed, and Ansible ended the playbook before this host
    came to its end.
    """

    NETWORK = "network"
    SSH_AUTH = "ssh_auth"
    SSH_ALGORITHMS = "ssh_algorithms"
    HOST_KEY = "host_key"
    PYTHON_MISSING = "python_missing"
    SUDO = "sudo"
    DISK_FULL = "disk_full"
    READ_ONLY = "read_only"
    PACKAGE_LOCK = "package_lock"
    PACKAGE_MANAGER = "package_manager"
    PROXY = "proxy"
    SSH_PROXY = "ssh_proxy"
    SSH_PROXY_LOGIN = "ssh_proxy_login"
    CLOCK = "clock"
    REBOOT = "reboot"
    TIMEOUT = "timeout"
    BUSY = "busy"
    HELPER = "helper"
    CONTROLLER = "controller"
    NO_TURN = "no_turn"
    TASK_FAILED = "task_failed"


class PlayStatus(StrEnum):
    """How the play ended as a whole."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class HostOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one host made of the play.

    `task` and `message` are those of its first failure, or of what ran there when the play was cut off; `changed` and `done` count
    its tasks; `facts` is the last `observation` that a module of ours returned, read between `facts_from` and `facts_to` (clock of
    the controller, UTC seconds; 0 where not known). `tries` is how often it was played: a temporary failure gets a second try.
    """

    host: str
    status: HostStatus
    kind: FailureKind | None = None
    task: str = ""
    message: str = ""
    done: int = 0
    changed: int = 0
    tries: int = 1
    facts: dict[str, Any] = {}
    facts_from: float = 0.0
    facts_to: float = 0.0


class Played(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node after a play, as every stage that acts over SSH observes it; a stage adds what the node showed."""

    node: str
    outcome: HostStatus
    kind: FailureKind | None = None
    task: str = ""
    message: str = ""
    changed: int = 0


class PlayResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a play: one outcome for every requested host, in their order. Times are UTC seconds since the epoch.

    `transport` is `ssh`, or `simulated` where the hosts were stand-ins; `message` says what ended the play where no host did.
    """

    playbook: str
    status: PlayStatus
    hosts: tuple[HostOutcome, ...]
    transport: str
    started: float
    finished: float
    message: str = ""


class PlayEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a play as it comes: a line of the events file. `time` is the controller's, UTC seconds."""

    event: str
    time: float
    host: str = ""
    task: str = ""
    changed: bool = False
    seconds: float = 0.0
    message: str = ""
