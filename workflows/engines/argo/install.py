"""Puts into home what a plan renders to: accounts, roles, ConfigMaps, the WorkflowTemplate, and the Secret that its pods mount."""

import base64
from collections.abc import Mapping
from typing import Any

from steps.clients.kube import Kube
from steps.clients.kube_http import ApiError
from workflows.engines.argo import starts
from workflows.engines.argo.home import Home, Named, Object
from workflows.plan.model import Plan
from workflows.render import names
from workflows.render.bundle import Bundle


class NotReady(ValueError):
    """The home cluster does not take what we install."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def install(home: Home, plan: Plan, bundle: Bundle, secrets: Mapping[str, bytes], *, settled: bool = False) -> None:
    """Apply everything, the template after what it mounts, and last what starts it. Raises NotReady, Refused, Conflict.

    `settled`: accounts with what they may do, and what starts runs, are those of an earlier installation, and must be there.
    """
    for manifest in bundle.rbac:
        if settled:
            _require(home, manifest)
        else:
            _apply(home, manifest)
    for manifest in bundle.config_maps:
        _keep(home, manifest)
    if secrets:
        _apply(home, _secret(home, plan, secrets))
    _apply(home, bundle.template)
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


def _secret(home: Home, plan: Plan, contents: Mapping[str, bytes]) -> Object:
    meta = {
        "name": f"bringup-secrets-{names.short(plan.inputs)}",
        "namespace": home.namespace,
        "labels": {"bringup/cluster": plan.name},
    }
    data = {name: base64.b64encode(content).decode() for name, content in contents.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}


def _apply(home: Home, manifest: Object) -> None:
    _written(home, manifest, lambda kube: kube.apply(manifest))


def _keep(home: Home, manifest: Object) -> None:
    """An immutable ConfigMap is named by its content: one that is there must be the same."""
    path = home.core("configmaps", manifest["metadata"]["name"])
    there = home.ask(lambda kube: kube.get(path, dict[str, Any]))
    if there is None:
        _written(home, manifest, lambda kube: kube.apply(manifest))
    elif any(there.get(part) != manifest.get(part) for part in ("data", "binaryData")):
        name = manifest["metadata"]["name"]
        raise NotReady(f"ConfigMap {name} of the home cluster has other content than this plan: somebody made it anew; delete it")


def _written(home: Home, manifest: Object, write: Any) -> None:
    def once(kube: Kube) -> None:
        write(kube)

    try:
        home.ask(once)
    except ApiError as error:
        what = f"{manifest['kind']} {manifest['metadata']['name']}"
        raise NotReady(f"the home cluster does not take {what} in namespace {home.namespace}: {error}") from error
