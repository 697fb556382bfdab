"""Gates of os_prep: each machine has the host settings of the OS profile, and machines are alike where they must be."""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import filterfalse

import msgspec

from steps.contract.host_play import FailureKind, HostStatus
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes
from steps.stages.os_prep import gate_facts, gate_fleet, gate_gpus
from steps.stages.os_prep.contract import (
    Facts,
    FleetObservation,
    Item,
    ItemStatus,
    NodeObservation,
    NodesExpectation,
    NodesObservation,
)
from steps.stages.shared import gate_plays
from steps.stages.shared.finding import Finding, fail, unknown

GATE, FLEET = "os_prep/nodes", "os_prep/fleet"
LOCKED = "the kernel is locked down"
"""Text with which node_profile reports that Secure Boot prevents a change: the site must decide, the hardware is fine."""
OLD_CGROUP = (
    "a kubelet of Kubernetes 1.35 or later does not start there: boot with systemd.unified_cgroup_hierarchy=1 on the kernel's "
    'command line, or write fail-cgroupv1: "false" in rke2.kubelet_args'
)
POLICY = ("package rke2-selinux", "repository of rke2-selinux")
"""Host settings that install RKE2's SELinux policy, which no distribution ships."""
POLICY_MODULE = "SELinux module "
"""First words of host settings about a policy module that a package should have loaded."""
BY_NAME = {
    "kernel headers": "boot a kernel whose headers a repository has, add them to the mirror, or use precompiled drivers; if only "
    "{node} lacks them, and not the driver container (driver.repoConfig), tolerate `kernel headers` in os.tolerate",
    "other work on the machine": "wait for its end on {node} (cloud-init status --wait; systemctl stop apt-daily-upgrade.timer)",
    "DNS of pods": "write name servers of the site in os.dns, or the path of a resolv.conf with such servers as resolv-conf in "
    "rke2.kubelet_args",
    "containerd templates": "move it away on {node}, or let it extend RKE2's template `base` (https://docs.rke2.io/advanced)",
    "module loading": "take kernel.modules_disabled out of /etc/sysctl.d on {node}, and reboot it",
    "cgroup controller *": "take cgroup_disable= off the kernel's command line of {node}, and reboot it",
    "processor": "give {node} the processor type `host` in its hypervisor, or leave it out",
    "gpu *": "read dmesg (pci, vfio) on {node}; tolerate a GPU by name that virtual machines are to have",
    "RDMA namespaces": "rdma system set netns shared on {node} (at each boot: ib_core netns_mode=1), or tolerate it by name",
    "images *": "mount a local disk at /var/lib/rancher on {node}",
    "exec *": "take noexec out of /etc/fstab on {node}, and remount it (mount -o remount,exec)",
    "link type of *": "mlxconfig -d DEVICE set LINK_TYPE_P1=1 (InfiniBand) or 2 (Ethernet) on {node}, and power it off and on",
    "link types": "load the driver of the NICs on {node}, and compare fabric.device_ids and fabric.rails with ibv_devices",
}
"""Host settings that the play does not change (name patterns) → the next step; `{node}` is the node's name."""
PROVIDED = (
    "disk ",
    "mount ",
    "exec ",
    "images ",
    "package ",
    "repository ",
    "link",
    "route ",
    "default route",
    "DNS",
    POLICY_MODULE,
)
"""First words of host settings that depend on what the site provides."""
OF_HARDWARE = ("PCIe ACS", "gpu ", "processor")
"""First words of host settings about the hardware and its firmware."""
OF_POLICY = ("rancher-rke2", "rpm.rancher.io")
"""Texts by which an error of dnf shows that the repository of RKE2's SELinux policy does not answer."""
IN_PLACE = {"package manager": ("package *",), "services": ("service *", "time service")}
"""Host setting that stands for a tool of the machine → patterns of the settings that cannot be checked if the tool is broken."""
TEMPLATES = "containerd templates"
"""Host setting about templates that replace RKE2's configuration of containerd: only the site knows whether they are meant."""
GOOD = (ItemStatus.OK, ItemStatus.CHANGED)
WILDCARD = re.compile(r"[*?\[]")
TOLD = {
    "hosts over a boot": "whose /etc/hosts does not last",
    "firewall": "with a firewall that bringup does not change",
    "package *": "with a package repository that does not serve",
    "DNS of pods": "without a name server",
    "containerd templates": "with a containerd template",
    "other work on the machine": "with other work at first",
    "interfaces of pods": "with fabric interfaces in pods' networks",
}
"""Host settings that can pass with a remark → words for the nodes that have the remark."""


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Judge the host settings and facts of every expected node; a node without a record has not passed."""
    by_name = {node.node: node for node in seen.nodes}
    rows = [_verdict(name, _findings(name, by_name.get(name), want), "prepared") for name in want.nodes]
    verdict = of_nodes(GATE, rows, what="prepared", notes=_notes(seen.nodes, want))
    return msgspec.structs.replace(
        verdict, versions=gate_fleet.in_use({node.node: node.facts for node in seen.nodes if node.facts})
    )


def fleet(seen: FleetObservation, want: NodesExpectation) -> Verdict:
    """Compare the machines of all shards: kernels, firmware and drivers are equal, and no two machines share a machine id."""
    facts = {node.node: node.facts for node in seen.nodes if node.facts is not None}
    odd = gate_fleet.findings(facts, want)
    rows = [_verdict(name, _compared(name, facts, odd), "compared with the others") for name in want.nodes]
    return of_nodes(FLEET, rows, what="alike where they must be, and no clones", notes=gate_fleet.remarks(facts, want))


def _compared(name: str, facts: Mapping[str, Facts], odd: Mapping[str, list[Finding]]) -> Iterator[Finding]:
    if name not in facts:
        yield unknown(FailureClass.RUNTIME, "no facts to compare", "the facts of this node", f"see gate {GATE} for {name}")
    yield from odd.get(name, [])


def _verdict(name: str, findings: Iterable[Finding], good: str) -> NodeVerdict:
    """Return the verdict on a node: its worst finding with the number of further findings, or a pass with the text `good`."""
    rows = sorted(findings, key=lambda finding: finding.status is not Status.FAIL)
    if not rows:
        return NodeVerdict(node=name, status=Status.PASS, seen=good)
    first, others = rows[0], len(rows) - 1
    more = f" (and {others} more: {'; '.join(row.seen for row in rows[1:4])})" if others else ""
    return msgspec.structs.replace(first, seen=first.seen + more).of_node(name)


def _findings(name: str, node: NodeObservation | None, want: NodesExpectation) -> Iterator[Finding]:
    if node is None:
        step = f"read the log of the play's shard that holds {name}"
        yield unknown(FailureClass.RUNTIME, "no record", "a record of this node", step)
        return
    yield from _play(node)
    if node.facts is None:
        if node.outcome is HostStatus.OK:
            seen = node.message or "no observation"
            yield unknown(FailureClass.RUNTIME, seen, "an observation of node_profile", f"play os_prep on {name} again")
        return
    yield from _items(node, want)
    yield from gate_gpus.findings(name, node.facts, want)
    yield from gate_facts.findings(node.facts, node.skew_seconds, want)


def _play(node: NodeObservation) -> Iterator[Finding]:
    """Yield the play's failure on this node, unless failed host settings explain it better."""
    problem = gate_plays.problem(node)
    if problem is None:
        return
    explained = node.kind is FailureKind.TASK_FAILED and any(item.status is ItemStatus.FAILED for item in node.items)
    if not explained:
        yield problem


def _items(node: NodeObservation, want: NodesExpectation) -> Iterator[Finding]:
    if not node.items:
        step = f"play os_prep on {node.node} again"
        yield unknown(FailureClass.RUNTIME, "an observation without items", "the items of the profile", step)
    odd = [item for item in node.items if item.status not in GOOD]
    yield from _lacking(node, odd, want)
    # the initramfs first: what others say of a reboot is no advice where the machine would not come back
    for item in sorted(odd, key=lambda item: not _is_unbootable(item)):
        yield from _item(node, item, want)


def _lacking(node: NodeObservation, odd: Iterable[Item], want: NodesExpectation) -> Iterator[Finding]:
    """Yield expected host settings that node_profile did not report; those for GPUs only if the machine is known to have GPUs.

    `odd` are the node's settings that are not as wanted.
    """
    is_gpu_machine = node.facts.gpu_machine if node.facts is not None else None
    if want.gpu_items and is_gpu_machine is None:
        seen = "nothing says whether it is a machine with GPUs"
        yield unknown(FailureClass.RUNTIME, seen, "the fact gpu_machine", f"play os_prep on {node.node} again")
    # a broken package manager hides all packages: one failure is reported, not one for each package
    broken = [pattern for item in odd if item.status is ItemStatus.FAILED for pattern in IN_PLACE.get(item.name, ())]
    names = {item.name for item in node.items}
    # most patterns are plain names: matching each of them with every item would cost a hundred times more
    wanted = (*want.items, *want.gpu_items) if is_gpu_machine else want.items
    for pattern in filterfalse(names.__contains__, wanted):
        if any(fnmatchcase(pattern, covered) for covered in broken):
            continue
        if not (WILDCARD.search(pattern) and any(fnmatchcase(name, pattern) for name in names)):
            step = "let the profile of the play hold what the gate expects"
            yield unknown(FailureClass.RUNTIME, f"no item '{pattern}'", f"an item '{pattern}'", step)


def _item(node: NodeObservation, item: Item, want: NodesExpectation) -> Iterator[Finding]:
    name = node.node
    state = item.after or item.before or "nothing"
    if _is_unbootable(item):
        step = f"do not reboot {name} before it is made: make room in /boot there (old kernels), and play again"
        yield fail(FailureClass.RUNTIME, f"its initramfs could not be made: {item.why}", item.want, step)
    elif item.status is ItemStatus.FAILED:
        yield fail(_class(item), f"{item.name} is {state}: {item.why}", item.want, f"{_advice(item, name)}, and play again")
    elif item.status is ItemStatus.DIFFERS and item.why:
        busy = node.facts is not None and node.facts.rke2_running
        step = f"drain and reboot {name}" if busy else f"reboot {name}, or allow it with os.reboot"
        yield fail(FailureClass.RUNTIME, f"{item.name} is {state}: {item.why}", item.want, f"{step}, and play again")
    elif item.status is ItemStatus.DIFFERS:
        step = f"find what changes it back on {name}, and play again"
        yield fail(FailureClass.COMPARISON, f"{item.name} is {state}", item.want, step)
    elif item.status is ItemStatus.UNAVAILABLE and not any(fnmatchcase(item.name, pattern) for pattern in want.tolerate):
        step = _by_name(item.name, name) or "make it available, or tolerate it by name"
        yield unknown(FailureClass.DEPENDENCY, f"{item.name}: {item.why}", item.want, step)


def _advice(item: Item, name: str) -> str:
    """Return the next step for a host setting that failed on node `name`."""
    if LOCKED in item.why:
        return f"decide which for {name}"
    if item.name in POLICY or any(word in item.why for word in OF_POLICY):
        return f"see that {name} reaches the repository of rke2-selinux, or name a mirror in os.rke2_repository (baseurl, gpgkey)"
    if item.name.startswith(POLICY_MODULE):
        return f"update container-selinux on {name}, then reinstall rke2-selinux"
    return _by_name(item.name, name) or f"repair it on {name}"


def _by_name(item: str, node: str) -> str:
    """Return the next step for a host setting that only people can change; empty if the play changes it."""
    return next((step.format(node=node) for pattern, step in BY_NAME.items() if fnmatchcase(item, pattern)), "")


def _is_unbootable(item: Item) -> bool:
    """Return True if a failed host setting may leave the machine without an initramfs, so that the play does not reboot it."""
    return item.name == "reload initramfs" and item.status is ItemStatus.FAILED


def _class(item: Item) -> FailureClass:
    """Return the failure class of a host setting: dependency (the site provides it), input (it decides), hardware, runtime."""
    if item.name.startswith(PROVIDED):
        return FailureClass.DEPENDENCY
    if LOCKED in item.why or item.name == TEMPLATES:
        return FailureClass.INPUT
    return FailureClass.HARDWARE if item.name.startswith(OF_HARDWARE) else FailureClass.RUNTIME


def _notes(observed: tuple[NodeObservation, ...], want: NodesExpectation) -> Iterator[str]:
    facts = {node.node: node.facts for node in observed if node.facts is not None}
    waiting = [name for name, fact in facts.items() if fact.reboot_required or fact.reboot_reasons]
    if waiting:
        why = "; ".join(facts[waiting[0]].reboot_reasons) or "a package asks for it"
        yield f"a reboot is asked for by {count(len(waiting), 'node')}, first {waiting[0]}: {why}"
    old = [name for name, fact in facts.items() if want.cgroup_v2 and fact.cgroup == "v1"]
    if old:
        yield f"{count(len(old), 'node')} with version 1 of control groups, first {old[0]}: {OLD_CGROUP}"
    as_wanted = [(node, item) for node in observed for item in node.items if item.why and item.status in GOOD]
    for pattern, what in TOLD.items():
        remarks = ((node.node, item.why) for node, item in as_wanted if fnmatchcase(item.name, pattern))
        if rows := list(dict(remarks).items()):
            yield f"{count(len(rows), 'node')} {what}, first {rows[0][0]}: {rows[0][1]}"
    strangers = sorted({node.node for node in observed} - set(want.nodes))
    if strangers:
        yield f"records of {count(len(strangers), 'node')} that nobody expects, first {strangers[0]}"
