"""Finds the failure kind of a host in the messages of SSH and Ansible. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steps.contract import plain_text
from steps.contract.host_play import FailureKind

MESSAGE_LIMIT = 800
_NOTHING = "it failed without a word, or with more than 700 kB of them, which ansible-runner leaves out"
_SEARCHED = 64_000
"""Number of last characters of a failed task's output that are searched for its cause."""
_PRINTED = ("stderr", "module_stderr", "module_stdout")

KILLED = "Ansible was killed"
_CONTROLLER = rf"{KILLED}|No space left on device|Disk quota exceeded|Cannot allocate memory|Resource temporarily unavailable"

_SUDO_HANGS = r"waiting for (become success|privilege escalation)"
"""Message if SSH works but sudo or PAM does not answer. Ansible reports a failed task or an unreachable host."""

_SUDO_SPEAKS = re.compile(r"sudo: (?!unable to resolve host)")
"""Beginning of sudo's messages in any language; as the last line it means that the task did not start.

sudo only warns about a machine that cannot resolve its own name.
"""

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
"""Patterns for unreachable hosts, in this order: a failed login also says `Failed to connect to the host via ssh`.

Messages that begin with a proxy come from `http_connect`. If the home takes no directory, SSH works and Ansible does not say the
cause.
"""

_PROXY = re.compile(r"^HTTP proxy \S+ ")

_NOISE = re.compile(r"^((Task|Action|Module) failed: )+")
_PLACE = re.compile(r"packet\.c:\w+\(\):\d+ \([^)]*\): ")
"""Place in SSH's source that LogVerbose (`ssh.configuration`) puts before a message."""
_VIA_SSH = re.compile(
    r"^(Failed to connect to the host via ssh:"
    r"|Data could not be sent to remote host( ['\"](?P<host>\S+)['\"])?\. Make sure this host can be reached over (ssh:|SSH\.)) ?"
)
"""Ansible's words before a message of SSH, which is clear without them. If SSH said nothing, the host is named."""

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
"""Patterns for failed tasks, in this order.

A missing Python is a failed task, not an unreachable host (`playbooks/docs/facts.md`, Events and exit codes of ansible-runner).
"""


def of_unreachable(message: str, others: Iterable[str] = ()) -> FailureKind:
    """Return why a host could not be reached; `network` if SSH got no answer.

    The result is `helper` if the message names one of the `others` (names and addresses), because Ansible calls a host unreachable
    if its task was delegated to an unreachable one.
    """
    kind = _first(_UNREACHABLE, message, FailureKind.NETWORK)
    about = _PROXY.sub("", message)  # the proxy itself may run on one of the others
    named = any(plain_text.names(about, other) for other in others)
    return FailureKind.HELPER if named and kind is FailureKind.NETWORK else kind


def failure_reason(message: str) -> FailureKind:
    """Return the failure kind of a failed task, from its message."""
    return _first(_FAILED, message, FailureKind.TASK_FAILED)


def of_result(result: Mapping[str, Any]) -> FailureKind:
    """Return the failure kind of a failed task, from its message, else from its whole output."""
    kind = failure_reason(message(result))
    if kind is FailureKind.TASK_FAILED:
        kind = failure_reason(" ".join(_all_said(result))[-_SEARCHED:])
    # sudo's messages are translated, so its prefix is what identifies it
    if kind is FailureKind.TASK_FAILED and any(_SUDO_SPEAKS.match(line) for line in _last_lines(result)):
        return FailureKind.SUDO
    return kind


def is_of_controller(text: str) -> bool:
    """Return True if Ansible could not start because this machine lacks memory, processes or disk space."""
    return re.search(_CONTROLLER, text) is not None


def _all_said(result: Mapping[str, Any]) -> Iterator[str]:
    yield from filter(None, (_text(result.get(key)) for key in ("msg", *_PRINTED)))
    items = result.get("results")
    for entry in items if isinstance(items, list) else ():
        if isinstance(entry, dict) and entry.get("failed"):
            yield from _all_said(entry)


def _last_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the last line of each output around a task. Output of the task's own commands is excluded: they may use sudo too."""
    for key in ("msg", "module_stderr", "module_stdout"):
        lines = str(result.get(key) or "").split("\n")
        yield next((line.strip() for line in reversed(lines) if line.strip()), "")
    items = result.get("results")
    for entry in items if isinstance(items, list) else ():
        if isinstance(entry, dict) and entry.get("failed"):
            yield from _last_lines(entry)


def message(result: Mapping[str, Any]) -> str:
    """Return the message for people in an Ansible result: its `msg`, with the output of tools if `msg` says nothing."""
    sentence = _text(result.get("msg"))
    items = result.get("results")
    if isinstance(items, list):
        failed = [entry for entry in items if isinstance(entry, dict) and (entry.get("failed") or entry.get("unreachable"))]
        sentence = message(failed[0]) if failed else sentence
    # a crashed module's own words come last in what it printed; msg then only says that it failed
    printed = next((text for key in _PRINTED if (text := _text(result.get(key)))), "")
    if printed and printed not in sentence:
        sentence = f"{sentence}: {_end(printed, MESSAGE_LIMIT)}" if sentence else printed
    sentence = _short(sentence)
    if len(sentence) <= MESSAGE_LIMIT:
        return sentence or _NOTHING
    return f"{sentence[: MESSAGE_LIMIT // 2 + 1].rpartition(' ')[0]} … {_end(sentence, MESSAGE_LIMIT // 2)}".strip()


def _short(text: str) -> str:
    """Return a message without the words that Ansible puts before the cause."""
    text = _PLACE.sub("", _NOISE.sub("", text))
    prefix = _VIA_SSH.match(text)
    if prefix is None:
        return text
    cause, host = text[prefix.end() :], prefix["host"] or ""
    if not cause:
        return f"no SSH connection{f' to {host}' if host else ''}"
    return cause if host in cause else f"{host}: {cause}"


def _end(text: str, most: int) -> str:
    """Return the last whole words of a text. A cut word could be half a secret, which would not be recognised and redacted."""
    if len(text) <= most:
        return text
    return text[-most - 1 :].partition(" ")[2] or f"[{len(text)} characters that end without a space]"


def _first(table: tuple[tuple[FailureKind, str], ...], text: str, default: FailureKind) -> FailureKind:
    return next((kind for kind, pattern in table if re.search(pattern, text)), default)


def _text(value: object) -> str:
    text = "; ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return plain_text.line(" ".join(text.split()))
