"""Judges how an Ansible play ended on one host, for every stage that runs plays."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from steps.contract.host_play import FailureKind, HostStatus, Played
from steps.contract.host_ranges import fold
from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown

PLAY_FAILED = {
    FailureKind.NETWORK: (
        FailureClass.DEPENDENCY,
        "check power, cable, address and firewall of {node}: its SSH port does not answer",
    ),
    FailureKind.SSH_AUTH: (
        FailureClass.PERMISSION,
        "put the public key of the run into {node}'s authorized_keys, or name another user",
    ),
    FailureKind.SSH_ALGORITHMS: (
        FailureClass.DEPENDENCY,
        "let {node}'s SSH server offer what this machine's SSH takes, as the message says (crypto policy, FIPS mode, age of both)",
    ),
    FailureKind.HOST_KEY: (
        FailureClass.PERMISSION,
        "compare {node}'s host key with the one on its console, then `bringup host-keys SPEC --replace {node}`",
    ),
    FailureKind.PYTHON_MISSING: (
        FailureClass.DEPENDENCY,
        "install python3 on {node}, or name its path in the spec: python of its group, or of {node} in the group's overrides",
    ),
    FailureKind.SUDO: (FailureClass.PERMISSION, "let the SSH user of {node} use sudo without a password, or give its password"),
    FailureKind.DISK_FULL: (FailureClass.DEPENDENCY, "make space on {node}"),
    FailureKind.READ_ONLY: (FailureClass.HARDWARE, "read {node}'s kernel log for disk errors; its root is mounted read-only"),
    FailureKind.PACKAGE_LOCK: (FailureClass.RUNTIME, "wait until the other package manager on {node} is done, or turn it off"),
    FailureKind.PACKAGE_MANAGER: (
        FailureClass.DEPENDENCY,
        "repair {node}'s package manager, or the way to its repositories, as the message says; then play again",
    ),
    FailureKind.PROXY: (
        FailureClass.PERMISSION,
        "correct proxy.user and proxy.password, or let the proxy of {node} admit it without a login",
    ),
    FailureKind.SSH_PROXY: (
        FailureClass.DEPENDENCY,
        "correct ssh.http_proxy, start that proxy, or let it connect (CONNECT) to the SSH port of {node}, as the message says",
    ),
    FailureKind.SSH_PROXY_LOGIN: (
        FailureClass.PERMISSION,
        "correct ssh.http_proxy_user and ssh.http_proxy_password, or let the proxy before {node} admit the run without a login",
    ),
    FailureKind.CLOCK: (FailureClass.DEPENDENCY, "set {node}'s clock, and give it a time server"),
    FailureKind.REBOOT: (FailureClass.HARDWARE, "look at {node}'s console: it did not come back from its reboot in time"),
    FailureKind.TIMEOUT: (FailureClass.RUNTIME, "look on {node} for what hangs"),
    FailureKind.BUSY: (FailureClass.RUNTIME, "let that process on {node} end, or end it, and play again"),
    FailureKind.HELPER: (
        FailureClass.DEPENDENCY,
        "see to the host that the message names, then play again on {node}, to which nothing has happened",
    ),
    FailureKind.CONTROLLER: (
        FailureClass.RUNTIME,
        "see why Ansible ended where the step ran (its memory, its disk), then play again on {node}",
    ),
    FailureKind.NO_TURN: (FailureClass.RUNTIME, "see to the hosts that failed in this play, then play again on {node}"),
    FailureKind.TASK_FAILED: (FailureClass.RUNTIME, "read the message, repair {node}, and play again"),
}
"""Failure class and next step for each kind of failed play."""

EXPECTED = {
    FailureKind.NETWORK: "an SSH connection",
    FailureKind.SSH_AUTH: "a login with the run's key",
    FailureKind.SSH_ALGORITHMS: "an SSH server with algorithms that both ends know",
    FailureKind.HOST_KEY: "the host key that known_hosts has, or that was met at first",
    FailureKind.PYTHON_MISSING: "a Python to run modules with",
    FailureKind.SUDO: "sudo without a question",
    FailureKind.DISK_FULL: "space for what the play writes",
    FailureKind.READ_ONLY: "a file system that can be written",
    FailureKind.PACKAGE_LOCK: "a package manager that nobody else holds",
    FailureKind.PACKAGE_MANAGER: "a package manager that works",
    FailureKind.PROXY: "a proxy that lets the host through",
    FailureKind.SSH_PROXY: "an HTTP proxy that connects SSH to the host",
    FailureKind.SSH_PROXY_LOGIN: "an HTTP proxy that lets the run in",
    FailureKind.CLOCK: "a clock that certificates and packages can be checked by",
    FailureKind.REBOOT: "a node that is back after its reboot",
    FailureKind.TIMEOUT: "an end within its time",
    FailureKind.HELPER: "an SSH connection to the host that does this task for others",
    FailureKind.BUSY: "a host that no earlier play is still at work on",
}
"""The expectation to show for each kind of failure; all other kinds expect that the task succeeds."""


def missing_record_finding(node: str) -> Finding:
    """Return the finding for a host of which no play left a record."""
    return unknown(FailureClass.RUNTIME, "no record", "a record of this host", f"read the log of the play that holds {node}")


def problem(host: Played) -> Finding | None:
    """Return the finding that explains why the play did not end well on a host; None if it did."""
    if host.outcome is HostStatus.OK:
        return None
    if host.outcome is HostStatus.CANCELLED:
        return unknown(FailureClass.RUNTIME, f"cut off: {host.message}", "the play to reach its end", _after_cut(host))
    kind = host.kind or FailureKind.TASK_FAILED
    failure_class, advice = PLAY_FAILED[kind]
    where = f" in '{host.task}'" if host.task else ""
    seen = f"{host.outcome.value}, {kind.value}{where}: {host.message}"
    return fail(failure_class, seen, EXPECTED.get(kind, "that task to succeed"), advice.format(node=host.node))


def moved_files_notes(kept: Mapping[str, Sequence[str]]) -> list[str]:
    """Return one note for each set of site files that were moved aside because files of the play replaced them.

    `kept` maps each node to the paths under which its files are kept.
    """
    nodes = defaultdict[Sequence[str], list[str]](list)
    for node, paths in kept.items():
        nodes[tuple(paths)].append(node)
    note = "files of the site were in the places of ours, and are kept as {} on {}"
    return [note.format(", ".join(paths), fold(names)) for paths, names in sorted(nodes.items()) if paths]


def _after_cut(host: Played) -> str:
    """Return the next step for a host on which the play was cut off. A host that may have held it up is to be looked at first."""
    if host.kind in (FailureKind.CONTROLLER, FailureKind.NO_TURN) or (host.kind is FailureKind.TIMEOUT and host.task):
        return PLAY_FAILED[host.kind][1].format(node=host.node)
    return f"play again on {host.node}, or resume the run"
