"""The check's gangs in the form that each scheduler takes: Volcano's Job, or a batch Job with KAI's annotation or Kueue's queue."""

from __future__ import annotations

from dataclasses import dataclass

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.derived import GROUP_LABEL, own_taints
from workflows.spec.fields import StageName
from workflows.stages import objects
from workflows.stages.stage import Object, Rule

STAGE: StageName = "gang"
SPACE = (objects.CHECK_NAMESPACE,)
RULES: dict[str, tuple[Rule, ...]] = {
    "volcano": (Rule(groups=("batch.volcano.sh",), resources=("jobs",), verbs=("get", "create", "delete"), namespaces=SPACE),),
    "kai": (),
    "kueue": (
        Rule(groups=("kueue.x-k8s.io",), resources=("clusterqueues",), verbs=("get", "create", "delete")),
        Rule(groups=("kueue.x-k8s.io",), resources=("localqueues",), verbs=("get", "create", "delete"), namespaces=SPACE),
    ),
}
"""Rights that the objects of a scheduler need, beside those of every check."""


@dataclass(frozen=True, kw_only=True)
class Gang:
    """A gang of `count` pods with `units` of a resource each.

    Members that are spread one a node (`apart`) request nothing. The gang ends by itself after `seconds` if nobody deletes it.
    """

    check: str
    scheduler: str
    count: int
    resource: str
    units: int
    seconds: int
    apart: bool = False


def build(gang: Gang, spec: ClusterSpec) -> list[Object]:
    """Return the objects of a gang, in the order in which they must be created."""
    if gang.scheduler == "volcano":
        return [_volcano(gang, spec)]
    if gang.scheduler == "kai":
        labels = {"kai.scheduler/queue": "default-queue"}
        notes = {"kai.scheduler/batch-min-member": str(gang.count)}
        return [_batch(gang, spec, labels, notes, {"schedulerName": "kai-scheduler"})]
    queue = {"kueue.x-k8s.io/queue-name": gang.check}
    job = _batch(gang, spec, queue, {}, {})
    # Kueue's webhook suspends Jobs too, but while the webhook is down a pod could slip through
    job["spec"]["suspend"] = True
    return [_cluster_queue(gang, spec), _local_queue(gang), job]


def _volcano(gang: Gang, spec: ClusterSpec) -> Object:
    """Return Volcano's Job, which needs all members at once and retries none."""
    template = {"metadata": {"labels": objects.check_labels(STAGE, gang.check)}, "spec": _pod(gang, spec)}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": objects.check_metadata(STAGE, gang.check),
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": gang.count,
            "maxRetry": 1,
            "ttlSecondsAfterFinished": 3600,
            "tasks": [{"name": "member", "replicas": gang.count, "template": template}],
        },
    }


def _batch(gang: Gang, spec: ClusterSpec, labels: dict[str, str], notes: dict[str, str], pod: Object) -> Object:
    """Return a batch Job. Its pods carry the labels too, because KAI reads the queue there."""
    base = objects.check_metadata(STAGE, gang.check)
    meta = {**base, "labels": base["labels"] | labels, **({"annotations": notes} if notes else {})}
    template = {"metadata": {"labels": objects.check_labels(STAGE, gang.check) | labels}, "spec": _pod(gang, spec) | pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "parallelism": gang.count,
            "completions": gang.count,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 3600,
            "template": template,
        },
    }


def _cluster_queue(gang: Gang, spec: ClusterSpec) -> Object:
    """Return a ClusterQueue of the check: one unit short of the oversized gang, and enough for the gang that fits.

    Members that request nothing count as pods.
    """
    quota = gang.count * (1 if gang.apart else gang.units) - (1 if gang.check == "gang-oversize" else 0)
    resources = [{"name": gang.resource, "nominalQuota": quota}]
    flavors = [{"name": spec.scheduler.flavor.name, "resources": resources}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": gang.check, "labels": objects.check_labels(STAGE, gang.check)},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [gang.resource], "flavors": flavors}],
        },
    }


def _local_queue(gang: Gang) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": objects.check_metadata(STAGE, gang.check),
        "spec": {"clusterQueue": gang.check},
    }


def _pod(gang: Gang, spec: ClusterSpec) -> Object:
    """Return a pod that sleeps on a node of the GPU groups and holds its units of the resource, or its place."""
    groups = sorted(name.replace("_", "-") for name, group in spec.hosts.items() if group.gpu)
    resources: Object = {} if gang.apart else {"resources": {"limits": {gang.resource: gang.units}}}
    taints = sorted({taint for group in spec.hosts.values() if group.gpu for taint in group.taints})
    keys = [*own_taints(spec), "nvidia.com/gpu"]
    sleep = f"sleep {gang.seconds}"
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": gang.seconds,
        "tolerations": [*map(_toleration, taints), *({"key": key, "operator": "Exists"} for key in keys)],
        **({"affinity": objects.one_a_node({objects.CHECK_LABEL: gang.check}, GROUP_LABEL, groups)} if gang.apart else {}),
        "containers": [objects.container(spec.check_image, sleep, **resources)],
    }


def _toleration(taint: str) -> Object:
    """Return the toleration of a taint `key=value:effect` or `key:effect`."""
    pair, _, effect = taint.rpartition(":")
    key, _, value = pair.partition("=")
    match = {"operator": "Equal", "value": value} if value else {"operator": "Exists"}
    return {"key": key, "effect": effect, **match}
