"""Puts into home what a plan renders to: accounts, roles, ConfigMaps, the WorkflowTemplate, and the Secret that its pods mount."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.kube import Kube
from steps.clients.kube_http import ApiError
from steps.errors import Refused
from workflows.engines import inputs
from workflows.engines.argo import starts
from workflows.engines.argo.home import Home, Object
from workflows.plan.model import Plan
from workflows.render import names
from workflows.render.bundle import Bundle
from workflows.stages.access import SecretFile

LIMIT = 1 << 20
"""The largest Workflow that Argo stores, its copy of the template included (hera_argo §2.2)."""

NODE_BYTES = 200
"""What one node adds to the compressed status, at most (hera_argo §2.2)."""

NODES_A_TASK = 3
"""A retried task: the Retry node and two attempts."""


class TooLarge(ValueError):
    """The run would outgrow what Argo can store."""

    hint = "split the fleet into several specs, or run fewer stages at a time (--until, --only)"


class NotReady(ValueError):
    """The home cluster lacks something that we do not make ourselves."""


class _Secret(Struct, frozen=True):
    data: dict[str, str] = {}


class _Named(Struct, frozen=True):
    """Any object, for its being there."""

    kind: str = ""


def check_size(plan: Plan, bundle: Bundle) -> int:
    """Bytes that the run's Workflow may come to. Raises TooLarge."""
    shards = sum(1 for name in bundle.config_maps[1]["binaryData"] if name.endswith(".gz"))
    tasks = sum(shards if step.fan_out else 1 for stage in plan.stages for step in stage.steps) + len(plan.stages) * 3
    size = len(msgspec.json.encode(bundle.template)) + len(msgspec.json.encode(bundle.workflow)) + tasks * NODES_A_TASK * NODE_BYTES
    if size > LIMIT:
        raise TooLarge(f"{len(plan.stages)} stages over {shards} shards may come to {size} bytes of status; Argo stores {LIMIT}")
    return size


def secret_contents(plan: Plan, spec_folder: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """The secrets that come from this machine's files and variables, by name. Raises SecretMissing."""
    return {file.name: inputs.secret(file, spec_folder, environ) for file in plan.secrets if not file.secret}


def check_place(home: Home, plan: Plan, bundle: Bundle) -> None:
    """Whether namespace, volume claim and named Secrets are there. Raises NotReady; what may not be read is left to the pods."""
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in _volumes(bundle) if "persistentVolumeClaim" in volume]
    for claim in claims:
        if _absent(home, home.core("persistentvolumeclaims", claim)):
            lacks = f"namespace {home.namespace} of the home cluster has no PersistentVolumeClaim {claim}"
            raise NotReady(f"{lacks}, in which runs keep their evidence")
    for file in plan.secrets:
        if file.secret:
            _check_secret(home, file)


def _volumes(bundle: Bundle) -> list[Object]:
    found: list[Object] = bundle.template["spec"]["volumes"]
    return found


def _absent(home: Home, path: str) -> bool:
    try:
        return home.ask(lambda kube: kube.get(path, _Named)) is None
    except Refused:
        return False


def _check_secret(home: Home, file: SecretFile) -> None:
    try:
        found = home.ask(lambda kube: kube.get(home.core("secrets", file.secret), _Secret))
    except Refused:
        return  # who submits need not be able to read secrets
    if found is None:
        raise NotReady(f"secret {file.name}: namespace {home.namespace} of the home cluster has no Secret {file.secret}")
    if file.key not in found.data:
        raise NotReady(f"secret {file.name}: Secret {file.secret} of the home cluster has no key {file.key}")


def read_key(home: Home, name: str, key: str) -> bytes:
    """A key of a Secret of home. Raises NotReady, Refused."""
    found = home.ask(lambda kube: kube.get(home.core("secrets", name), _Secret))
    if found is None or key not in found.data:
        raise NotReady(f"namespace {home.namespace} of the home cluster has no Secret {name} with key {key}")
    return base64.b64decode(found.data[key])


def install(home: Home, plan: Plan, bundle: Bundle, secrets: Mapping[str, bytes]) -> None:
    """Apply everything, the template after what it mounts, and last what starts it. Raises NotReady, Refused, Conflict."""
    for manifest in bundle.rbac:
        _apply(home, manifest)
    for manifest in bundle.config_maps:
        _keep(home, manifest)
    if secrets:
        _apply(home, _secret(home, plan, secrets))
    _apply(home, bundle.template)
    if bundle.starts is not None:
        for manifest in bundle.starts:
            _apply(home, manifest)
        starts.retire(home, plan.name, bundle)


def _secret(home: Home, plan: Plan, contents: Mapping[str, bytes]) -> Object:
    meta = {
        "name": f"bringup-secrets-{names.short(plan.digest)}",
        "namespace": home.namespace,
        "labels": {"bringup/cluster": plan.name},
    }
    data = {name: base64.b64encode(content).decode() for name, content in contents.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}


def _apply(home: Home, manifest: Object) -> None:
    _written(home, manifest, lambda kube: kube.apply(manifest))


def _keep(home: Home, manifest: Object) -> None:
    """An immutable ConfigMap is named by the plan's digest: one that is there must be the same."""
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
