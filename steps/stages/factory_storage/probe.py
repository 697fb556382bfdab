"""Reads the claims of the shared folder, and the pods of the check that writes on one node and reads on all."""

from msgspec import Struct

from steps.stages.factory_storage.contract import ControlObservation, FunctionalObservation, ShareClaim
from steps.stages.shared import probe_checks
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_charts import read_argument

CHECK = "share"


class _ShareSpec(Struct, frozen=True, rename="camel"):
    volume_name: str = ""


class _ShareStatus(Struct, frozen=True):
    phase: str = ""


class _RawShare(Struct, frozen=True):
    """A PersistentVolumeClaim of the shared folder as the API returns it."""

    spec: _ShareSpec = _ShareSpec()
    status: _ShareStatus = _ShareStatus()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return the claims that the task names, without those that do not exist."""
    names = [str(name) for name in read_argument(scope, "claims")]
    return ControlObservation(claims=tuple(claim for name in names if (claim := _claim(kube, name)) is not None))


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """Return the pods of check `share` with their reports."""
    return FunctionalObservation(pods=probe_checks.read(kube, CHECK))


def _claim(kube: KubeReader, name: str) -> ShareClaim | None:
    namespace, _, short = name.partition("/")
    raw = kube.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{short}", _RawShare)
    return ShareClaim(name=name, phase=raw.status.phase, volume=raw.spec.volume_name) if raw else None
