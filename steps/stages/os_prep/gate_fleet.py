"""Compares machines with each other: it finds those that differ from most of their kind, and clones with one machine id."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from steps.contract.verdict import FailureClass
from steps.stages.os_prep.contract import Facts
from steps.stages.shared.finding import Finding, fail, unknown

COMPARED = (
    *("os_id", "os_version", "kernel", "architecture", "product", "bios", "cpu_model", "cpus", "memory_gib", "gpus"),
    *("nvidia_driver", "nic_firmware", "selinux", "apparmor"),
)
"""Facts that are usually equal on machines of one kind; a machine that differs gets a remark."""
NAMED = 5
"""Largest number of differing nodes that a remark names."""


def findings(facts: Mapping[str, Facts], same: Sequence[str]) -> dict[str, list[Finding]]:
    """Return findings by node: facts of `same` that differ from most nodes', and machine ids that two nodes share."""
    by_node: dict[str, list[Finding]] = defaultdict(list)
    for name, machine in facts.items():
        for fact in (fact for fact in ("machine_id", *same) if not getattr(machine, fact)):
            problem = f"no {fact.replace('_', ' ')}, so that it cannot be compared"
            by_node[name].append(unknown(FailureClass.RUNTIME, problem, "one", "see what node_profile reads on the node"))
    for fact in same:
        common, count, others = odd(fact, facts)
        expected = f"{common} as on {count} of {len(facts)} nodes"
        step = "put this node into a group of its own, or reinstall it"
        for name, value in others:
            by_node[name].append(fail(FailureClass.COMPARISON, f"{fact} is {value}", expected, step))
    step = "empty /etc/machine-id in the image that both were cloned from, and on the nodes, and reboot them"
    for name, twin in _twins(facts):
        by_node[name].append(fail(FailureClass.INPUT, f"same machine id as {twin}", "a machine id of its own", step))
    return by_node


def odd(fact: str, facts: Mapping[str, Facts]) -> tuple[str, int, list[tuple[str, str]]]:
    """Return the most common value of a fact, the number of nodes with it, and the nodes with another value."""
    values = [(name, _shown(machine, fact)) for name, machine in facts.items()]
    if not values:
        return "", 0, []
    common, count = Counter(value for _, value in values).most_common(1)[0]
    return common, count, [(name, value) for name, value in values if value != common]


def remarks(facts: Mapping[str, Facts]) -> Iterator[str]:
    """Yield one sentence for each fact in which machines differ from most of their kind; GPU machines are compared apart."""
    for what, kind in (("GPU machines", True), ("machines without GPUs", False)):
        alike = {name: machine for name, machine in facts.items() if bool(machine.gpu_machine or machine.gpus) is kind}
        for fact in COMPARED:
            common, count, others = odd(fact, alike)
            if others:
                rows = ", ".join(f"{name} {value or 'nothing'}" for name, value in others[:NAMED])
                more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
                label = fact.replace("_", " ")
                yield f"{label} is {common or 'nothing'} on {count} of {len(alike)} {what}, but not on {rows}{more}"


def _shown(machine: Facts, fact: str) -> str:
    """Return a fact as people compare it: memory in whole GiB, because firmware keeps some MiB; lists as counts."""
    if fact == "memory_gib":
        return str(round(machine.memory_mib / 1024))
    value = getattr(machine, fact)
    if isinstance(value, tuple):
        return ", ".join(f"{count} x {what}" for what, count in sorted(Counter(value).items()))
    return str(value)


def _twins(facts: Mapping[str, Facts]) -> Iterator[tuple[str, str]]:
    """Yield each node that shares its machine id, with another node that has the same id."""
    by_machine: dict[str, list[str]] = defaultdict(list)
    for name, machine in facts.items():
        if machine.machine_id:
            by_machine[machine.machine_id].append(name)
    for names in by_machine.values():
        for name in names if len(names) > 1 else ():
            yield name, names[1] if name == names[0] else names[0]
