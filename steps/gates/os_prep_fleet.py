"""What shows only beside the other machines: one that differs from most of its kind, and two that are clones of one."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from steps.contract.stages.os_prep import Facts
from steps.contract.verdict import FailureClass
from steps.gates.finding import Finding, fail, unknown

COMPARED = (
    *("os_id", "os_version", "kernel", "architecture", "product", "bios", "cpu_model", "cpus", "memory_gib", "gpus"),
    *("nvidia_driver", "nic_firmware", "selinux", "apparmor"),
)
"""Facts that are usually equal on machines of one kind; odd ones out are worth a remark."""
NAMED = 5
"""Odd ones that a remark names."""


def findings(facts: Mapping[str, Facts], same: Sequence[str]) -> dict[str, list[Finding]]:
    """By node: facts of `same` that differ from most nodes', and machine ids that another node has too."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for name, fact in ((name, fact) for name, one in facts.items() for fact in ("machine_id", *same) if not getattr(one, fact)):
        said = f"no {fact.replace('_', ' ')}, so that it cannot be compared"
        found[name].append(unknown(FailureClass.RUNTIME, said, "one", "see what node_profile reads on the node"))
    for fact in same:
        common, count, others = odd(fact, facts)
        for name, value in others:
            found[name].append(
                fail(
                    FailureClass.COMPARISON,
                    f"{fact} is {value}",
                    f"{common} as on {count} of {len(facts)} nodes",
                    "put this node into a group of its own, or reinstall it",
                )
            )
    for name, twin in _twins(facts):
        found[name].append(
            fail(
                FailureClass.INPUT,
                f"same machine id as {twin}",
                "a machine id of its own",
                "empty /etc/machine-id in the image that both were cloned from, and on the nodes, and reboot them",
            )
        )
    return found


def odd(fact: str, facts: Mapping[str, Facts]) -> tuple[str, int, list[tuple[str, str]]]:
    """The most common value of a fact, on how many nodes it is, and the nodes with another."""
    values = [(name, _shown(one, fact)) for name, one in facts.items()]
    if not values:
        return "", 0, []
    common, count = Counter(value for _, value in values).most_common(1)[0]
    return common, count, [(name, value) for name, value in values if value != common]


def remarks(facts: Mapping[str, Facts]) -> Iterator[str]:
    """One sentence for each fact in which machines differ from most of their kind: those with GPUs, and the others."""
    for what, kind in (("GPU machines", True), ("machines without GPUs", False)):
        alike = {name: one for name, one in facts.items() if bool(one.gpu_machine or one.gpus) is kind}
        for fact in COMPARED:
            common, count, others = odd(fact, alike)
            if others:
                rows = ", ".join(f"{name} {value or 'nothing'}" for name, value in others[:NAMED])
                more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
                said = fact.replace("_", " ")
                yield f"{said} is {common or 'nothing'} on {count} of {len(alike)} {what}, but not on {rows}{more}"


def _shown(one: Facts, fact: str) -> str:
    """A fact as people compare it: memory in whole GiB, since firmware keeps some MiB of it; lists counted."""
    if fact == "memory_gib":
        return str(round(one.memory_mib / 1024))
    value = getattr(one, fact)
    if isinstance(value, tuple):
        return ", ".join(f"{count} x {what}" for what, count in sorted(Counter(value).items()))
    return str(value)


def _twins(facts: Mapping[str, Facts]) -> Iterator[tuple[str, str]]:
    """Pairs of a node and another one with the same machine id."""
    by_machine: dict[str, list[str]] = defaultdict(list)
    for name, one in facts.items():
        if one.machine_id:
            by_machine[one.machine_id].append(name)
    for names in by_machine.values():
        for name in names if len(names) > 1 else ():
            yield name, names[1] if name == names[0] else names[0]
