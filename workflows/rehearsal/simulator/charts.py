"""What Helm charts bring: stage modules register an installer by release name; a Release is what it builds with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workflows.rehearsal.simulator.kinds import CRDS, DAEMON_SETS, DEPLOYMENTS, NAMESPACES, Kind, Obj, definitions
from workflows.rehearsal.simulator.programs import ProgramError
from workflows.rehearsal.simulator.world import World


class ChartError(ProgramError):
    """Helm fails with this text: the install Job's pod prints it and exits 1."""


class Release:
    """One release while it is installed or upgraded. `values` are all values merged; put everything in through `put`."""

    def __init__(self, world: World, chart: Obj, values: dict[str, Any]) -> None:
        spec = chart["spec"]
        self.world = world
        self.name: str = chart["metadata"]["name"]
        self.namespace: str = spec.get("targetNamespace") or chart["metadata"]["namespace"]
        self.chart: str = str(spec.get("chart", "")).rsplit("/", 1)[-1]
        self.version: str = spec.get("version", "")
        self.values = values

    def value(self, path: str, default: Any = None) -> Any:
        """A value by dotted path (`mig.strategy`), or the chart's default."""
        found: Any = self.values
        for part in path.split("."):
            if not isinstance(found, dict) or part not in found:
                return default
            found = found[part]
        return found

    def crds(self, group: str, *kinds: str) -> None:
        """The custom kinds of a group in `crds.yaml`: all, or those named."""
        for definition in definitions(group, *kinds):
            self.world.ensure(CRDS, definition)

    def put(self, kind: Kind, obj: Obj) -> Obj:
        """Create or update one object as Helm does, with Helm's labels. Raises ChartError when its kind is not served."""
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

    def marks(self, _kind: Kind, _obj: Obj) -> dict[str, str]:
        """Annotations by which Helm knows its objects."""
        return {"meta.helm.sh/release-name": self.name, "meta.helm.sh/release-namespace": self.namespace}

    def deployment(self, name: str, labels: Mapping[str, str] | None = None, *, replicas: int = 1, image: str = "") -> Obj:
        """A Deployment whose pods carry `app: NAME` and `labels`."""
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
        """A DaemonSet on the nodes that match `selector`, tolerating every taint; `init` names its init containers."""
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
        """Make sure of the target namespace. Raises ChartError when it is missing and may not be created."""
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


Installer = Callable[[World, Release], None]
_INSTALLERS: dict[str, Installer] = {}


def chart(release: str) -> Callable[[Installer], Installer]:
    """Register what a release brings. The installer is called at each install and upgrade and must bear repetition."""

    def register(installer: Installer) -> Installer:
        _INSTALLERS[release] = installer
        return installer

    return register


def installer(release: Release) -> Installer:
    """The installer of a release, by its name or its chart's. Raises ChartError when there is none, as for a wrong chart name."""
    found = _INSTALLERS.get(release.name) or _INSTALLERS.get(release.chart)
    if found is None:
        raise ChartError(f'INSTALLATION FAILED: chart "{release.chart}" version "{release.version}" not found in repository')
    return found
