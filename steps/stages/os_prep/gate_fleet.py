"""Compares machines with each other: it finds those that differ from most of their kind, and clones with one machine id.

Kernel, NIC firmware and the hosts' own GPU drivers must be equal unless the spec lets them differ; other facts get a remark.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from steps.contract.measurements import Versions, versions
from steps.contract.node_tests.fleet_facts import FleetFact
from steps.contract.verdict import FailureClass
from steps.stages.os_prep.contract import Facts, NodesExpectation
from steps.stages.shared import gate_alike
from steps.stages.shared.finding import Finding, fail, unknown

COMPARED = (
    *("os_id", "os_version", "architecture", "product", "bios", "cpu_model", "cpus", "memory_gib", "gpus"),
    *("nic_firmware", "selinux", "apparmor"),
)
"""Facts that are usually equal on machines of one kind; a machine that differs gets a remark. Of NICs this is the number too."""
NAMED = 5
"""Largest number of differing nodes that a remark names."""


KINDS = (("GPU machines", True), ("machines without GPUs", False))
"""Kinds of machines that are compared with each other, and whether they have GPUs."""


def of_kind(facts: Mapping[str, Facts], has_gpus: bool) -> dict[str, Facts]:
    """Return the facts of the machines that have GPUs, or of those that have none."""
    return {name: machine for name, machine in facts.items() if bool(machine.gpu_machine or machine.gpus) is has_gpus}


def compare(facts: Mapping[str, Facts], want: NodesExpectation) -> list[gate_alike.Comparison]:
    """Compare kernels, NIC firmware and the hosts' own drivers of machines of one kind, unless the plan lets them differ.

    A driver of the GPU Operator's is compared by stage gpu_operator, because this stage may run before it is loaded.
    """
    comparisons: list[gate_alike.Comparison] = []
    for _, has_gpus in KINDS:
        alike = of_kind(facts, has_gpus)
        shown = {FleetFact.KERNEL: {name: row.kernel for name, row in alike.items()}}
        if want.driver_on_host and has_gpus:
            shown[FleetFact.DRIVER] = {name: row.nvidia_driver for name, row in alike.items()}
            shown[FleetFact.DRIVER_FLAVOUR] = {name: row.driver_flavour for name, row in alike.items()}
        comparisons += [gate_alike.compare(fact, _present(values), want.may_differ) for fact, values in shown.items()]
        comparisons += _firmware_compared(alike, want)
    return comparisons


def _firmware_compared(alike: Mapping[str, Facts], want: NodesExpectation) -> Iterator[gate_alike.Comparison]:
    """Yield the comparison of each kind of board, and findings on machines that show no RDMA device while most others do."""
    by_machine = {name: _firmware(row) for name, row in alike.items()}
    for board in sorted({board for boards in by_machine.values() for board in boards}):
        versions = {name: f"{board} {boards[board]}" for name, boards in by_machine.items() if board in boards}
        yield gate_alike.compare(FleetFact.NIC_FIRMWARE, versions, want.may_differ)
    silent = [name for name, boards in by_machine.items() if not boards]
    if want.nics_on_host and FleetFact.NIC_FIRMWARE not in want.may_differ and len(silent) * 2 < len(alike):
        step = "lspci -d 15b3: on the node, and whether the driver of its NICs is loaded"
        nothing = gate_alike.missing(FleetFact.NIC_FIRMWARE, "RDMA device, while most machines of its kind have one", step)
        yield gate_alike.Comparison(dict.fromkeys(silent, nothing))


def _present(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values that machines show; checks of single machines tell what is missing."""
    return {name: value for name, value in values.items() if value}


def _firmware(machine: Facts) -> dict[str, str]:
    """Return board → firmware of its RDMA devices; several versions of one board on a machine are listed."""
    by_board: dict[str, set[str]] = {}
    for text in machine.nic_firmware:
        board, _, version = text.rpartition(" ")
        by_board.setdefault(board, set()).add(version)
    return {board: " and ".join(sorted(versions)) for board, versions in by_board.items()}


def in_use(facts: Mapping[str, Facts]) -> Versions:
    """Return what reports show of each machine: its product, operating system, kernel, BIOS and firmware of NICs."""
    return versions(
        {
            "machine": {name: row.product for name, row in facts.items()},
            "operating system": {name: f"{row.os_id} {row.os_version}" for name, row in facts.items()},
            "kernel": {name: row.kernel for name, row in facts.items()},
            "BIOS": {name: row.bios for name, row in facts.items()},
            "NIC firmware": {name: _shown(row, "nic_firmware") for name, row in facts.items()},
        }
    )


def findings(facts: Mapping[str, Facts], want: NodesExpectation) -> dict[str, list[Finding]]:
    """Return findings by node: facts that differ from most nodes', and machine ids that two nodes share."""
    same = want.same
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
    for comparison in compare(facts, want):
        for name, odd_one in comparison.findings.items():
            by_node[name].append(odd_one)
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


def remarks(facts: Mapping[str, Facts], want: NodesExpectation) -> Iterator[str]:
    """Yield one sentence for each fact in which machines differ from most of their kind; GPU machines are compared apart."""
    yield from (comparison.note for comparison in compare(facts, want) if comparison.note)
    for what, kind in KINDS:
        alike = of_kind(facts, kind)
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
