"""A play: the run of a playbook on some hosts, and its result on each of them.

`PlayRequest` goes to the Ansible client or, in a rehearsal, as JSON to the simulated hosts; `PlayResult` comes back. Modules of
bringup return facts as the key `observation` of their Ansible result; the last one of each host is `HostOutcome.facts`.
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

PYTHON = "/usr/bin/python3"
"""Default path of Python on a host."""
ENDED = "bringup_ended"
"""Fact that a playbook of several plays sets on each host that has finished.

If every host of one batch fails, Ansible ends such a playbook for all hosts and says nothing about the others.
"""


class HostKeys(StrEnum):
    """Policy for SSH host keys. Default: `strict`. `accept-new` keeps the keys of a first contact. No spec can choose `off`."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"
    OFF = "off"


class HttpProxy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An HTTP proxy that makes connections for SSH (CONNECT). `password_path` is the secret file with the password of its login."""

    address: str
    port: int
    user: str = ""
    password_path: str = ""

    @classmethod
    def of(cls, url: str, user: str = "", password_path: str = "") -> "HttpProxy":
        """Return the proxy of a URL `http://HOST:PORT` from a spec; an IPv6 address is in brackets."""
        address, _, port = url.removeprefix("http://").removesuffix("/").rpartition(":")
        return cls(address=address.strip("[]"), port=int(port), user=user, password_path=password_path)

    @property
    def url(self) -> str:
        """Return the proxy's URL without the login."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{address}:{self.port}"


class Jump(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An SSH jump host, whose host key is checked like any other.

    `jump` is the jump host through which this one is reached. `proxy` is set only for the first jump host of a chain.
    """

    address: str
    port: int = 22
    user: str = "root"
    key_path: str = ""
    jump: "Jump | None" = None
    proxy: HttpProxy | None = None

    @classmethod
    def of(cls, text: str, key_path: str = "") -> "Jump":
        """Return the jump host next to the target, from the text of a chain `user@host:port,…` that starts near this machine.

        The jump hosts before it are nested in its field `jump`.
        """
        # SSH's ProxyJump lists the nearest jump host first, so the last one is the outermost here
        before, _, last = text.rpartition(",")
        user, _, place = last.rpartition("@")
        address, _, port = place.partition(":")
        jump = cls.of(before, key_path) if before else None
        return cls(address=address, port=int(port or 22), user=user or "root", key_path=key_path, jump=jump)

    def behind(self, proxy: HttpProxy | None) -> "Jump":
        """Return a copy of this chain whose first jump host is reached through the HTTP proxy."""
        if self.jump is None:
            return msgspec.structs.replace(self, proxy=proxy)
        return msgspec.structs.replace(self, jump=self.jump.behind(proxy))


def through(jump: Jump | None, proxy: HttpProxy | None) -> tuple[Jump | None, HttpProxy | None]:
    """Return the jump host and the HTTP proxy for a host that is reached through both.

    With a jump host, the proxy is set on the first jump host of the chain, and None is returned as the host's own proxy.
    """
    return (None, proxy) if jump is None else (jump.behind(proxy), None)


class PlayHost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings by which SSH reaches one host.

    `key_path` is a file below the secrets folder, empty for the SSH agent. `proxy` is set only without a jump host.
    """

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
    """An Ansible role of the site: its name, archive file (in a task: its name in the tasks folder), and the archive's digest."""

    name: str
    file: str
    digest: str


class PlayRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to run one playbook on some hosts, for the Ansible client or a rehearsal's simulator.

    - `playbook`: a name below `playbooks/` without `.yml`.
    - `secret_variables`: variable → file with its value, so that the request holds the path only.
    - `timeout_seconds`, `idle_timeout_seconds`: limits for the whole play, and for the silence between two events.
    - `role`: a role of the site, which the playbook finds beside bringup's own.
    - `helpers`: hosts that are reached like `hosts`, but not played: tasks may be delegated to them. They have no outcome.
    - `together`: a host that fails stops those after it, so a retry plays all hosts again.
    - `met`: folder that keeps the host keys of first contacts, if `host_keys` allows these.
    - `post_quantum`: keep SSH's own order of key exchanges, even if it is slow.
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
        """Return every host that SSH may connect to: the played hosts, then the helpers."""
        return self.hosts + self.helpers


class HostStatus(StrEnum):
    """Outcome of the play on one host. `cancelled`: a time-out, a signal or the failure of others cut it off."""

    OK = "ok"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    CANCELLED = "cancelled"


class FailureKind(StrEnum):
    """Cause of a host's failure, read from the messages of SSH and Ansible; `task_failed` if no other fits.

    `helper`: a host to which a task was delegated could not be reached. `controller`: Ansible itself ended early, for example out
    of memory; no host is to blame. `no_turn`: others failed, and Ansible ended the playbook before this host had finished.
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
    """Outcome of the play as a whole."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class HostOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of the play on one host.

    `task` and `message` are those of its first failure, or of the task that ran when the play was cut off. `changed` and `done`
    count tasks. `facts` is the last `observation` that a module of bringup returned, read between `facts_from` and `facts_to`
    (clock of the controller, UTC seconds; 0 if unknown). `tries` counts plays: a temporary failure is retried once.
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
    """Observation of one host after a play: how the play ended there. Each stage that runs plays adds the facts it reads."""

    node: str
    outcome: HostStatus
    kind: FailureKind | None = None
    task: str = ""
    message: str = ""
    changed: int = 0


class PlayResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a play: one outcome for every requested host, in their order. Times are UTC seconds since the epoch.

    `transport` is `ssh` or `simulated`. `message` says what ended the play if no host did.
    """

    playbook: str
    status: PlayStatus
    hosts: tuple[HostOutcome, ...]
    transport: str
    started: float
    finished: float
    message: str = ""


class PlayEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a play, kept as a line of JSON in the play's events file. `time` is the controller's, in UTC seconds."""

    event: str
    time: float
    host: str = ""
    task: str = ""
    changed: bool = False
    seconds: float = 0.0
    message: str = ""
