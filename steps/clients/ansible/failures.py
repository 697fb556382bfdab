"""What SSH and Ansible say when a host fails, read as a failure kind; pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steps.contract import plain
from steps.contract.play import FailureKind

MESSAGE_LIMIT = 800
_NOTHING = "it failed without a word, or with more than 700 kB of them, which ansible-runner leaves out"
_SEARCHED = 64_000
"""The last characters of all that a failed task said, which are searched for its cause."""
_PRINTED = ("stderr", "module_stderr", "module_stdout")

KILLED = "Ansible was killed"
_CONTROLLER = rf"{KILLED}|No space left on device|Disk quota exceeded|Cannot allocate memory|Resource temporarily unavailable"

_SUDO_HANGS = r"waiting for (become success|privilege escalation)"
"""SSH is fine, and sudo or PAM gives no answer: Ansible tells it as a failed task, or as an unreachable host."""

_SUDO_SPEAKS = re.compile(r"sudo: (?!unable to resolve host)")
"""How sudo begins what it says, in whichever language; where that is the last line the task did not begin. Of a machine that
does not know its own name it only warns."""

_UNREACHABLE = (
    (FailureKind.SSH_PROXY_LOGIN, r"^HTTP proxy \S+ (wants a login|refuses the login)"),
    (FailureKind.NETWORK, r"^HTTP proxy \S+ (cannot reach|gave no answer)"),
    (FailureKind.SSH_PROXY, r"^HTTP proxy \S+ "),
    (FailureKind.HOST_KEY, r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|No \S+ host key is known"),
    (FailureKind.SSH_AUTH, r"Permission denied|Too many authentication failures|UNPROTECTED PRIVATE KEY|invalid format"),
    (FailureKind.SSH_AUTH, r"account has expired"),
    (FailureKind.SSH_ALGORITHMS, r"Unable to negotiate with|no matching \S.* found|no mutual signature"),
    (FailureKind.SUDO, _SUDO_HANGS),
    (FailureKind.READ_ONLY, r"Read-only file system"),
    (FailureKind.DISK_FULL, r"No space left on device"),
    (FailureKind.TASK_FAILED, r"^Failed to create temporary directory"),
)
"""Checked in this order where Ansible says unreachable; a failed login also says `Failed to connect to the host via ssh`.
What begins with a proxy is of `http_connect`. Where the home takes no directory, SSH is fine and Ansible does not say the cause."""

_PROXY = re.compile(r"^HTTP proxy \S+ ")

_NOISE = re.compile(r"^((Task|Action|Module) failed: )+")
_PLACE = re.compile(r"packet\.c:\w+\(\):\d+ \([^)]*\): ")
"""Where in its source SSH says something that it is told to say (`ssh_configuration`)."""
_VIA_SSH = re.compile(
    r"^(Failed to connect to the host via ssh:"
    r"|Data could not be sent to remote host( ['\"](?P<host>\S+)['\"])?\. Make sure this host can be reached over (ssh:|SSH\.)) ?"
)
"""What Ansible says before the words of SSH, which say it themselves; where SSH has none the host is named."""

_FAILED = (
    (FailureKind.PYTHON_MISSING, r"interpreter \S+ was not found|python\S*: (not found|No such file)|No python interpreters found"),
    (FailureKind.PYTHON_MISSING, r"requires a minimum of Python"),
    (FailureKind.SSH_AUTH, r"[Pp]assword has expired|Password change required|account is currently not available"),
    (FailureKind.SUDO, r"sudo: .*(password is required|not found|no tty)|(Missing|Incorrect) sudo password|not in the sudoers"),
    (FailureKind.SUDO, r"sudo: .*(must have a tty|terminal is required|effective uid is not 0|no valid sudoers)"),
    (FailureKind.SUDO, r"sudo: (account validation failure|PAM [a-z ]*error|\S+ is (owned by|world writable))"),
    (FailureKind.SUDO, r"is not allowed to (execute|run sudo)|needs sudo without a password"),
    (FailureKind.SUDO, _SUDO_HANGS),
    (FailureKind.READ_ONLY, r"Read-only file system"),
    (FailureKind.DISK_FULL, r"No space left|not enough free space|don't have enough free space|Disk quota exceeded"),
    (FailureKind.DISK_FULL, r"\d+\S* (more space|more inodes|inodes) (needed )?on the \S+ filesystem"),
    (
        FailureKind.PACKAGE_LOCK,
        r"[Cc]ould not get lock|[Uu]nable to (acquire|lock)|management is locked|transaction lock|holds the lock",
    ),
    (FailureKind.HELPER, r"which is to found the cluster, was not reached"),
    (FailureKind.BUSY, r"of an earlier play is still at work on this host"),
    (
        FailureKind.PROXY,
        r"407 Proxy Auth|HTTP(/\d\.\d)? ?(Error|code:?|error)?:? ?407|[Pp]roxy [Aa]uthentication [Rr]equired|refuses this login",
    ),
    (FailureKind.CLOCK, r"not valid yet|not yet valid|[Cc]lock skew"),
    (FailureKind.PACKAGE_MANAGER, r"packages are half installed|database is damaged|repositories cannot be reached|is not trusted"),
    (FailureKind.PACKAGE_MANAGER, r"dpkg was interrupted|dpkg --configure -a|[Uu]nmet dependencies|--fix-broken|[Rr]pmdb"),
    (FailureKind.REBOOT, r"Timed out waiting for (last boot time check|post-reboot test command)|boot id .* same"),
    (FailureKind.TIMEOUT, r"Timed out after \d+ second|Timeout exceeded"),
)
"""Checked in this order where a task failed (ssh_ansible.md: a missing Python is a failed task, not an unreachable host)."""


def of_unreachable(message: str, others: Iterable[str] = ()) -> FailureKind:
    """Why a host could not be reached; `network` where SSH got no answer, `helper` where the message is about one of the `others`
    (names and addresses): Ansible calls a host unreachable whose task was delegated to one that is."""
    found = _first(_UNREACHABLE, message, FailureKind.NETWORK)
    about = _PROXY.sub("", message)  # which may run on one of the others
    named = any(plain.names(about, other) for other in others)
    return FailureKind.HELPER if named and found is FailureKind.NETWORK else found


def of_failed(message: str) -> FailureKind:
    """Why a task failed."""
    return _first(_FAILED, message, FailureKind.TASK_FAILED)


def of_result(result: Mapping[str, Any]) -> FailureKind:
    """Why a task failed: as its message says, else as anything does that the message has no room for."""
    found = of_failed(message(result))
    if found is FailureKind.TASK_FAILED:
        found = of_failed(" ".join(_all_said(result))[-_SEARCHED:])
    if found is FailureKind.TASK_FAILED and any(_SUDO_SPEAKS.match(line) for line in _last_lines(result)):
        return FailureKind.SUDO
    return found


def is_of_controller(said: str) -> bool:
    """Whether Ansible could not begin for want of something on this machine."""
    return re.search(_CONTROLLER, said) is not None


def _all_said(result: Mapping[str, Any]) -> Iterator[str]:
    yield from filter(None, (_text(result.get(key)) for key in ("msg", *_PRINTED)))
    items = result.get("results")
    for entry in items if isinstance(items, list) else ():
        if isinstance(entry, dict) and entry.get("failed"):
            yield from _all_said(entry)


def _last_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The end of each thing that was said around a task, and not by what it runs, which may use sudo too."""
    for key in ("msg", "module_stderr", "module_stdout"):
        lines = str(result.get(key) or "").split("\n")
        yield next((line.strip() for line in reversed(lines) if line.strip()), "")
    items = result.get("results")
    for entry in items if isinstance(items, list) else ():
        if isinstance(entry, dict) and entry.get("failed"):
            yield from _last_lines(entry)


def message(result: Mapping[str, Any]) -> str:
    """The sentence that a person needs of an Ansible result: its `msg`, and what the tools printed where msg says nothing."""
    said = _text(result.get("msg"))
    items = result.get("results")
    if isinstance(items, list):
        failed = [entry for entry in items if isinstance(entry, dict) and (entry.get("failed") or entry.get("unreachable"))]
        said = message(failed[0]) if failed else said
    # a crashed module's own words come last in what it printed; msg then only says that it failed
    printed = next((text for key in _PRINTED if (text := _text(result.get(key)))), "")
    if printed and printed not in said:
        said = f"{said}: {_end(printed, MESSAGE_LIMIT)}" if said else printed
    said = _short(said)
    if len(said) <= MESSAGE_LIMIT:
        return said or _NOTHING
    return f"{said[: MESSAGE_LIMIT // 2 + 1].rpartition(' ')[0]} … {_end(said, MESSAGE_LIMIT // 2)}".strip()


def _short(said: str) -> str:
    """Without what Ansible says before the cause."""
    said = _PLACE.sub("", _NOISE.sub("", said))
    found = _VIA_SSH.match(said)
    if found is None:
        return said
    cause, host = said[found.end() :], found["host"] or ""
    if not cause:
        return f"no SSH connection{f' to {host}' if host else ''}"
    return cause if host in cause else f"{host}: {cause}"


def _end(said: str, most: int) -> str:
    """The last whole words: half a secret would not be recognized as one and taken out."""
    if len(said) <= most:
        return said
    return said[-most - 1 :].partition(" ")[2] or f"[{len(said)} characters that end without a space]"


def _first(table: tuple[tuple[FailureKind, str], ...], said: str, default: FailureKind) -> FailureKind:
    return next((kind for kind, pattern in table if re.search(pattern, said)), default)


def _text(value: object) -> str:
    text = "; ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return plain.line(" ".join(text.split()))
