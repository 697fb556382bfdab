"""Reads SUNK's login pods and their StatefulSet."""

from msgspec import Struct

from steps.stages.shared import probe_workloads
from steps.stages.shared.kube_objects import ObjectMeta, Pod
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.slurm_login.contract import LoginPod, PodsObservation

REVISION = "controller-revision-hash"


class _Strategy(Struct, frozen=True):
    type: str = ""


class _LoginSetSpec(Struct, frozen=True, rename="camel"):
    update_strategy: _Strategy = _Strategy()


class _LoginSetStatus(Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    update_revision: str = ""


class LoginStatefulSet(Struct, frozen=True):
    """The StatefulSet of login pods as the API returns it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _LoginSetSpec = _LoginSetSpec()
    status: _LoginSetStatus = _LoginSetStatus()


def pods(kube: KubeReader, scope: Scope) -> PodsObservation:
    """Return the StatefulSet that the task's arguments name, with its pods."""
    namespace, name = str(scope.arguments["namespace"]), str(scope.arguments["name"])
    stateful_set = read_set(kube, namespace, name)
    if stateful_set is None:
        return PodsObservation()
    return PodsObservation(
        exists=True,
        strategy=stateful_set.spec.update_strategy.type,
        generation=stateful_set.metadata.generation,
        observed=stateful_set.status.observed_generation,
        revision=stateful_set.status.update_revision,
        pods=tuple(map(_login_pod, members(kube, namespace, name))),
    )


def read_set(kube: KubeReader, namespace: str, name: str) -> LoginStatefulSet | None:
    """Return the StatefulSet of login pods; None if there is none."""
    return kube.get(f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}", LoginStatefulSet)


def members(kube: KubeReader, namespace: str, name: str) -> tuple[Pod, ...]:
    """Return the pods that a StatefulSet owns, sorted by name; those that are being deleted are among them."""
    every = probe_workloads.pods(kube, namespace)
    return tuple(pod for pod in every if _owned_by(pod, name))


def _owned_by(pod: Pod, name: str) -> bool:
    return any(owner.kind == "StatefulSet" and owner.name == name for owner in pod.metadata.owner_references)


def revision(pod: Pod) -> str:
    """Return the revision of its template that a pod was made of."""
    return pod.metadata.labels.get(REVISION, "")


def _login_pod(pod: Pod) -> LoginPod:
    trouble = None if pod.ready else probe_workloads.trouble(pod)
    return LoginPod(name=pod.metadata.name, revision=revision(pod), ready=pod.ready, trouble=trouble)
