"""Puts into home what a plan renders to: accounts, roles, ConfigMaps, the WorkflowTemplate, and the Secret that its pods mount.

What a schedule's pod installs ends with the Workflow of that pod, so that nights leave nothing behind; the last one that found it
of use has it. What a person installs stays until `leftovers` takes it, also where a schedule comes upon the same afterwards.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from workflows.engines.argo import starts
from workflows.engines.argo.home import Home, Named, Object
from workflows.engines.argo.objects import Owner
from workflows.plan.model import Plan
from workflows.render import names
from workflows.render.bundle import Bundle
from workflows.render.secret_volumes import public_name


class NotReady(ValueError):
    """The home cluster does not take what we install."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def install(
    home: Home, plan: Plan, bundle: Bundle, secrets: Mapping[str, bytes], *, settled: bool = False, owner: Owner | None = None
) -> None:
    """Apply everything, the template after what it mounts, and last what starts it. Raises NotReady, Refused, Conflict.

    `settled`: accounts with what they may do, and what starts runs, are those of an earlier installation, and must be there.
    `owner` is what the rest ends with.
    """
    for manifest in bundle.rbac:
        if settled:
            _require(home, manifest)
        else:
            _apply(home, manifest)
    for manifest in bundle.config_maps:
        _keep(home, _owned(home, manifest, owner))
    for manifest in _files(home, plan, secrets):
        _apply(home, _owned(home, manifest, owner))
    _apply(home, _owned(home, bundle.template, owner))
    if bundle.starts is not None and not settled:
        for manifest in bundle.starts:
            _apply(home, manifest)
        starts.retire(home, plan.name, bundle)


def _require(home: Home, manifest: Object) -> None:
    """Only accounts are asked for: what they may do shows when their pods do it, and tokens are nobody's to read."""
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if kind != "ServiceAccount":
        return
    if home.ask(lambda kube: kube.get(home.core("serviceaccounts", name), Named)) is None:
        raise NotReady(
            f"namespace {home.namespace} of the home cluster has no ServiceAccount {name}, and this account makes none",
            hint="whoever may, installs the schedule anew: bringup image build SPEC --engine argo",
        )


def _files(home: Home, plan: Plan, contents: Mapping[str, bytes]) -> Iterator[Object]:
    """A ConfigMap of what is public among the secret files of this machine, and a Secret of all others; nothing for none."""
    packed = {name: base64.b64encode(content).decode() for name, content in contents.items()}
    meta = {"namespace": home.namespace, "labels": {"bringup/cluster": plan.name}}
    if public := {name: data for name, data in packed.items() if name in plan.public}:
        named = {"name": public_name(plan), **meta}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "binaryData": public}
    if private := {name: data for name, data in packed.items() if name not in plan.public}:
        named = {"name": f"bringup-secrets-{names.short(plan.inputs)}", **meta}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": named, "type": "Opaque", "data": private}


def _owned(home: Home, manifest: Object, owner: Owner | None) -> Object:
    """The object with its owner; without one where nobody owns what is there, since a person installed that."""
    if owner is None:
        return manifest
    there = home.ask(lambda kube: kube.get(kube.path(manifest), Named))
    if there is not None and not there.metadata.owner_references:
        return manifest
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [msgspec.to_builtins(owner)]}}


def _apply(home: Home, manifest: Object) -> None:
    _written(home, manifest, lambda kube: kube.apply(manifest))


def _keep(home: Home, manifest: Object) -> None:
    """An immutable ConfigMap is named by its content: one that is there must be the same, but for who owns it."""
    path = home.core("configmaps", manifest["metadata"]["name"])
    there = home.ask(lambda kube: kube.get(path, dict[str, Any]))
    if there is not None and any(there.get(part) != manifest.get(part) for part in ("data", "binaryData")):
        name = manifest["metadata"]["name"]
        raise NotReady(f"ConfigMap {name} of the home cluster has other content than this plan: somebody made it anew; delete it")
    if there is None or there["metadata"].get("ownerReferences") != manifest["metadata"].get("ownerReferences"):
        _apply(home, manifest)


def _written(home: Home, manifest: Object, write: Any) -> None:
    def once(kube: Kube) -> None:
        write(kube)

    try:
        home.ask(once)
    except ApiError as error:
        what = f"{manifest['kind']} {manifest['metadata']['name']}"
        raise NotReady(f"the home cluster does not take {what} in namespace {home.namespace}: {error}") from error
