"""What Argo CD is told before it delivers: our keys of argocd-cm, and the Secret that lets it into our repository."""

import base64
from typing import Any

from msgspec import Struct

from steps.clients import git_access
from steps.clients.kube_http import ApiError
from steps.contract.delivery import SECRET_TYPE, ConfigMapKeys, KnownHosts, RepositorySecret
from steps.contract.plural import count
from steps.errors import Conflict, Temporary
from steps.verbs.context import Context

Object = dict[str, Any]
_TRACKED = "argocd.argoproj.io/tracking-id"
_HELM = "meta.helm.sh/release-name"
_INSTANCE = "app.kubernetes.io/instance"
"""The label by which Argo CD 2.x knows its objects unless told otherwise; charts set it too."""
_HOST_KEYS = "ssh_known_hosts"


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


def config_map(wanted: ConfigMapKeys | KnownHosts) -> Object:
    """The ConfigMap that is meant, by its name alone."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": wanted.name, "namespace": wanted.namespace}}


def merge(context: Context, wanted: ConfigMapKeys) -> None:
    """Set our keys and no other. Raises ApiError when there is no ConfigMap, Conflict when its owner would undo what we set.

    Where the owner has our texts already, nothing is to be done: that is how they come through their owner.
    """
    name, path = f"ConfigMap {wanted.namespace}/{wanted.name}", context.kube.path(config_map(wanted))
    found = _found(context, wanted)
    differing = {key: text for key, text in wanted.data.items() if found.data.get(key, "").rstrip("\n") != text.rstrip("\n")}
    if not differing:
        context.did(f"unchanged {name}: {count(len(wanted.data), 'key')}")
        return
    if owner := found.metadata.owner:
        raise Conflict(
            f"{name} belongs to {owner}, which would undo our keys: {', '.join(sorted(differing))}",
            hint=f"give them to {owner} (bootstrap/argocd-cm.yaml has them; chart argo-cd: values configs.cm), then run again",
        )
    context.kube.merge(path, {"data": differing})
    context.did(f"changed {name}: {', '.join(sorted(differing))}")


def trust(context: Context, wanted: KnownHosts) -> None:
    """Append our repository's host keys to those that Argo CD trusts. Its chart owns the others and may take ours out when it is
    upgraded: they are looked for in every run."""
    name, path = f"ConfigMap {wanted.namespace}/{wanted.name}", context.kube.path(config_map(wanted))
    found = _found(context, wanted)
    before = found.data.get(_HOST_KEYS, "").splitlines()
    lines = [line.strip() for line in git_access.read_credentials(context.environment, wanted.file).splitlines()]
    lacking = [line for line in lines if line and not line.startswith("#") and line not in before]
    if lacking:
        seen = {"resourceVersion": found.metadata.resource_version}  # all keys are one text: nobody else's may get lost
        _written(context, path, {"metadata": seen, "data": {_HOST_KEYS: "\n".join([*before, *lacking, ""])}})
    context.did(f"{'changed' if lacking else 'unchanged'} {name}: {count(len(lacking), 'host key')} added")


def _written(context: Context, path: str, patch: Object) -> None:
    """Patch what was read. Raises Temporary where somebody else has written meanwhile."""
    try:
        context.kube.merge(path, patch)
    except ApiError as error:
        if error.status == 409:
            raise Temporary(f"{path.rpartition('/')[2]} was changed meanwhile", hint="the engine tries again") from error
        raise


def _found(context: Context, wanted: ConfigMapKeys | KnownHosts) -> ConfigMap:
    found = context.kube.get(context.kube.path(config_map(wanted)), ConfigMap)
    if found is None:
        what = f"ConfigMap {wanted.namespace}/{wanted.name}"
        raise ApiError(f"there is no {what}: Argo CD, which makes and reads it, is not installed there", 404, "NotFound")
    return found


def secret(context: Context, wanted: RepositorySecret) -> Object:
    """The Secret of the repository as Argo CD reads it. Nothing of it is ever told. Raises BadTask for an unusable secret file."""
    text = git_access.read_credentials(context.environment, wanted.credentials)
    data = {"type": "git", "url": wanted.url, **({"project": wanted.project} if wanted.project else {})}
    if git_access.is_private_key(text):
        data["sshPrivateKey"] = f"{text}\n"
    else:
        data["username"], data["password"] = git_access.login(text)
    meta = {"name": wanted.name, "namespace": wanted.namespace, "labels": {SECRET_TYPE: "repository"}}
    packed = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": packed}
