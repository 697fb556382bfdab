"""Judges what tells Kubernetes about Slurm: the log of SUNK's syncer, and GCM's conditions of nodes.

GCM checks GPUs and writes one condition a check; True is a problem. See `steps/docs/facts/slurm.md`, SUNK.
"""

from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.slurm.contract import ControlExpectation, ControlObservation, NodesExpectation, NodesObservation

_SOFTWARE = ("GcmProcZombieProblem",)
"""Conditions whose cause is no hardware."""


def syncer(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    """Return the finding on SUNK's syncer: it runs, its log can be read, and it met no error in the last minute; None if all hold.

    What it copies is proven later: states by gate slurm/drain, numbers by the metrics in gate slurm/scheduling.
    """
    if not want.syncer:
        return None
    if not seen.syncers:
        step = "look at Deployment slurm-syncer, without which Kubernetes shows no state of any Slurm node"
        return unknown(FailureClass.HEALTH, "no pod of SUNK's syncer is ready", "one", step)
    dark = next((entry for entry in seen.syncers if not entry.is_known), None)
    if dark is not None:
        step = "see that the kubelet of its node answers: SUNK's lock may have evicted the node's network"
        return unknown(FailureClass.HEALTH, f"the log of {dark.pod} cannot be read", "a log", step)
    wrong = next((entry for entry in seen.syncers if entry.errors), None)
    if wrong is None:
        return None
    state = f"SUNK's syncer {wrong.pod} is ready, and its log of the last minute has: {wrong.errors[-1]}"
    step = "read its log: it needs slurmrestd, a valid token, and rights on pods and nodes"
    return unknown(FailureClass.HEALTH, state, "no error", step)


def types(seen: NodesObservation) -> list[str]:
    """Return the types of GCM's conditions that any node has; empty without GCM."""
    return sorted({entry.type for entry in seen.monitored})


def monitored(node: str, seen: NodesObservation, want: NodesExpectation) -> Finding | None:
    """Return the finding on a node with a problem, or with GPUs and without a condition that other nodes have; None without one.

    GCM's agent may leave out nodes without GPUs, so there only a condition that is True counts.
    """
    own = {entry.type: entry for entry in seen.monitored if entry.node == node}
    problem = next((entry for name, entry in sorted(own.items()) if entry.status == "True"), None)
    if problem is not None:
        failure_class = FailureClass.HEALTH if problem.type in _SOFTWARE else FailureClass.HARDWARE
        state = f"GCM reports {problem.type}" + (f": {problem.message}" if problem.message else "")
        step = "drain the node in Slurm, and see nvidia-smi -q and the kernel's log there"
        return fail(failure_class, state, "False", step)
    for name in types(seen) if _has_gpus(node, seen, want) else ():
        entry = own.get(name)
        if entry is None or entry.status != "False":
            state = f"GCM's condition {name} is {entry.status or 'empty'}" if entry else f"GCM writes no condition {name} here"
            step = "read the log of GCM's agent on the node"
            return unknown(FailureClass.HEALTH, state, "False, as on other nodes", step)
    return None


def _has_gpus(node: str, seen: NodesObservation, want: NodesExpectation) -> bool:
    """Return True unless the plan has no GPUs of a node for Slurm, and Kubernetes is known to have none there."""
    planned = want.installed.get(node, want.others.get(node, want.gpus))
    return planned > 0 or seen.allocatable.get(node, 1) > 0
