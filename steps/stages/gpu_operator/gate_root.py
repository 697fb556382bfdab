"""Judges the operator's root resource: one root, one NFD, GPUs found, reconciled since its change, operands running."""

import re

from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive
from steps.stages.gpu_operator.contract import AdvertisingMode, ControlExpectation, ControlObservation, OperatorRoot, RootCondition
from steps.stages.shared import gate_charts
from steps.stages.shared.gate_operands import SETTLE_SECONDS, one_nfd, serves

SKEW = 1.0
_VACUOUS = {"NFDLabelsMissing": "no node has NFD's labels", "NoGPUNodes": "NFD found no NVIDIA GPU in any node"}
OPERAND_OF = {
    "state-driver": "nvidia-driver-daemonset",
    "state-container-toolkit": "nvidia-container-toolkit-daemonset",
    "state-operator-validation": "nvidia-operator-validator",
    "state-device-plugin": "nvidia-device-plugin-daemonset",
    "state-mps-control-daemon": "nvidia-device-plugin-mps-control-daemon",
    "state-dcgm": "nvidia-dcgm",
    "state-dcgm-exporter": "nvidia-dcgm-exporter",
    "gpu-feature-discovery": "gpu-feature-discovery",
    "state-mig-manager": "nvidia-mig-manager",
    "state-node-status-exporter": "nvidia-node-status-exporter",
}
"""State of the operator → DaemonSet behind it (NVIDIA/gpu-operator controllers/state_manager.go and assets/)."""


def problem(gate: str, seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    """Return the verdict on the first problem; None if there is none."""
    verdict = _one_root(gate, seen, want) or one_nfd(gate, seen.nfd)
    if verdict is not None:
        return verdict
    root = (seen.gpu_clusters if want.mode is AdvertisingMode.GPU_CLUSTER else seen.cluster_policies)[0]
    return (
        _vacuous(gate, root)
        or _discovered(gate, seen, want)
        or _reconciled(gate, root, seen, want)
        or _fresh(gate, root, seen)
        or _operands(gate, seen, want)
    )


def _one_root(gate: str, seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    # with both, ClusterPolicy reports ReconcileFailed: they cannot co-exist
    if seen.cluster_policies and seen.gpu_clusters:
        return failed(
            gate,
            FailureClass.APPLY,
            seen="both a ClusterPolicy and a GPUCluster exist",
            expected=f"only the one of mode {want.mode}",
            next_step="delete the other: they exclude each other, and there is no migration in place",
            final=True,
        )
    mine, other = seen.cluster_policies, seen.gpu_clusters
    if want.mode is AdvertisingMode.GPU_CLUSTER:
        mine, other = other, mine
    if not mine or len(mine) > 1:
        roots = f"{len(mine)} root resources" + (f", but a {other[0].name}" if other else "")
        return inconclusive(
            gate,
            seen=roots,
            expected="exactly one, made by the chart",
            next_step="see clusterPolicy.deployCR and gpuCluster.deployCR; of several only the oldest is reconciled",
            failure_class=FailureClass.APPLY,
        )
    return None


def _vacuous(gate: str, root: OperatorRoot) -> Verdict | None:
    ready = _condition(root, "Ready")
    if root.state == "ignored":
        return failed(
            gate,
            FailureClass.APPLY,
            seen=f"{root.name} is ignored: another root resource is older",
            expected="state ready",
            next_step="delete the other one",
            final=True,
        )
    if ready is not None and ready.status == "True" and ready.reason in _VACUOUS:
        return inconclusive(
            gate,
            seen=f"{root.name} says ready, but only because {_VACUOUS[ready.reason]} ({ready.reason})",
            expected="reason Reconciled",
            next_step="read the log of the NFD workers; lspci -d 10de: on a node",
            failure_class=FailureClass.DEPENDENCY,
        )
    return None


def _discovered(gate: str, seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    have = set(want.nodes) & set(seen.gpu_nodes)
    if want.nodes and len(have) >= want.least:
        return None
    missing = sorted(set(want.nodes) - have)
    return inconclusive(
        gate,
        seen=f"NFD found GPUs in {len(have)} of {len(want.nodes)} expected nodes; not in {', '.join(missing[:5]) or 'any'}",
        expected=f"at least {want.least}",
        next_step="see whether NFD's worker runs there, then lspci -d 10de:",
        failure_class=FailureClass.DEPENDENCY,
    )


def _reconciled(gate: str, root: OperatorRoot, seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    ready, error = _condition(root, "Ready"), _condition(root, "Error")
    if root.state == "ready" and ready is not None and ready.status == "True" and ready.reason == "Reconciled":
        return None
    # Ready=False carries no message: the operator writes the diagnosis to condition Error
    if error is None or error.status != "True":
        reason = f", Ready={ready.status} {ready.reason}" if ready else ", no conditions"
        return inconclusive(
            gate,
            seen=f"{root.name} is {root.state or 'without a state'}{reason}",
            expected="state ready with Ready=True, reason Reconciled",
            next_step="read the log of the operator",
        )
    if error.reason == "OperandNotReady" and _within_quorum(root, error.message, seen, want):
        return None
    message = f"{root.name}: {error.reason}: {error.message}"
    cause = seen.trouble[0] if seen.trouble else None
    if cause:
        message += f"; pod {cause.pod} on {cause.node or 'no node'}: {cause.container} {cause.reason} {cause.message}".rstrip()
    if error.reason == "ReconcileFailed":
        return failed(
            gate, FailureClass.APPLY, seen=message, expected="reason Reconciled", next_step="read the log of the operator"
        )
    return inconclusive(
        gate,
        seen=message,
        expected=f"operands ready on at least {want.least} nodes",
        next_step="kubectl -n gpu-operator get pods; the first state of the list is the one to look at",
        failure_class=FailureClass.RUNTIME if cause else FailureClass.HEALTH,
    )


def not_ready_states(message: str) -> tuple[str, ...]:
    """Return the states in a message `… states not ready: [state-driver state-device-plugin]`."""
    match = re.search(r"states not ready: \[([^\]]*)\]", message)
    return tuple(match[1].split()) if match else ()


def _within_quorum(root: OperatorRoot, message: str, seen: ControlObservation, want: ControlExpectation) -> bool:
    """Return True if every state that is not ready lacks fewer nodes than the quorum allows.

    The operator wants all nodes, so nodes that were set aside would keep it notReady for ever. The node gate names the nodes that
    lack it.
    """
    ready = _condition(root, "Ready")
    if root.state != "notReady" or ready is None or not ready.status:
        return False
    states = not_ready_states(message)
    counts = {entry.name: entry for entry in seen.operands}
    daemons = [counts.get(OPERAND_OF.get(state, "")) for state in states]
    return bool(states) and all(daemon is not None and serves([daemon], want.least) for daemon in daemons)


def _fresh(gate: str, root: OperatorRoot, seen: ControlObservation) -> Verdict | None:
    ready = _condition(root, "Ready")
    if not root.changed:
        return inconclusive(
            gate,
            seen=f"{root.name} does not tell when its spec was last changed",
            expected="managedFields or a creation time to compare with",
            next_step="read the object's metadata: something strips it",
        )
    # no observedGeneration exists, so a transition after the change is the only proof
    moved = ready is not None and ready.since + SKEW >= root.changed
    if moved or seen.now - root.changed >= SETTLE_SECONDS:
        return None
    return inconclusive(
        gate,
        seen=f"{root.name} says ready since before its spec changed {seen.now - root.changed:.0f} s ago",
        expected=f"a transition after the change, or {SETTLE_SECONDS:.0f} s of looking",
        next_step="wait: its conditions carry no observedGeneration",
    )


def _operands(gate: str, seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    for wanted in want.operands:
        daemons = [entry for entry in seen.operands if _is_operand(entry.name, wanted)]
        ready, desired = sum(entry.ready for entry in daemons), sum(entry.desired for entry in daemons)
        late = next((entry for entry in daemons if not entry.current), None)
        if daemons and late is None and min(ready, desired, sum(entry.updated for entry in daemons)) >= want.least:
            continue
        if daemons:
            # drivers of several OS versions have a DaemonSet each, which together serve the nodes
            worst = min(daemons, key=lambda entry: entry.ready)
            return gate_charts.judge_unsettled(gate, worst, seen.trouble, "gpu-operator")
        return inconclusive(
            gate,
            seen=f"no DaemonSet {wanted}, whatever the root resource says",
            expected=f"ready on at least {want.least} nodes",
            next_step="read the log of the operator",
        )
    return _driver_image(gate, seen, want)


def _driver_image(gate: str, seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    """Return inconclusive unless the driver DaemonSet has the wanted version: a status from before the change lacks it."""
    drivers = [
        entry for entry in seen.operands if entry.name.startswith(("nvidia-driver-", "nvidia-gpu-driver-")) and entry.desired
    ]
    branch = want.driver.partition(".")[0]
    for entry in drivers if want.driver else ():
        tag = entry.image.rpartition(":")[2]
        if not tag.startswith((want.driver, f"{branch}-")):  # precompiled images are tagged by branch and kernel
            return inconclusive(
                gate,
                seen=f"DaemonSet {entry.name} runs driver image tag {tag or 'none'}",
                expected=f"driver {want.driver}",
                next_step="the operator has not acted on the new spec: read its log",
                failure_class=FailureClass.COMPARISON,
            )
    return None


def _is_operand(name: str, wanted: str) -> bool:
    """Return True if the name matches. A wanted name ending in a dash is a prefix: driver DaemonSets carry OS and hash."""
    return name.startswith(wanted) if wanted.endswith("-") else name == wanted


def short_operands(seen: ControlObservation, want: ControlExpectation) -> tuple[str, ...]:
    """Return notes on wanted operands that miss nodes within the quorum."""
    return tuple(
        f"{entry.name}: {entry.ready} of {entry.desired} ready, within the quorum"
        for entry in seen.operands
        if entry.ready < entry.desired and any(_is_operand(entry.name, wanted) for wanted in want.operands)
    )


def _condition(root: OperatorRoot, kind: str) -> RootCondition | None:
    return next((entry for entry in root.conditions if entry.type == kind), None)
