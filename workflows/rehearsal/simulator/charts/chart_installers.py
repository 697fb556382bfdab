"""Simulated Helm: installers that stage modules register for charts, merged values, release Secrets, uninstall."""

from __future__ import annotations

import base64
import gzip
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import yaml

from workflows.rehearsal.simulator.api.api_client import SimulatorApiError, decode_object
from workflows.rehearsal.simulator.api.api_kinds import (
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    HELM_CHART_CONFIGS,
    JOBS,
    NAMESPACES,
    SECRETS,
    Obj,
    ObjectKind,
    Ref,
    definitions,
    ref,
)
from workflows.rehearsal.simulator.controllers.simulated_pods import ProgramError
from workflows.rehearsal.simulator.virtual_clock import stamp
from workflows.rehearsal.simulator.world import World

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
BY = "simulated/by"
"""Annotation of a release Secret that no install Job wrote."""


def values(world: World, chart: Obj) -> dict[str, Any]:
    """Return the merged values of a HelmChart. Raises ChartError for broken YAML.

    Later ones win: `valuesContent` and `values` of the HelmChart, then those of its HelmChartConfig, then `set` of the HelmChart.
    """
    config = world.find(HELM_CHART_CONFIGS, ref(chart)) or {}
    merged: dict[str, Any] = {}
    for spec in (chart["spec"], config.get("spec") or {}):
        merged = _merge(merged, _content(spec.get("valuesContent") or ""))
        merged = _merge(merged, spec.get("values") or {})
    for path, value in (chart["spec"].get("set") or {}).items():
        merged = _merge(merged, _nested(path, value))
    return merged


def record(world: World, release: ChartRelease, status: str, by: str = "", error: str = "") -> None:
    """Write a release Secret for a new revision. If `status` is `deployed`, the one deployed before becomes `superseded`.

    `error` is why a revision failed. `by` marks a revision that did not come from an install Job. A revision of a Job has the
    earlier of virtual and real time, because its time is compared with the end of the Job, which a real Job controller writes in
    real time.
    """
    revisions = _revisions(world, release.name, release.namespace)
    at = world.stamp() if by else stamp(min(world.now, time.time()))
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
            "annotations": {"simulated/chart-version": release.version} | ({BY: by} if by else {}),
        },
        "type": "helm.sh/release.v1",
        "data": {"release": _payload(release, number, status, at, error)},
    }
    world.create(SECRETS, body)


def upgrade_by_hand(world: World, chart: Obj, changes: Mapping[str, Any]) -> None:
    """Play `helm upgrade --reuse-values --set …` by a person: a new revision with `changes`. Do nothing if it is there already."""
    release = ChartRelease(world, chart, _merge(values(world, chart), dict(changes)))
    revisions = _revisions(world, release.name, release.namespace)
    if not revisions or BY in revisions[max(revisions)]["metadata"]["annotations"]:
        return
    installer(release)(world, release)
    record(world, release, "deployed", by="hand")


def uninstall(world: World, chart: Obj) -> None:
    """Delete the objects and release Secrets of a HelmChart. CRDs stay, as Helm keeps those in a chart's folder `crds/`."""
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
    """Uninstall a HelmChart's release and delete its install Job, so that the helm-controller creates a new Job."""
    uninstall(world, chart)
    world.delete(JOBS, job)


def _revisions(world: World, name: str, namespace: str) -> dict[int, Obj]:
    secrets = world.select(SECRETS, namespace, {"owner": "helm", "name": name})
    return {int(secret["metadata"]["labels"]["version"]): secret for secret in secrets}


_DONE = ("Install complete", "Upgrade complete")


def _payload(release: ChartRelease, number: int, status: str, at: str, error: str = "") -> str:
    """Return a release as Helm stores it in a Secret: JSON in gzip in base64, and base64 again because it is Secret data."""
    failed = f'{"Upgrade" if number > 1 else "Release"} "{release.name}" failed: {error}'
    description = failed if error else _DONE[number > 1]
    body = {
        "name": release.name,
        "namespace": release.namespace,
        "version": number,
        "info": {"status": status, "first_deployed": at, "last_deployed": at, "description": description},
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


CONTROL_PLANE: tuple[Obj, ...] = tuple(
    {"key": f"node-role.kubernetes.io/{role}", "operator": "Exists", "effect": "NoSchedule"} for role in ("control-plane", "master")
)
"""Tolerations by which NVIDIA's charts let their controllers run on servers."""


class ChartError(ProgramError):
    """Raised if Helm fails; the pod of the install Job prints the text and exits with code 1."""


class ChartRelease:
    """A Helm release while it is installed or upgraded; the chart's registered installer gets it and creates objects with it.

    `values` are the merged values, `source` is where the chart comes from; `put` creates objects with Helm's labels.
    """

    def __init__(self, world: World, chart: Obj, values: dict[str, Any]) -> None:
        spec = chart["spec"]
        self.world = world
        self.name: str = chart["metadata"]["name"]
        self.namespace: str = spec.get("targetNamespace") or chart["metadata"]["namespace"]
        self.chart: str = str(spec.get("chart", "")).rsplit("/", 1)[-1]
        self.source = f"{spec.get('repo') or ''}/{spec.get('chart') or ''}"
        self.version: str = spec.get("version", "")
        self.values = values

    def value(self, path: str, default: Any = None) -> Any:
        """Return the value at a dotted path (`mig.strategy`), or `default` if the values lack it."""
        value: Any = self.values
        for part in path.split("."):
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    def crds(self, group: str, *kinds: str) -> None:
        """Create the CustomResourceDefinitions of an API group in `crds.yaml`: all, or only those of the named kinds."""
        for definition in definitions(group, *kinds):
            self.world.ensure(CRDS, definition)

    def put(self, kind: ObjectKind, obj: Obj) -> Obj:
        """Create or update one object with Helm's labels and return it.

        Raises ChartError if its kind is not served, or if the API server refuses the change, such as one of a Job's template.
        """
        meta = obj["metadata"]
        if not self.world.served(kind):
            raise ChartError(
                f'unable to build kubernetes objects from release manifest: resource mapping not found for name: "{meta["name"]}" '
                f'namespace: "{self.namespace}" from "": no matches for kind "{kind.kind}" in version "{kind.api_version}"\n'
                "ensure CRDs are installed first"
            )
        labels = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": self.name} | meta.get("labels", {})
        merged = meta | {"labels": labels, "annotations": self.marks(kind, obj) | meta.get("annotations", {})}
        if kind.namespaced:
            merged.setdefault("namespace", self.namespace)
        try:
            return self.world.ensure(kind, self.as_sent(kind, obj | {"metadata": merged}))
        except SimulatorApiError as error:
            if error.reason != "Invalid":
                raise
            raise ChartError(f'UPGRADE FAILED: cannot patch "{meta["name"]}" with kind {kind.kind}: {error}') from error

    def as_sent(self, _kind: ObjectKind, obj: Obj) -> Obj:
        """Return an object as it is sent to the API server: Helm sends what it has rendered."""
        return obj

    def marks(self, _kind: ObjectKind, _obj: Obj) -> dict[str, str]:
        """Return the annotations by which Helm recognises an object of this release."""
        return {"meta.helm.sh/release-name": self.name, "meta.helm.sh/release-namespace": self.namespace}

    def deployment(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        *,
        replicas: int = 1,
        image: str = "",
        tolerations: Iterable[Obj] = (),
    ) -> Obj:
        """Create or update a Deployment and return it. Its pods carry the label `app: NAME` and `labels`."""
        extra: Obj = {"tolerations": list(tolerations)} if tolerations else {}
        spec = {"replicas": replicas} | workload_spec(name, labels or {}, image or f"simulated/{name}", extra)
        return self.put(DEPLOYMENTS, {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})

    def daemon_set(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        *,
        selector: Mapping[str, str] | None = None,
        init: Iterable[str] = (),
        image: str = "",
        tolerations: Iterable[Obj] = (),
        on_delete: bool = False,
    ) -> Obj:
        """Create or update a DaemonSet on the nodes with the labels `selector`, and return it.

        `init` names its init containers; `on_delete` selects the update strategy OnDelete.
        """
        image = image or f"simulated/{name}"
        extra: Obj = {
            "nodeSelector": dict(selector or {}),
            "tolerations": list(tolerations),
            "initContainers": [{"name": step, "image": image} for step in init],
        }
        spec = workload_spec(name, labels or {}, image, {key: value for key, value in extra.items() if value})
        spec["updateStrategy"] = {"type": "OnDelete" if on_delete else "RollingUpdate"}
        return self.put(DAEMON_SETS, {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})

    def target(self, create: bool) -> None:
        """Ensure that the release's namespace exists. Raises ChartError if it is missing and `create` is false."""
        if self.world.read(NAMESPACES, self.namespace) is not None:
            return
        if not create:
            raise ChartError(f'create: failed to create: namespaces "{self.namespace}" not found')
        self.world.create(NAMESPACES, {"metadata": {"name": self.namespace}})


def workload_spec(name: str, labels: Mapping[str, str], image: str, extra: Obj) -> Obj:
    """Return selector and pod template of a workload whose pods have one container and the labels `app: NAME` and `labels`.

    The fields in `extra` are added to the pod's spec.
    """
    pod_labels = {"app": name} | dict(labels)
    pod = {"containers": [{"name": name, "image": image}]} | extra
    return {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": pod_labels}, "spec": pod}}


Installer = Callable[[World, ChartRelease], None]
_INSTALLERS: dict[str, Installer] = {}


def chart(release: str) -> Callable[[Installer], Installer]:
    """Return a decorator that registers the idempotent function for installs and upgrades of a chart or release."""

    def register(installer: Installer) -> Installer:
        _INSTALLERS[release] = installer
        return installer

    return register


def installer(release: ChartRelease) -> Installer:
    """Return the function that installs a release, by release name or else chart name. Raises ChartError if there is none."""
    install = _INSTALLERS.get(release.name) or _INSTALLERS.get(release.chart)
    if install is None:
        raise ChartError(f'INSTALLATION FAILED: chart "{release.chart}" version "{release.version}" not found in repository')
    return install
