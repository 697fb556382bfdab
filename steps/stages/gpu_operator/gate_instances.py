"""Judges that operator and device plugin run once in the cluster: a second one registers the same GPUs or labels the same nodes."""

from steps.contract.verdict import FailureClass
from steps.stages.gpu_operator.contract import AdvertisingMode, ControlExpectation, ControlObservation, PartInstance, PartKind
from steps.stages.shared.finding import Finding, fail, unknown

DEVICE_PLUGIN = "nvidia-device-plugin-daemonset"
ROOT_KINDS = ("ClusterPolicy", "GPUCluster")


def foreign(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    """Return a failure if somebody else's operator or device plugin runs, in whatever namespace; None if none does."""
    releases = {f"{release.namespace}/{release.name}" for release in want.releases}
    operators = [entry for entry in _of_kind(seen, PartKind.OPERATOR) if entry.owner not in releases]
    plugins = [entry for entry in _of_kind(seen, PartKind.DEVICE_PLUGIN) if not _is_of_operator(entry)]
    return _second(operators, "this platform's") or _second(plugins, "the GPU Operator's")


def missing(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    """Return an inconclusive finding unless each part of this platform runs as often as planned."""
    plugins = int(DEVICE_PLUGIN in want.operands and want.mode is AdvertisingMode.CLUSTER_POLICY)
    planned = ((PartKind.OPERATOR, 1), (PartKind.DEVICE_PLUGIN, plugins))
    return next((finding for kind, count in planned if (finding := _own(_of_kind(seen, kind), count, kind)) is not None), None)


def _of_kind(seen: ControlObservation, kind: PartKind) -> list[PartInstance]:
    return [entry for entry in seen.instances if entry.kind is kind]


def _is_of_operator(plugin: PartInstance) -> bool:
    return plugin.owner.partition(" ")[0] in ROOT_KINDS


def _second(others: list[PartInstance], whose: str) -> Finding | None:
    if not others:
        return None
    shown = ", ".join(f"{entry.name} ({_origin(entry)})" for entry in others[:3])
    step = "find who runs it and remove it, or take its part out of this platform in the overrides of the spec"
    return fail(FailureClass.DEPENDENCY, f"a second {others[0].kind.value} runs: {shown}", f"none beside {whose} own", step)


def _origin(entry: PartInstance) -> str:
    return ", ".join(filter(None, (f"image {entry.image}" if entry.image else "", f"of {entry.owner}" if entry.owner else "")))


def _own(instances: list[PartInstance], planned: int, kind: PartKind) -> Finding | None:
    if len(instances) == planned:
        return None
    shown = f"{kind.value} runs {len(instances)} times" + (f": {', '.join(entry.name for entry in instances)}" if instances else "")
    step = "kubectl get deployments,daemonsets -A -o wide: see which of them the chart and the operator made"
    return unknown(FailureClass.DEPENDENCY, shown, f"{planned} of them", step)
