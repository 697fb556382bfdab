"""Helm's own state: merged values, release Secrets by revision, and the uninstall of a release."""

from __future__ import annotations

import re
from typing import Any

import yaml

from workflows.rehearsal.simulator.api_client import decode_object
from workflows.rehearsal.simulator.api_kinds import CRDS, HELM_CHART_CONFIGS, JOBS, SECRETS, Obj, Ref, ref
from workflows.rehearsal.simulator.chart_installers import ChartError, ChartRelease
from workflows.rehearsal.simulator.world import World

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def values(world: World, chart: Obj) -> dict[str, Any]:
    """Merge `valuesContent`, `values`, the HelmChartConfig's values and `set`, in this order. Raises ChartError for broken YAML."""
    config = world.find(HELM_CHART_CONFIGS, *reversed(ref(chart))) or {}
    merged: dict[str, Any] = {}
    for spec in (chart["spec"], config.get("spec") or {}):
        merged = _merge(merged, _content(spec.get("valuesContent") or ""))
        merged = _merge(merged, spec.get("values") or {})
    for path, value in (chart["spec"].get("set") or {}).items():
        merged = _merge(merged, _nested(path, value))
    return merged


def record(world: World, release: ChartRelease, status: str) -> None:
    """Write the next revision of a release; the revision deployed before becomes superseded."""
    revisions = _revisions(world, release.name, release.namespace)
    number = max(revisions, default=0) + 1
    for secret in revisions.values():
        if status == "deployed" and secret["metadata"]["labels"]["status"] == "deployed":
            world.patch(SECRETS, secret, {"metadata": {"labels": {"status": "superseded"}}})
    body = {
        "metadata": {
            "name": f"sh.helm.release.v1.{release.name}.v{number}",
            "namespace": release.namespace,
            "labels": {
                "owner": "helm",
                "name": release.name,
                "status": status,
                "version": str(number),
                "modifiedAt": str(int(world.now)),
            },
            "annotations": {"simulated/chart-version": release.version},
        },
        "type": "helm.sh/release.v1",
        "data": {"release": _payload(release, number, status, world.stamp())},
    }
    world.create(SECRETS, body)


def uninstall(world: World, chart: Obj) -> None:
    """Delete the objects and records of a release. CRDs stay, as Helm keeps those of a chart's `crds/` folder."""
    name = chart["metadata"]["name"]
    for kind in world.kinds:
        # Helm keeps the CRDs of a chart's crds/ folder at uninstall: https://helm.sh/docs/topics/charts/
        if kind == CRDS or not world.served(kind):
            continue
        for raw in world.api.list(kind, labels=f"app.kubernetes.io/instance={name},app.kubernetes.io/managed-by=Helm") or ():
            world.delete(kind, ref(decode_object(raw)))
    target = chart["spec"].get("targetNamespace") or chart["metadata"]["namespace"]
    for secret in _revisions(world, name, target).values():
        world.delete(SECRETS, secret)


def reinstall(world: World, chart: Obj, job: Ref) -> None:
    """Uninstall a release and delete its Job, so that the controller creates a new one."""
    uninstall(world, chart)
    world.delete(JOBS, job)


def _revisions(world: World, name: str, namespace: str) -> dict[int, Obj]:
    secrets = world.select(SECRETS, namespace, {"owner": "helm", "name": name})
    return {int(secret["metadata"]["labels"]["version"]): secret for secret in secrets}


def _payload(release: ChartRelease, number: int, status: str, at: str) -> str:
    """Return a release in Helm's storage format: JSON, gzip, base64, and base64 again as Secret data."""
    import base64
    import gzip

    import msgspec

    body = {
        "name": release.name,
        "namespace": release.namespace,
        "version": number,
        "info": {"status": status, "first_deployed": at, "last_deployed": at, "description": "Install complete"},
        "chart": {"metadata": {"name": release.chart, "version": release.version, "apiVersion": "v2"}},
        "config": release.values,
    }
    packed = gzip.compress(msgspec.json.encode(body), mtime=0)
    return base64.b64encode(base64.b64encode(packed)).decode()


def _content(text: str) -> dict[str, Any]:
    try:
        document = yaml.load(text, Loader=LOADER)
    except yaml.YAMLError as error:
        raise ChartError(f"failed to parse values: {error}") from error
    if document is not None and not isinstance(document, dict):
        raise ChartError("failed to parse values: not a mapping")
    return document or {}


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        present = merged.get(key)
        merged[key] = _merge(present, value) if isinstance(present, dict) and isinstance(value, dict) else value
    return merged


def _nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(re.split(r"(?<!\\)\.", path)):
        value = {part.replace("\\.", "."): value}
    return dict(value)
