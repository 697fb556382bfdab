"""Gates of sharing: GPUs are divided exactly as the spec says, and in mode `none` they are not divided.

See `steps/docs/facts/gpu.md`, Sharing.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from steps.contract.objects.charts import Workload
from steps.contract.verdict import FailureClass, Verdict, of_nodes, passed
from steps.stages.shared import gate_charts
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.gate_operands import only_short
from steps.stages.sharing import gate_nodes, gate_shares
from steps.stages.sharing.contract import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    LimitExpectation,
    NodesExpectation,
    NodesObservation,
    Shares,
    SharingMode,
    SharingRoot,
)

CONTROL = "sharing/control"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check releases, the operator's root object, the plugin's configuration, and the DaemonSets that the mode needs."""
    findings = chain(
        _root(seen, want),
        _configuration(seen, want),
        _mig_strategy(seen, want),
        _device_classes(seen, want),
        _daemons(seen, want),
    )
    releases = gate_charts.problem(seen.releases, want.releases, seen.root_app, want.root_app)
    if finding := releases or next(findings, None):
        return finding.verdict(CONTROL)
    mode = f"sharing by host group ({', '.join(want.configs)})" if want.configs else f"sharing mode {want.mode.value}"
    short = seen.policy is not None and _is_short(seen.policy, seen, want)
    state = "lacks operands on no more nodes than the quorum forgives, and is" if short else "is ready and"
    return passed(CONTROL, f"{want.root} {state} set up for {mode}")


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Check that every node advertises its physical GPUs times the units of each and no more, under the right name and labels."""
    by_name = {node.name: node for node in seen.nodes}
    rows = [gate_nodes.judge(name, by_name.get(name), want) for name in want.nodes]
    what = "DRA devices" if want.mode is SharingMode.DRA else f"{want.resource} × {want.units} for each GPU"
    return of_nodes("sharing/nodes", rows, what=f"advertise {what}")


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check on every node that two pods with one unit each run CUDA kernels side by side, and that a request for two is refused.

    The refusal is checked only if the spec wants it.
    """
    return gate_shares.judge_pairs(seen, want)


def limit(seen: FunctionalObservation, want: LimitExpectation) -> Verdict:
    """Check that a node's units are given out once each: one pod more than it has units waits until another one has ended."""
    return gate_shares.judge_limit(seen, want)


def _root(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    policy = seen.policy
    if policy is None or policy.kind != want.root:
        step = "see stage gpu_operator, and accelerator.operator_mode in the spec"
        yield _open(f"{'no root object' if policy is None else policy.kind} of the GPU Operator", want.root, step)
        return
    short = _is_short(policy, seen, want)
    if policy.error and not short:
        yield _open(f"{policy.kind} reports {policy.error}", "no error", "see the operator's log in gpu-operator")
    # Ready alone is also reported without labels of NFD and without any GPU node
    if not short and (not policy.ready or policy.reason != "Reconciled"):
        seen_as = f"{policy.kind} is {'Ready' if policy.ready else 'not Ready'} ({policy.reason or 'no reason'})"
        step = "NoGPUNodes and NFDLabelsMissing count as Ready too; wait for Reconciled"
        yield _open(seen_as, "Ready with reason Reconciled", step)
    if want.mode is SharingMode.DRA and policy.device_plugin:
        yield _fail("the device plugin is enabled beside DRA", "devicePlugin.enabled false: one GPU is advertised once", _VALUES)


def _is_short(policy: SharingRoot, seen: ControlObservation, want: ControlExpectation) -> bool:
    """Return True if the root object is not ready only because operands lack no more nodes than the stage's quorum forgives."""
    reason, _, message = policy.error.partition(": ")
    forgiven = not policy.ready and reason == "OperandNotReady"
    return forgiven and only_short(message, seen.workloads, lambda daemons: _lack_at_most(daemons, want.spare))


def _lack_at_most(daemons: Sequence[Workload], spare: int) -> bool:
    """Return True if the DaemonSets together lack no more pods of their newest spec than `spare`."""
    lacking = sum(entry.desired - min(entry.ready, entry.updated) for entry in daemons)
    return all(entry.current for entry in daemons) and lacking <= spare


def _configuration(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    policy = seen.policy or SharingRoot(kind="")
    wanted = want.configs | ({want.key: want.shares} if want.shares else {})
    if want.shares is None:
        yield from _no_sharing(seen, policy)
    if not wanted:
        return
    if not policy.config:
        yield _fail("ClusterPolicy names no device-plugin ConfigMap", "devicePlugin.config.name", _VALUES)
    if seen.configs is None:
        step = "apply stage gpu_operator again: the chart makes it"
        yield _open(f"ConfigMap gpu-operator/{policy.config} does not exist", "it, with the sharing configuration", step)
        return
    if seen.unreadable:
        yield _fail(f"keys {', '.join(seen.unreadable)} of {policy.config} hold no configuration", "YAML with `version`", _VALUES)
    for key, expected in wanted.items():
        shares = seen.configs.get(key)
        if shares is None:
            keys = ", ".join(sorted(seen.configs)) or "none"
            yield _fail(f"ConfigMap {policy.config} has the keys {keys}", f"key {key}", _VALUES)
        elif not _same(shares, expected):
            yield _fail(f"{policy.config}/{key} says {_text(shares)}", _text(expected), _VALUES)
    if seen.stale:
        step = "kubectl -n gpu-operator rollout restart ds/nvidia-device-plugin-daemonset ds/gpu-feature-discovery"
        seen_as = f"{len(seen.stale)} plugin pods are older than the last change of {policy.config}, first {seen.stale[0]}"
        yield _open(seen_as, "pods that read the changed ConfigMap (the operator does not watch it)", step)


def _no_sharing(seen: ControlObservation, policy: SharingRoot) -> Iterator[Finding]:
    """Yield a problem if the device plugin's default configuration divides GPUs although none should be shared.

    The default applies to every node without a label.
    """
    if not policy.config:
        return
    if seen.configs is None:
        step = "apply stage gpu_operator again: the chart makes it"
        yield _open(f"ConfigMap gpu-operator/{policy.config} does not exist", "it, or no name of it in ClusterPolicy", step)
        return
    # without a known default, the configuration of unlabelled nodes is the plugin's choice
    if policy.default not in seen.configs:
        dividing = next((key for key, shares in sorted(seen.configs.items()) if shares.strategy), "") or ", ".join(seen.unreadable)
        if dividing:
            problem = f"which configuration of {policy.config} holds by default is not told, and one is {dividing}"
            yield _open(problem, "a default that keeps GPUs whole", _VALUES)
        return
    default = seen.configs[policy.default]
    if default.strategy:
        yield _fail(f"the default configuration {policy.default} says {_text(default)}", "whole GPUs", _VALUES)


def _mig_strategy(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    strategy = seen.policy.mig_strategy if seen.policy else ""
    if want.mig_strategy and strategy != want.mig_strategy:
        yield _fail(f"ClusterPolicy has mig.strategy {strategy or 'none'}", want.mig_strategy, _VALUES)


def _device_classes(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    if not want.device_classes:
        return
    if seen.device_classes is None:
        step = "use Kubernetes 1.34.2 or newer"
        yield fail(FailureClass.DEPENDENCY, "resource.k8s.io/v1 is not served", "DRA in the API", step)
        return
    missing = [name for name in want.device_classes if name not in seen.device_classes]
    if missing:
        yield _open(f"no DeviceClass {missing[0]}", ", ".join(want.device_classes), "see the DRA driver's controller")


def _daemons(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    by_name = {workload.name: workload for workload in seen.workloads}
    for name in want.daemons:
        workload = by_name.get(name)
        if workload is None or not workload.desired:
            step = "see the labels nvidia.com/gpu.deploy.* and what the mode needs"
            yield _open(f"DaemonSet {name} {'does not exist' if workload is None else 'wants no pod'}", "pods on GPU nodes", step)
        elif not workload.settled(want.spare):
            yield gate_charts.judge_unsettled(workload, seen.trouble, "gpu-operator")


_VALUES = "correct the values of release gpu-operator, and apply stage gpu_operator again"


def _same(shares: Shares, want: Shares) -> bool:
    """Return True if two sharing configurations are equal. The flag that refuses requests for two units counts only for
    time-slicing, because MPS always refuses them."""
    flags = shares.refuse_two == want.refuse_two or want.strategy == "mps"
    return (shares.strategy, shares.replicas, shares.rename) == (want.strategy, want.replicas, want.rename) and flags


def _text(shares: Shares) -> str:
    if not shares.strategy:
        return "whole GPUs"
    flags = ", ".join(text for flag, text in ((shares.rename, "renamed"), (shares.refuse_two, "two refused")) if flag)
    return f"{shares.strategy} with {shares.replicas} shares{f' ({flags})' if flags else ''}"


def _fail(seen: str, expected: str, next_step: str) -> Finding:
    return fail(FailureClass.COMPARISON, seen, expected, next_step)


def _open(seen: str, expected: str, next_step: str) -> Finding:
    return unknown(FailureClass.HEALTH, seen, expected, next_step)
