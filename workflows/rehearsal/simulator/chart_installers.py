"""Installers of Helm charts: stage modules register one per release name, and it builds with a `ChartRelease`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workflows.rehearsal.simulator.api_kinds import CRDS, DAEMON_SETS, DEPLOYMENTS, NAMESPACES, Obj, ObjectKind, definitions
from workflows.rehearsal.simulator.pod_programs import ProgramError
from workflows.rehearsal.simulator.world import World


class ChartError(ProgramError):
    """A failure of Helm; the install Job's pod prints its text and exits with 1."""


class ChartRelease:
    """A Helm release during install or upgrade. `values` are the merged values; `put` creates objects with Helm's labels."""

    def __init__(self, world: World, chart: Obj, values: dict[str, Any]) -> None:
        spec = chart["spec"]
        self.world = world
        self.name: str = chart["metadata"]["name"]
        self.namespace: str = spec.get("targetNamespace") or chart["metadata"]["namespace"]
        self.chart: str = str(spec.get("chart", "")).rsplit("/", 1)[-1]
        self.version: str = spec.get("version", "")
        self.values = values

    def value(self, path: str, default: Any = None) -> Any:
        """Return a value by its dotted path (`mig.strategy`), or the default."""
        value: Any = self.values
        for part in path.split("."):
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    def crds(self, group: str, *kinds: str) -> None:
        """Create the CustomResourceDefinitions of a group from `crds.yaml`: all, or only the named kinds."""
        for definition in definitions(group, *kinds):
            self.world.ensure(CRDS, definition)

    def put(self, kind: ObjectKind, obj: Obj) -> Obj:
        """Create or update one object with Helm's labels. Raises ChartError if its kind is not served."""
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
        return self.world.ensure(kind, obj | {"metadata": merged})

    def marks(self, _kind: ObjectKind, _obj: Obj) -> dict[str, str]:
        """Return the annotations by which Helm recognises its objects."""
        return {"meta.helm.sh/release-name": self.name, "meta.helm.sh/release-namespace": self.namespace}

    def deployment(self, name: str, labels: Mapping[str, str] | None = None, *, replicas: int = 1, image: str = "") -> Obj:
        """Create or update a Deployment whose pods carry `app: NAME` and `labels`."""
        spec = {"replicas": replicas} | _template(name, labels, image or f"simulated/{name}", {})
        return self.put(DEPLOYMENTS, {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})

    def daemon_set(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        *,
        selector: Mapping[str, str] | None = None,
        init: Iterable[str] = (),
        image: str = "",
        on_delete: bool = False,
    ) -> Obj:
        """Create or update a DaemonSet on the nodes that match `selector`, tolerating every taint.

        `init` names its init containers; `on_delete` selects the update strategy OnDelete.
        """
        image = image or f"simulated/{name}"
        extra: Obj = {
            "nodeSelector": dict(selector or {}),
            "tolerations": [{"operator": "Exists"}],
            "initContainers": [{"name": step, "image": image} for step in init],
        }
        spec = _template(name, labels, image, {key: value for key, value in extra.items() if value})
        spec["updateStrategy"] = {"type": "OnDelete" if on_delete else "RollingUpdate"}
        return self.put(DAEMON_SETS, {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})

    def target(self, create: bool) -> None:
        """Ensure that the target namespace exists. Raises ChartError if it is missing and `create` is false."""
        if self.world.read(NAMESPACES, self.namespace) is not None:
            return
        if not create:
            raise ChartError(f'create: failed to create: namespaces "{self.namespace}" not found')
        self.world.create(NAMESPACES, {"metadata": {"name": self.namespace}})


def _template(name: str, labels: Mapping[str, str] | None, image: str, extra: Obj) -> Obj:
    pod_labels = {"app": name} | dict(labels or {})
    containers = [{"name": name, "image": image}]
    return {
        "selector": {"matchLabels": {"app": pod_labels["app"]}},
        "template": {"metadata": {"labels": pod_labels}, "spec": {"containers": containers} | extra},
    }


Installer = Callable[[World, ChartRelease], None]
_INSTALLERS: dict[str, Installer] = {}


def chart(release: str) -> Callable[[Installer], Installer]:
    """Register the installer of a release name. It runs at each install and upgrade and must be idempotent."""

    def register(installer: Installer) -> Installer:
        _INSTALLERS[release] = installer
        return installer

    return register


def installer(release: ChartRelease) -> Installer:
    """Return the installer of a release, by release name or chart name. Raises ChartError as Helm does for an unknown chart."""
    install = _INSTALLERS.get(release.name) or _INSTALLERS.get(release.chart)
    if install is None:
        raise ChartError(f'INSTALLATION FAILED: chart "{release.chart}" version "{release.version}" not found in repository')
    return install
