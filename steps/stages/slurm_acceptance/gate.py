"""Gates of slurm_acceptance: Slurm's daemons and nodes are sound, its jobs work on every node, and every node reaches the floor."""

from collections.abc import Iterable, Iterator
from typing import Final

from steps.contract.host_ranges import fold
from steps.contract.verdict import FailureClass, Verdict, by_cause, of_nodes
from steps.stages.shared import gate_slurm_states
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.slurm_acceptance import gate_bandwidth, gate_slurm_jobs
from steps.stages.slurm_acceptance.contract import (
    BandwidthExpectation,
    BandwidthObservation,
    ControlExpectation,
    ControlObservation,
    JobsExpectation,
    JobsObservation,
    ListedNode,
)

CONTROL, JOBS, BANDWIDTH = "slurm_acceptance/control", "slurm_acceptance/jobs", "slurm_acceptance/bandwidth"
_ASLEEP: Final = frozenset({"powered_down", "powering_up", "powering_down", "power_down"})
_INPUT, _HEALTH, _DEPENDENCY = FailureClass.INPUT, FailureClass.HEALTH, FailureClass.DEPENDENCY
_ONE_FILE: Final = "distribute one slurm.conf to all nodes (or configless), then `scontrol reconfigure`"
_NO_TREE: Final = ("topology/none", "topology/default", "topology/flat")


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check controllers, configuration, accounting and topology, and that every wanted node is usable with the wanted GRES."""
    nodes = {node.name: node for node in seen.nodes}
    rows = [node_verdict(name, _node(nodes.get(name), seen, want), "usable") for name in want.nodes]
    if finding := next(_cluster(seen, want), None):
        return finding.verdict(CONTROL)
    settings = seen.settings
    notes = [f"Slurm {settings.version}, cluster {settings.cluster}"]
    if _is_flat(seen):
        notes.append(f"{settings.topology}: no topology to compare")
    verdict = of_nodes(CONTROL, rows, what="usable, with their GRES", notes=notes)
    if not verdict.is_pass:
        return verdict
    return next((finding.verdict(CONTROL) for finding in _late(seen, want)), verdict)


def jobs(seen: JobsObservation, want: JobsExpectation) -> Verdict:
    """Check the jobs: an answer of every node, the batch job and its record, scripts, shared folder, drain, and a clean queue."""
    rows = [node_verdict(name, gate_slurm_jobs.node_finding(name, seen, want), "ran the job") for name in want.nodes]
    verdict = of_nodes(
        JOBS, rows, what="ran a job, with the configuration of the controller", notes=gate_slurm_jobs.notes(seen, want)
    )
    if not verdict.is_pass:
        return verdict
    return next((finding.verdict(JOBS) for finding in gate_slurm_jobs.findings(seen, want)), verdict)


def bandwidth(seen: BandwidthObservation, want: BandwidthExpectation) -> Verdict:
    """Check that the localisation named no part and cleared every node, and that every node's median reaches the floor."""
    return gate_bandwidth.judged(BANDWIDTH, seen, want)


def _cluster(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    """Yield the problems before which nodes mean nothing."""
    down = [answer for answer in seen.controllers if not answer.up]
    if down and not any(answer.up for answer in seen.controllers):
        step = "start slurmctld there and read its log: `systemctl status slurmctld`"
        yield fail(_DEPENDENCY, f"slurmctld on {_hosts(down)} is down", "a controller that answers `scontrol ping`", step)
    yield from _of_tools(seen)
    if not seen.controllers:
        yield unknown(_DEPENDENCY, "`scontrol ping` names no controller", "the primary controller", "run it on this login node")
    if down:
        step = "start slurmctld on the backup, or take it out of slurm.conf"
        yield fail(_DEPENDENCY, f"slurmctld ({down[0].role}) on {_hosts(down)} is down", "every controller up", step)
    if not want.nodes:
        yield unknown(_INPUT, "no node is wanted", "at least two nodes", "name them with --nodes, or a partition that has nodes")
    if not seen.nodes:
        yield unknown(_DEPENDENCY, "`scontrol show node` lists no node", "the nodes of the cluster", "run it on this login node")


def _of_tools(seen: ControlObservation) -> Iterator[Finding]:
    """Yield what the tools report as an error, causes first."""
    for error in by_cause(seen.errors)[:1]:
        step = error.next_step or "run the same command on this login node, and read the daemon's log"
        yield fail(error.failure_class, f"{error.cause}: {error.line}"[:400], "answers of all of Slurm's tools", step)


def _late(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    """Yield the problems of a cluster whose nodes are all usable."""
    settings = seen.settings
    yield from _partition(seen, want)
    if not settings.cluster or not settings.version:
        yield unknown(_DEPENDENCY, "`scontrol show config` names no cluster or version", "both", "run it on this login node")
    if settings.matches is None:
        text = "the tools do not say if slurm.conf is slurmctld's"
        yield unknown(_INPUT, text, "HASH_VAL in `scontrol show config`", _ONE_FILE)
    elif not settings.matches:
        yield fail(_INPUT, "slurm.conf of this login node differs from slurmctld's", "the same file", _ONE_FILE)
    yield from _topology(seen)
    yield from _accounting(seen)


def _partition(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    """Yield that the partition of the jobs takes none; without a name they go to Slurm's default one."""
    state = seen.available.get(want.partition, "")
    if not state and not want.partition:
        yield fail(_INPUT, "Slurm has no default partition", "a partition for the jobs", "name one with --partition")
    elif state != "UP":
        name = want.partition or "(Slurm's default)"
        step = f"scontrol update PartitionName={want.partition or 'NAME'} State=UP, once it may take jobs"
        yield fail(_HEALTH, f"partition {name} is {state or 'unknown'}", "partition UP", step)


def _is_flat(seen: ControlObservation) -> bool:
    # with topology.yaml slurmctld may use a topology whatever TopologyPlugin says
    return seen.settings.topology in _NO_TREE and not seen.topology


def _topology(seen: ControlObservation) -> Iterator[Finding]:
    plugin, file = seen.settings.topology, seen.topology_file
    if not plugin:
        yield unknown(_INPUT, "the topology plugin is unknown", "TopologyPlugin in `scontrol show config`", "run it here")
    if not plugin or _is_flat(seen):
        return
    if not file:
        step = "run on a node that has topology.yaml or topology.conf"
        yield unknown(_INPUT, "no topology can be read here", "topology.yaml or topology.conf beside slurm.conf", step)
        return
    kind = "block" if plugin == "topology/block" else "switch"
    for name in sorted({*file, *seen.topology}):
        here, there = set(file.get(name, ())), set(seen.topology.get(name, ()))
        if here != there:
            seen_text = f"{kind} {name} has {fold(there) or 'no node'} in slurmctld, {fold(here) or 'no node'} in the file here"
            yield fail(_INPUT, seen_text, "one topology", "distribute the file with the topology and restart slurmctld")


def _accounting(seen: ControlObservation) -> Iterator[Finding]:
    settings = seen.settings
    if not settings.accounting.endswith("slurmdbd"):
        step = "configure AccountingStorageType=accounting_storage/slurmdbd"
        yield fail(_INPUT, f"accounting is {settings.accounting or 'unknown'}", "accounting by slurmdbd", step)
    elif settings.cluster not in seen.clusters:
        step = f"sacctmgr add cluster {settings.cluster}, and see that slurmctld registers"
        yield fail(_DEPENDENCY, f"the accounting daemon does not know cluster {settings.cluster}", "the cluster in sacctmgr", step)


def _node(node: ListedNode | None, seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    if node is None:
        step = "name nodes of this cluster with --nodes, or add it to slurm.conf"
        return fail(_INPUT, "Slurm knows no such node", "a node of the cluster", step)
    if not node.states:
        return unknown(_HEALTH, "its state is unknown", "idle or allocated", "scontrol show node")
    if gate_slurm_states.state(node.states) is not None:
        return _unusable(node, seen)
    if not node.version or not node.memory:
        return unknown(_HEALTH, "neither its version nor its memory is known", "both", "scontrol show node")
    if node.memory == 1:
        step = "write into RealMemory what `slurmd -C` prints there"
        return fail(_INPUT, "RealMemory is 1 MB, which is Slurm's default", "the node's memory", step)
    return _gres(node, seen.nodes, want)


def _unusable(node: ListedNode, seen: ControlObservation) -> Finding:
    """Return the finding about a node that takes no jobs, by Slurm's own reason; if that is silence, by the controller's log."""
    state = "+".join(node.states)
    if gate_slurm_states.state(tuple(word for word in node.states if word not in _ASLEEP)) is None:
        step = f"scontrol update NodeName={node.name} State=POWER_UP, and wait until it is idle"
        return unknown(_HEALTH, f"{state}: it sleeps, and nothing proves that it wakes", "idle or allocated", step)
    cause = seen.causes.get(node.name)
    if cause is not None and (not node.reason or _word(node.reason) == "not responding"):
        step = cause.next_step or "correct it on the node, and restart slurmd there"
        return fail(cause.failure_class, f"{state}: {cause.cause}", "idle or allocated", step)
    kind, step = _REASONS.get(_word(node.reason), (_HEALTH, f"after the repair: scontrol update NodeName={node.name} State=RESUME"))
    reason = f": {node.reason}" if node.reason else ": Slurm gives no reason"
    if not node.reason and "not_responding" in node.states:
        kind, step = _REASONS["not responding"]
        reason = ": slurmd does not answer"
    return fail(kind, f"{state}{reason}", "idle or allocated", step)


_REASONS: Final = {
    "not responding": (
        _HEALTH,
        "see that slurmd runs there, that its clock and munge.key are those of the controller, and that port 6818 is open",
    ),
    "low realmemory": (_INPUT, "write into RealMemory what `slurmd -C` prints there, or replace the missing memory"),
    "gres/": (FailureClass.HARDWARE, "compare gres.conf and the devices of the node: `slurmd -G` there, nvidia-smi -L"),
}
"""Beginning of a reason → failure class and next step."""


def _word(reason: str) -> str:
    text = reason.lower()
    return next((beginning for beginning in _REASONS if text.startswith(beginning)), "")


def _gres(node: ListedNode, nodes: Iterable[ListedNode], want: ControlExpectation) -> Finding | None:
    others = [other for other in nodes if other.name in want.nodes]
    expected = want.gpus if want.gpus >= 0 else max((other.gpus for other in others), default=0)
    types = sorted({other.gpu_type for other in others})
    gpu_type = want.gpu_type or types[-1]
    if node.gpus == expected and node.gpu_type == gpu_type:
        return None
    seen_text = f"Gres has {node.gpus} GPUs of type {node.gpu_type or 'none'}"
    if want.gpus < 0:
        step = "say what is right with --gpus-per-node, or narrow --nodes"
        return unknown(_INPUT, seen_text, f"{expected} of type {gpu_type or 'none'} as on other nodes", step)
    step = "correct Gres= in slurm.conf and gres.conf, and restart slurmd"
    return fail(_INPUT, seen_text, f"{expected} of type {gpu_type or 'none'}", step)


def _hosts(answers: Iterable[object]) -> str:
    return fold(str(getattr(answer, "host", "")) for answer in answers) or "an unknown host"
