"""ConfigMaps of Argo CD: who owns one, and how bringup writes single keys of it beside those of others."""

from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.kube.api import FIELD_MANAGER, ApiError
from steps.contract.delivery import ConfigMapKeys, KnownHosts, ServerCertificates
from steps.errors import Conflict, Temporary
from steps.runtime.context import Context
from steps.stages.shared.kube_objects import Managed, OwningObject

Object = dict[str, Any]
Wanted = ConfigMapKeys | KnownHosts | ServerCertificates
_TRACKED = "argocd.argoproj.io/tracking-id"
_HELM = "meta.helm.sh/release-name"
_INSTANCE = "app.kubernetes.io/instance"
"""Label by which Argo CD 2.x tracks its objects by default; charts set it too."""


class _OwnershipMeta(Struct, frozen=True, rename="camel"):
    """Metadata of an object that tell who else manages it."""

    resource_version: str = ""
    owner_references: tuple[OwningObject, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    managed_fields: tuple[Managed, ...] = ()

    @property
    def owner(self) -> str:
        """Return who would undo changes to the object, in words: an Application, an owner or a Helm release; empty if nobody."""
        if tracked := self.annotations.get(_TRACKED, ""):
            return f"Argo CD's Application {tracked.partition(':')[0]}"
        if self.owner_references:
            return f"{self.owner_references[0].kind} {self.owner_references[0].name}"
        if release := self.annotations.get(_HELM, ""):
            return f"Helm release {release}"
        if instance := self.labels.get(_INSTANCE, ""):
            return f"Argo CD's Application or the Helm release {instance}"
        return "a Helm release" if self.labels.get("app.kubernetes.io/managed-by") == "Helm" else ""


class ConfigMap(Struct, frozen=True):
    """A ConfigMap with the metadata that tell its owner."""

    metadata: _OwnershipMeta = _OwnershipMeta()
    data: dict[str, str] = {}

    def is_ours(self, key: str) -> bool:
        """Return True if bringup alone wrote a key. Merge patches are attributed to their user agent, `bringup STAGE.TASK`."""
        # the first word alone: the rest of the user agent names the task
        writers = {entry.manager.partition(" ")[0] for entry in self.metadata.managed_fields if f"f:{key}" in _data_of(entry)}
        return writers == {FIELD_MANAGER}


def _data_of(entry: Managed) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(entry.fields_v1.get("f:data", b"{}"), type=dict[str, msgspec.Raw])


def describe(wanted: Wanted) -> str:
    """Return the ConfigMap in words: `ConfigMap NAMESPACE/NAME`."""
    return f"ConfigMap {wanted.namespace}/{wanted.name}"


def config_map(wanted: Wanted) -> Object:
    """Return a manifest with the kind, name and namespace of a ConfigMap and nothing else."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": wanted.name, "namespace": wanted.namespace}}


def check_unowned(live: ConfigMap, name: str, keys: list[str], where: str) -> None:
    """Raise Conflict if a ConfigMap has an owner, who would undo changes of `keys`."""
    if owner := live.metadata.owner:
        raise Conflict(
            f"{name} belongs to {owner}, which would undo our keys: {', '.join(keys)}",
            hint=f"give them to {owner} ({where}), then run again",
        )


def write(context: Context, wanted: Wanted, live: ConfigMap, key: str, text: str) -> None:
    """Write one key of a ConfigMap that was `read` before. `text` is the key's whole new text, with the entries of others in it.

    Raises Temporary if somebody else has written the ConfigMap since it was read.
    """
    path, version = context.kube.path(config_map(wanted)), {"resourceVersion": live.metadata.resource_version}
    try:
        context.kube.merge(path, {"metadata": version, "data": {key: text}})
    except ApiError as error:
        # 409: the resourceVersion in the patch is no longer the current one
        if error.status == 409:
            raise Temporary(f"{describe(wanted)} was changed meanwhile", hint="the engine tries again") from error
        raise


def read(context: Context, wanted: Wanted) -> ConfigMap:
    """Return the live ConfigMap. Raises ApiError with status 404 if it does not exist."""
    live = context.kube.get(context.kube.path(config_map(wanted)), ConfigMap)
    if live is None:
        raise ApiError(
            f"there is no {describe(wanted)}: Argo CD, which makes and reads it, is not installed there", 404, "NotFound"
        )
    return live
