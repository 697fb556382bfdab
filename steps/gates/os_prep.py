"""Gate of os_prep: each node is prepared as the profile says, and alike where it must be."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from steps.contract.play import FailureKind, HostStatus
from steps.contract.stages.os_prep import Expectation, Item, ItemStatus, NodeObservation, Observation
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes
from steps.gates import os_prep_facts
from steps.gates.finding import Finding, fail, unknown

GATE = "os_prep/nodes"
NOTED = ("os_id", "os_version", "kernel", "architecture", "product", "cpus", "gpus")
"""Facts that are usually equal within a fleet; odd ones out are worth a remark."""

PLAY_FAILED = {
    FailureKind.NETWORK: (
        FailureClass.DEPENDENCY,
        "check power, cable, address and firewall of {node}: its SSH port does not answer",
    ),
    FailureKind.SSH_AUTH: (
        FailureClass.PERMISSION,
        "put the public key of the run into {node}'s authorized_keys, or name another user",
    ),
    FailureKind.HOST_KEY: (FailureClass.PERMISSION, "compare {node}'s host key on its console, then correct known_hosts"),
    FailureKind.PYTHON_MISSING: (FailureClass.DEPENDENCY, "install python3 on {node}, or name its path"),
    FailureKind.SUDO: (FailureClass.PERMISSION, "let the SSH user of {node} use sudo without a password, or give its password"),
    FailureKind.DISK_FULL: (FailureClass.DEPENDENCY, "make space on {node}"),
    FailureKind.READ_ONLY: (FailureClass.HARDWARE, "read {node}'s kernel log for disk errors; its root is mounted read-only"),
    FailureKind.PACKAGE_LOCK: (FailureClass.RUNTIME, "wait until the other package manager on {node} is done, or turn it off"),
    FailureKind.CLOCK: (FailureClass.DEPENDENCY, "set {node}'s clock, and give it a time server"),
    FailureKind.TIMEOUT: (FailureClass.RUNTIME, "look on {node} for what hangs"),
    FailureKind.TASK_FAILED: (FailureClass.RUNTIME, "read the message, repair {node}, and play again"),
}
"""Failure class and next step of each kind of failed play."""


def nodes(seen: Observation, want: Expectation) -> Verdict:
    """Judge every expected node; one without a record has not passed."""
    by_name = {node.node: node for node in seen.nodes}
    odd = _odd_ones(seen.nodes, want)
    rows = [_verdict(name, _findings(name, by_name.get(name), want, odd.get(name, []))) for name in want.nodes]
    return of_nodes(GATE, rows, what="prepared", notes=_notes(seen.nodes, want))


def _verdict(name: str, findings: Iterable[Finding]) -> NodeVerdict:
    """The worst finding speaks for the node; how many others there are is said too."""
    rows = sorted(findings, key=lambda finding: finding.status is not Status.FAIL)
    if not rows:
        return NodeVerdict(node=name, status=Status.PASS, seen="prepared")
    first, others = rows[0], len(rows) - 1
    more = f" (and {others} more: {'; '.join(row.seen for row in rows[1:4])})" if others else ""
    return NodeVerdict(
        node=name,
        status=first.status,
        seen=first.seen + more,
        expected=first.expected,
        next_step=first.next_step,
        failure_class=first.failure_class,
    )


def _findings(name: str, node: NodeObservation | None, want: Expectation, odd: list[Finding]) -> Iterator[Finding]:
    if node is None:
        yield unknown(
            FailureClass.RUNTIME, "no record", "a record of this node", f"read the log of the play's shard that holds {name}"
        )
        return
    yield from _play(node)
    if node.facts is None:
        if node.outcome is HostStatus.OK:
            yield unknown(
                FailureClass.RUNTIME,
                node.message or "no observation",
                "an observation of node_profile",
                f"play os_prep on {name} again",
            )
        return
    yield from _items(node, want)
    yield from os_prep_facts.findings(node.facts, node.skew_seconds, want)
    yield from odd


def _play(node: NodeObservation) -> Iterator[Finding]:
    if node.outcome is HostStatus.OK:
        return
    if node.outcome is HostStatus.CANCELLED:
        yield unknown(
            FailureClass.RUNTIME, f"cut off: {node.message}", "the play to reach its end", f"play os_prep on {node.node} again"
        )
        return
    kind = node.kind or FailureKind.TASK_FAILED
    failure_class, advice = PLAY_FAILED[kind]
    where = f" in '{node.task}'" if node.task else ""
    yield fail(
        failure_class,
        f"{node.outcome.value}, {kind.value}{where}: {node.message}",
        "the play to end well",
        advice.format(node=node.node),
    )


def _items(node: NodeObservation, want: Expectation) -> Iterator[Finding]:
    if not node.items:
        yield unknown(
            FailureClass.RUNTIME, "an observation without items", "the items of the profile", f"play os_prep on {node.node} again"
        )
    for pattern in want.items:
        if not any(fnmatchcase(item.name, pattern) for item in node.items):
            yield unknown(
                FailureClass.RUNTIME,
                f"no item '{pattern}'",
                f"an item '{pattern}'",
                "let the profile of the play hold what the gate expects",
            )
    for item in node.items:
        yield from _item(node.node, item, want)


def _item(name: str, item: Item, want: Expectation) -> Iterator[Finding]:
    now = item.after or item.before or "nothing"
    if item.status is ItemStatus.FAILED:
        yield fail(
            FailureClass.DEPENDENCY if item.name.startswith(("disk ", "package ")) else FailureClass.RUNTIME,
            f"{item.name} is {now}: {item.why}",
            item.want,
            f"repair it on {name}, and play again",
        )
    elif item.status is ItemStatus.DIFFERS:
        yield fail(
            FailureClass.COMPARISON, f"{item.name} is {now}", item.want, f"find what changes it back on {name}, and play again"
        )
    elif item.status is ItemStatus.UNAVAILABLE and not any(fnmatchcase(item.name, pattern) for pattern in want.tolerate):
        yield unknown(FailureClass.DEPENDENCY, f"{item.name}: {item.why}", item.want, "make it available, or tolerate it by name")


def _odd_ones(observed: tuple[NodeObservation, ...], want: Expectation) -> dict[str, list[Finding]]:
    """Nodes that differ from most where they must be alike, and nodes that are alike where they must differ."""
    findings: dict[str, list[Finding]] = defaultdict(list)
    for fact in want.same:
        common, count, odd = _odd(fact, observed)
        for name, value in odd:
            findings[name].append(
                fail(
                    FailureClass.COMPARISON,
                    f"{fact} is {value}",
                    f"{common} as on {count} of {len(observed)} nodes",
                    "put this node into a group of its own, or reinstall it",
                )
            )
    for name, twin in _twins(observed):
        findings[name].append(
            fail(
                FailureClass.INPUT,
                f"same machine id as {twin}",
                "a machine id of its own",
                "empty /etc/machine-id in the image that both were cloned from, and on the nodes, and reboot them",
            )
        )
    return findings


def _twins(observed: tuple[NodeObservation, ...]) -> Iterator[tuple[str, str]]:
    """Pairs of a node and another one with the same machine id."""
    by_machine: dict[str, list[str]] = defaultdict(list)
    for node in observed:
        if node.facts is not None and node.facts.machine_id:
            by_machine[node.facts.machine_id].append(node.node)
    for names in by_machine.values():
        for name in names if len(names) > 1 else ():
            yield name, names[1] if name == names[0] else names[0]


def _odd(fact: str, observed: tuple[NodeObservation, ...]) -> tuple[str, int, list[tuple[str, str]]]:
    """The most common value of a fact, on how many nodes it is, and the nodes with another."""
    values = [(node.node, str(getattr(node.facts, fact))) for node in observed if node.facts is not None]
    if not values:
        return "", 0, []
    common, count = Counter(value for _, value in values).most_common(1)[0]
    return common, count, [(name, value) for name, value in values if value != common]


def _notes(observed: tuple[NodeObservation, ...], want: Expectation) -> Iterator[str]:
    for fact in NOTED:
        common, _, odd = _odd(fact, observed)
        if odd:
            rows = ", ".join(f"{name} {value}" for name, value in odd[:5])
            yield f"{fact} is {common} on most nodes, but not on {len(odd)}: {rows}"
    waiting = [node.node for node in observed if node.facts is not None and node.facts.reboot_required]
    if waiting:
        yield f"{len(waiting)} nodes ask for a reboot, first {waiting[0]}"
    strangers = sorted({node.node for node in observed} - set(want.nodes))
    if strangers:
        yield f"records of {len(strangers)} nodes that nobody expects, first {strangers[0]}"
