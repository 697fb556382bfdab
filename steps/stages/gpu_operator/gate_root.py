"""Judges the operator's root resource: one root, one NFD, GPUs found, reconciled since its change, operands running."""

from steps.contract.objects.charts import Trouble, Workload
from steps.contract.plain_text import some
from steps.contract.verdict import FailureClass
from steps.stages.gpu_operator import gate_instances, reader_driver
from steps.stages.gpu_operator.contract import (
    DRIVER_PODS,
    AdvertisingMode,
    ControlExpectation,
    ControlObservation,
    OperatorRoot,
    RootCondition,
)
from steps.stages.shared import gate_charts, reader_kubelet
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.gate_operands import OPERANDS, SETTLE_SECONDS, is_operand, not_ready_states, one_nfd, only_short, serves

SKEW = 1.0
_VACUOUS = {"NFDLabelsMissing": "no node has NFD's labels", "NoGPUNodes": "NFD found no NVIDIA GPU in any node"}
SWITCHES = {
    "nvidia-driver-daemonset": ("driver", "driver"),
    "nvidia-driver-daemonset-": ("driver", "driver"),
    "nvidia-container-toolkit-daemonset": ("toolkit", "container-toolkit"),
    "nvidia-device-plugin-daemonset": ("devicePlugin", "device-plugin"),
    "nvidia-operator-validator": ("", "operator-validator"),
    "nvidia-dcgm": ("dcgm", "dcgm"),
    "nvidia-dcgm-exporter": ("dcgmExporter", "dcgm-exporter"),
    "gpu-feature-discovery": ("gfd", "gpu-feature-discovery"),
    "nvidia-mig-manager": ("migManager", "mig-manager"),
    "nvidia-gpu-driver-": ("driver", "driver"),
    "nvidia-dra-driver-kubelet-plugin": ("", "dra-driver"),
    "nvidia-dra-validator": ("", "dra-validator"),
    "nvidia-dcgm-dra": ("dcgm", "dcgm-dra"),
    "nvidia-dcgm-exporter-dra": ("dcgmExporter", "dcgm-exporter-dra"),
}
"""DaemonSet → what switches it off: the part of the root resource's spec, and the node label `nvidia.com/gpu.deploy.NAME`.

Sources: CRDs and controllers/state_manager.go of NVIDIA/gpu-operator. An empty part cannot be switched off.
"""


def roots(seen: ControlObservation, want: ControlExpectation) -> tuple[OperatorRoot, ...]:
    """Return the operator's root resources (ClusterPolicy or GPUCluster) of the wanted advertising mode."""
    return seen.gpu_clusters if want.mode is AdvertisingMode.GPU_CLUSTER else seen.cluster_policies


def problem(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    """Return the first problem of root resource, NFD, GPU discovery or operands; None if there is none."""
    finding = _one_root(seen, want) or gate_instances.foreign(seen, want) or one_nfd(seen.nfd)
    if finding is not None:
        return finding
    root = roots(seen, want)[0]
    return (
        _vacuous(root)
        or _discovered(seen, want)
        or _reconciled(root, seen, want)
        or _fresh(root, seen)
        or _operands(root, seen, want)
        or _driver_image(seen, want)
        or gate_instances.missing(seen, want)
    )


def _one_root(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    # with both, ClusterPolicy reports ReconcileFailed: they cannot co-exist
    if seen.cluster_policies and seen.gpu_clusters:
        expected = f"only the one of mode {want.mode}"
        step = "delete the other: they exclude each other, and there is no migration in place"
        return fail(FailureClass.APPLY, "both a ClusterPolicy and a GPUCluster exist", expected, step, final=True)
    mine, others = roots(seen, want), (*seen.cluster_policies, *seen.gpu_clusters)
    if len(mine) == 1:
        return None
    count = f"{len(mine)} root resources" + (f", but a {others[0].name}" if others and not mine else "")
    step = "see clusterPolicy.deployCR and gpuCluster.deployCR; of several only the oldest is reconciled"
    return unknown(FailureClass.APPLY, count, "exactly one, made by the chart", step)


def _vacuous(root: OperatorRoot) -> Finding | None:
    ready = _condition(root, "Ready")
    if root.state == "ignored":
        seen = f"{root.name} is ignored: another root resource is older"
        return fail(FailureClass.APPLY, seen, "state ready", "delete the other one", final=True)
    if ready is not None and ready.status == "True" and ready.reason in _VACUOUS:
        seen = f"{root.name} says ready, but only because {_VACUOUS[ready.reason]} ({ready.reason})"
        step = "read the log of the NFD workers; lspci -d 10de: on a node"
        return unknown(FailureClass.DEPENDENCY, seen, "reason Reconciled", step)
    return None


def _discovered(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    have = set(want.nodes) & set(seen.gpu_nodes)
    if want.nodes and len(have) >= want.least:
        return None
    missing = ", ".join(sorted(set(want.nodes) - have)[:5]) or "any"
    problem = f"NFD found GPUs in {len(have)} of {len(want.nodes)} expected nodes; not in {missing}"
    step = "see whether NFD's worker runs there (a taint of the node that it does not tolerate keeps it away), then lspci -d 10de:"
    return unknown(FailureClass.DEPENDENCY, problem, f"at least {want.least}", step)


def _reconciled(root: OperatorRoot, seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    ready, error, log = _condition(root, "Ready"), _condition(root, "Error"), "read the log of the operator"
    if root.state == "ready" and ready is not None and ready.status == "True" and ready.reason == "Reconciled":
        return None
    # Ready=False carries no message: the operator writes the diagnosis to condition Error
    if error is None or error.status != "True":
        reason = f", Ready={ready.status} {ready.reason}" if ready else ", no conditions"
        state = f"{root.name} is {root.state or 'without a state'}{reason}"
        return unknown(FailureClass.HEALTH, state, "state ready with Ready=True, reason Reconciled", log)
    if error.reason == "OperandNotReady" and _within_quorum(root, error.message, seen, want):
        return None
    message = f"{root.name}: {error.reason}: {error.message}"
    cause = _first_trouble(seen, not_ready_states(error.message))
    if cause:
        message += f"; {_quoted(cause, seen)}"
    if error.reason == "ReconcileFailed":
        return fail(FailureClass.APPLY, message, "reason Reconciled", log)
    step = _look_at(cause, seen) or "kubectl -n gpu-operator get pods; the first state of the list is the one to look at"
    failure_class = FailureClass.RUNTIME if cause else FailureClass.HEALTH
    return unknown(failure_class, message, f"operands ready on at least {want.least} nodes", step)


def _first_trouble(seen: ControlObservation, states: tuple[str, ...]) -> Trouble | None:
    """Return the trouble of a pod of the first state that is not ready, since later states wait for it; else the first trouble."""
    names = [f"{name.rstrip('-')}-" for state in states for name in OPERANDS.get(state, ())]
    ranked = (entry for name in names for entry in seen.trouble if entry.pod.startswith(name))
    return next(ranked, seen.trouble[0] if seen.trouble else None)


def _quoted(cause: Trouble, seen: ControlObservation) -> str:
    """Return what a pod shows of its trouble, and for a driver pod what its container's log says, as one clause."""
    text = f"pod {cause.pod} on {cause.node or 'no node'}: {cause.container} {cause.reason} {cause.message}".rstrip()
    log_cause = reader_driver.last_words(seen.driver_log) if cause.pod.startswith(DRIVER_PODS) else ""
    return f"{text}; its log: {log_cause}" if log_cause else text


def _look_at(cause: Trouble | None, seen: ControlObservation) -> str:
    """Return the next step for a pod's trouble; empty if nothing closer than the list of pods is known."""
    if cause is None:
        return ""
    if cause.pod.startswith(DRIVER_PODS):
        log = f"kubectl -n gpu-operator logs {cause.pod} -c {cause.container or 'nvidia-driver-ctr'} --previous"
        error = reader_driver.cause(seen.driver_log)
        step = error.next_step if error else "the usual cause is that headers of the running kernel cannot be had"
        return f"{step}; see {log}"
    error = reader_kubelet.cause([f"{cause.reason} {cause.message}"])
    return error.next_step if error else ""


def _within_quorum(root: OperatorRoot, message: str, seen: ControlObservation, want: ControlExpectation) -> bool:
    """Return True if every operand that is not ready lacks fewer nodes than the quorum allows.

    The operator wants all nodes, so quarantined nodes would keep its root resource notReady for ever. The gate gpu_operator/nodes
    names the nodes concerned.
    """
    ready = _condition(root, "Ready")
    if root.state != "notReady" or ready is None or not ready.status:
        return False
    return only_short(message, seen.operands, lambda daemons: serves(daemons, _least(daemons[0].name, want)))


def _fresh(root: OperatorRoot, seen: ControlObservation) -> Finding | None:
    ready = _condition(root, "Ready")
    if not root.changed:
        undated = f"{root.name} does not tell when its spec was last changed"
        expected, step = "managedFields or a creation time to compare with", "read the object's metadata: something strips it"
        return unknown(FailureClass.HEALTH, undated, expected, step)
    # no observedGeneration exists, so a transition after the change is the only proof
    moved = ready is not None and ready.since + SKEW >= root.changed
    if moved or seen.now - root.changed >= SETTLE_SECONDS:
        return None
    stale = f"{root.name} says ready since before its spec changed {seen.now - root.changed:.0f} s ago"
    expected = f"a transition after the change, or {SETTLE_SECONDS:.0f} s of looking"
    return unknown(FailureClass.HEALTH, stale, expected, "wait: its conditions carry no observedGeneration")


def _operands(root: OperatorRoot, seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    for wanted in (*want.operands, *filter(None, (want.exporter,))):
        daemons = [entry for entry in seen.operands if is_operand(entry.name, wanted)]
        if serves(daemons, _least(wanted, want)):
            continue
        expected = f"ready on at least {_least(wanted, want)} nodes"
        if (off := _switched_off(wanted, root, daemons, seen, want)) is not None:
            return off
        if daemons:
            # drivers of several OS versions have a DaemonSet each, which together serve the nodes
            worst = min(daemons, key=lambda entry: entry.ready)
            return gate_charts.judge_unsettled(worst, seen.trouble, "gpu-operator")
        missing = f"no DaemonSet {wanted}, whatever the root resource says"
        return unknown(FailureClass.HEALTH, missing, expected, "read the log of the operator")
    return None


def _switched_off(
    wanted: str, root: OperatorRoot, daemons: list[Workload], seen: ControlObservation, want: ControlExpectation
) -> Finding | None:
    """Return a failure if the root resource or labels of nodes switch off an operand that the plan expects."""
    switch, label = SWITCHES.get(wanted, ("", ""))
    expected = f"ready on at least {_least(wanted, want)} nodes"
    if switch in root.disabled:
        seen_off = f"{root.name} has {switch}.enabled: false, so the operator does not run {wanted}, which the plan expects"
        step = (
            f"find who changed it (kubectl get -o yaml --show-managed-fields), or switch {switch} off in the overrides of the spec"
        )
        return fail(FailureClass.COMPARISON, seen_off, expected, step)
    selected = sum(entry.desired for entry in daemons)
    nodes = seen.off.get(label, ()) or seen.off.get("operands", ())
    if not daemons or selected >= _least(wanted, want) or not nodes:
        return None
    seen_off = f"{wanted} runs on {selected} nodes only: label nvidia.com/gpu.deploy.{label} is not true on {some(nodes, 3)}"
    if all(node.partition("=")[2].startswith("paused") for node in nodes):
        step = "an upgrade or MIG change is under way, or was left behind: log of the driver manager or of nvidia-mig-manager"
        return unknown(FailureClass.RUNTIME, seen_off, expected, step)
    step = f"kubectl label node {nodes[0].partition('=')[0]} nvidia.com/gpu.deploy.{label}- (the operator sets it to true again)"
    return fail(FailureClass.INPUT, seen_off, expected, step)


def _driver_image(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    """Return an inconclusive finding unless the driver DaemonSet runs the wanted version; None if it does.

    Otherwise a root resource that was ready before a change of version would pass.
    """
    drivers = [
        entry for entry in seen.operands if entry.name.startswith(("nvidia-driver-", "nvidia-gpu-driver-")) and entry.desired
    ]
    branch = want.driver.partition(".")[0]
    for entry in drivers if want.driver else ():
        tag = entry.image.rpartition(":")[2]
        if not tag.startswith((want.driver, f"{branch}-")):  # precompiled images are tagged by branch and kernel
            image = f"DaemonSet {entry.name} runs driver image tag {tag or 'none'}"
            step = "the operator has not acted on the new spec: read its log"
            return unknown(FailureClass.COMPARISON, image, f"driver {want.driver}", step)
    return None


def _least(wanted: str, want: ControlExpectation) -> int:
    """Return the number of nodes that an operand must serve: not all GPUs can be split by MIG."""
    return want.least_of.get(wanted, want.least)


def short_operands(seen: ControlObservation, want: ControlExpectation) -> tuple[str, ...]:
    """Return a note on each wanted operand that is not ready on every node; a passing gate calls this once the quorum is met."""
    names = (*want.operands, *filter(None, (want.exporter,)))
    return tuple(
        f"{entry.name}: {entry.ready} of {entry.desired} ready, within the quorum"
        for entry in seen.operands
        if entry.ready < entry.desired and any(is_operand(entry.name, wanted) for wanted in names)
    )


def _condition(root: OperatorRoot, kind: str) -> RootCondition | None:
    return next((entry for entry in root.conditions if entry.type == kind), None)
