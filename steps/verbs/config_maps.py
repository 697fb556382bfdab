"""ConfigMaps of Argo CD: what they hold, who else keeps them as he wants them, and how one key is written beside others."""

from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.kube.api import FIELD_MANAGER, ApiError
from steps.contract.delivery import ConfigMapKeys, KnownHosts, ServerCertificates
from steps.errors import Conflict, Temporary
from steps.probes.managed import Managed
from steps.verbs.context import Context

Object = dict[str, Any]
Wanted = ConfigMapKeys | KnownHosts | ServerCertificates
_TRACKED = "argocd.argoproj.io/tracking-id"
_HELM = "meta.helm.sh/release-name"
_INSTANCE = "app.kubernetes.io/instance"
"""The label by which Argo CD 2.x knows its objects unless told otherwise; charts set it too."""


class Owner(Struct, frozen=True):
    """An object that another one belongs to."""

    kind: str = ""
    name: str = ""


class Meta(Struct, frozen=True, rename="camel"):
    """Who else keeps an object as it wants it."""

    resource_version: str = ""
    owner_references: tuple[Owner, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    managed_fields: tuple[Managed, ...] = ()

    @property
    def owner(self) -> str:
        """The owner who would undo what others write, in words; empty where there is none."""
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
    """A ConfigMap."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}

    def is_ours(self, key: str) -> bool:
        """Whether we alone wrote what stands at a key; where it was patched, by its user agent, `bringup RUN`."""
        writers = {one.manager.partition(" ")[0] for one in self.metadata.managed_fields if f"f:{key}" in _data_of(one)}
        return writers == {FIELD_MANAGER}


def _data_of(entry: Managed) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(entry.fields_v1.get("f:data", b"{}"), type=dict[str, msgspec.Raw])


def named(wanted: Wanted) -> str:
    """It in words."""
    return f"ConfigMap {wanted.namespace}/{wanted.name}"


def config_map(wanted: Wanted) -> Object:
    """The ConfigMap that is meant, by its name alone."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": wanted.name, "namespace": wanted.namespace}}


def unowned(found: ConfigMap, name: str, keys: list[str], where: str) -> None:
    """Raise Conflict when somebody else keeps a ConfigMap as he wants it."""
    if owner := found.metadata.owner:
        raise Conflict(
            f"{name} belongs to {owner}, which would undo our keys: {', '.join(keys)}",
            hint=f"give them to {owner} ({where}), then run again",
        )


def write(context: Context, wanted: Wanted, found: ConfigMap, key: str, text: str) -> None:
    """Set one key of what was read: its text holds others' too. Raises Temporary where somebody else has written meanwhile."""
    path, seen = context.kube.path(config_map(wanted)), {"resourceVersion": found.metadata.resource_version}
    try:
        context.kube.merge(path, {"metadata": seen, "data": {key: text}})
    except ApiError as error:
        if error.status == 409:
            raise Temporary(f"{named(wanted)} was changed meanwhile", hint="the engine tries again") from error
        raise


def read(context: Context, wanted: Wanted) -> ConfigMap:
    """It as it is. Raises ApiError 404 where there is none."""
    found = context.kube.get(context.kube.path(config_map(wanted)), ConfigMap)
    if found is None:
        raise ApiError(f"there is no {named(wanted)}: Argo CD, which makes and reads it, is not installed there", 404, "NotFound")
    return found
