"""Judges what the monitors around Slurm say: GCM's conditions of nodes.

GCM checks GPUs and writes one condition a check; True is a problem. See `steps/docs/facts/slurm.md`, SUNK.
"""

from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.slurm.contract import NodesObservation

_SOFTWARE = ("GcmProcZombieProblem",)
"""Conditions whose cause is no hardware."""


def types(seen: NodesObservation) -> list[str]:
    """Return the types of GCM's conditions that any node has; empty without GCM."""
    return sorted({entry.type for entry in seen.monitored})


def monitored(node: str, seen: NodesObservation) -> Finding | None:
    """Return the finding on a node with a GPU problem, or without a condition that other nodes have; None if all are False."""
    own = {entry.type: entry for entry in seen.monitored if entry.node == node}
    for name in types(seen):
        entry = own.get(name)
        if entry is None or entry.status not in ("True", "False"):
            state = f"GCM's condition {name} is {entry.status or 'empty'}" if entry else f"GCM writes no condition {name} here"
            step = "read the log of GCM's agent on the node"
            return unknown(FailureClass.HEALTH, state, "False, as on other nodes", step)
        if entry.status == "True":
            failure_class = FailureClass.HEALTH if name in _SOFTWARE else FailureClass.HARDWARE
            state = f"GCM reports {name}" + (f": {entry.message}" if entry.message else "")
            step = "drain the node in Slurm, and see nvidia-smi -q and the kernel's log there"
            return fail(failure_class, state, "False", step)
    return None
