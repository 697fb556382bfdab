"""What Argo CD is told before it delivers: our keys of argocd-cm, whom it trusts, and the Secret that lets it into our Git."""

import base64
from typing import Any

from msgspec import Struct

from steps.clients import git_access
from steps.clients.kube_http import ApiError
from steps.contract import delivery
from steps.contract.delivery import HOST_KEYS, SECRET_TYPE, ConfigMapKeys, KnownHosts, RepositorySecret, ServerCertificates
from steps.contract.plural import count
from steps.errors import Conflict, Temporary
from steps.verbs import rendered
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


class Trusting(Struct, frozen=True, kw_only=True):
    """The arguments of a task that name who is trusted."""

    known_hosts: KnownHosts | None = None
    certificates: ServerCertificates | None = None


class ConfigMap(Struct, frozen=True):
    """A ConfigMap."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}


def config_map(wanted: Wanted) -> Object:
    """The ConfigMap that is meant, by its name alone."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": wanted.name, "namespace": wanted.namespace}}


def merge(context: Context, wanted: ConfigMapKeys) -> None:
    """Set our keys and no other. Raises ApiError when there is no ConfigMap, Conflict when its owner would undo what we set.

    Where the owner has our texts already, nothing is to be done: that is how they come through their owner.
    """
    name, path = f"ConfigMap {wanted.namespace}/{wanted.name}", context.kube.path(config_map(wanted))
    found = _found(context, wanted)
    texts = rendered.texts(context, wanted)
    differing = {key: text for key, text in texts.items() if found.data.get(key, "").rstrip("\n") != text.rstrip("\n")}
    if not differing:
        context.did(f"unchanged {name}: {count(len(wanted.keys), 'key')}")
        return
    _unowned(found, name, sorted(differing), "bootstrap/argocd-cm.yaml has them; chart argo-cd: values configs.cm")
    context.kube.merge(path, {"data": differing})
    context.did(f"changed {name}: {', '.join(sorted(differing))}")


def trust(context: Context, wanted: KnownHosts) -> None:
    """Append our repository's host keys to those that Argo CD trusts. Its chart owns the others and may take ours out when it is
    upgraded: they are looked for in every run."""
    name, path = f"ConfigMap {wanted.namespace}/{wanted.name}", context.kube.path(config_map(wanted))
    found = _found(context, wanted)
    before = found.data.get(HOST_KEYS, "")
    lacking = [line for line in _host_keys(context, wanted) if line not in delivery.host_keys(before)]
    if lacking:
        _written(context, path, found, HOST_KEYS, "\n".join([*before.splitlines(), *lacking, ""]))
    context.did(f"{'changed' if lacking else 'unchanged'} {name}: {count(len(lacking), 'host key')} added")


def trust_server(context: Context, wanted: ServerCertificates) -> None:
    """Append our repository's certificates to those by which Argo CD knows its server. Raises Conflict where an owner gave it
    others: it would undo what we write. A server that the owner does not know is left as we set it."""
    name, path = f"ConfigMap {wanted.namespace}/{wanted.name}", context.kube.path(config_map(wanted))
    found = _found(context, wanted)
    before = found.data.get(wanted.host, "")
    given = git_access.read_certificates(context.environment, wanted.file)
    lacking = [one for one in given if one not in delivery.certificates(before)]
    if lacking:
        if before.strip():
            _unowned(found, name, [wanted.host], "chart argo-cd: values configs.tls.certificates")
        text = f"{before.rstrip()}\n".lstrip() + "".join(map(delivery.pem, lacking))
        _written(context, path, found, wanted.host, text)
    said = f"{count(len(lacking), 'certificate')} added for {wanted.host}"
    context.did(f"{'changed' if lacking else 'unchanged'} {name}: {said}")


def given(context: Context) -> dict[str, tuple[str, ...]]:
    """What files of the site name as trusted, as digests by the ConfigMap that a task has for them: `Scope.trusted`."""
    asked = context.arguments(Trusting)
    found: dict[str, tuple[str, ...]] = {}
    if (hosts := asked.known_hosts) is not None:
        found[hosts.name] = tuple(map(delivery.text_digest, _host_keys(context, hosts)))
    if (servers := asked.certificates) is not None:
        found[servers.name] = tuple(map(delivery.text_digest, git_access.read_certificates(context.environment, servers.file)))
    return found


def _host_keys(context: Context, wanted: KnownHosts) -> tuple[str, ...]:
    return delivery.host_keys(git_access.read_credentials(context.environment, wanted.file, "known_hosts"))


def _unowned(found: ConfigMap, name: str, keys: list[str], where: str) -> None:
    """Raise Conflict when somebody else keeps a ConfigMap as he wants it."""
    if owner := found.metadata.owner:
        raise Conflict(
            f"{name} belongs to {owner}, which would undo our keys: {', '.join(keys)}",
            hint=f"give them to {owner} ({where}), then run again",
        )


def _written(context: Context, path: str, found: ConfigMap, key: str, text: str) -> None:
    """Set one key of what was read: its text holds others' too. Raises Temporary where somebody else has written meanwhile."""
    seen = {"resourceVersion": found.metadata.resource_version}
    try:
        context.kube.merge(path, {"metadata": seen, "data": {key: text}})
    except ApiError as error:
        if error.status == 409:
            raise Temporary(f"{path.rpartition('/')[2]} was changed meanwhile", hint="the engine tries again") from error
        raise


def _found(context: Context, wanted: Wanted) -> ConfigMap:
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
