"""Installation of a simulated Argo CD by the chart argo-cd or by the site: kinds, workloads and settings."""

from __future__ import annotations

from collections.abc import Mapping

from workflows.rehearsal.simulator.api_kinds import CONFIG_MAPS, CRDS, DEPLOYMENTS, NAMESPACES, STATEFUL_SETS, Obj, definitions
from workflows.rehearsal.simulator.chart_installers import ChartRelease, chart
from workflows.rehearsal.simulator.pod_programs import Behaviour, BlockedStart, LongRunning, pod_program
from workflows.rehearsal.simulator.simulated_fleet import SiteArgoCd
from workflows.rehearsal.simulator.world import World

GROUP = "argoproj.io"
PART_OF, COMPONENT = "app.kubernetes.io/part-of", "app.kubernetes.io/component"
CONTROLLER = "application-controller"
APP_VERSIONS = {"10.1.1": "v3.4.4"}
"""Argo CD version by version of the chart argo-cd (https://github.com/argoproj/argo-helm)."""
CONFIG, HOST_KEYS, CERTIFICATES = "argocd-cm", "argocd-ssh-known-hosts-cm", "argocd-tls-certs-cm"
_COMPONENTS = (CONTROLLER, "applicationset-controller", "redis", "repo-server", "server")


@chart("argo-cd")
def argo_cd(_world: World, release: ChartRelease) -> None:
    """Install the chart argo-cd: names begin with its `fullnameOverride`, and `configs.cm` becomes argocd-cm."""
    release.crds(GROUP, "Application", "AppProject", "ApplicationSet")
    prefix = release.value("fullnameOverride") or f"{release.name}-argocd"
    for kind, body in _workloads(prefix, APP_VERSIONS.get(release.version, f"v{release.version}")):
        release.put(DEPLOYMENTS if kind == "Deployment" else STATEFUL_SETS, body)
    for config in _settings(release.value("configs.cm", {})):
        release.put(CONFIG_MAPS, config)


def install_site_argo_cd(world: World, own: SiteArgoCd) -> None:
    """Create the site's own Argo CD as if its administrators had run `kubectl apply`."""
    for kind in ("Application", "AppProject", "ApplicationSet"):
        for definition in definitions(GROUP, kind):
            world.ensure(CRDS, definition)
    world.create(NAMESPACES, {"metadata": {"name": own.namespace}})
    version = own.version if own.version.count(".") == 2 else f"{own.version}.4"
    for kind, body in _workloads("argocd", f"v{version}"):
        meta = body["metadata"] | {"namespace": own.namespace}
        world.ensure(DEPLOYMENTS if kind == "Deployment" else STATEFUL_SETS, body | {"metadata": meta})
    for config in _settings({}):
        world.create(CONFIG_MAPS, config | {"metadata": config["metadata"] | {"namespace": own.namespace}})


def _settings(keys: Mapping[str, str]) -> list[Obj]:
    """Return argocd-cm and the ConfigMaps of trusted servers, which are still empty."""
    every = {
        CONFIG: {"application.resourceTrackingMethod": "annotation", **keys},
        HOST_KEYS: {"ssh_known_hosts": ""},
        CERTIFICATES: {},
    }
    return [{"metadata": {"name": name, "labels": {PART_OF: "argocd"}}, "data": data} for name, data in every.items()]


def _workloads(prefix: str, version: str) -> list[tuple[str, Obj]]:
    workloads = []
    for component in _COMPONENTS:
        name = f"{prefix}-{component}"
        image = "redis:8.2.3-alpine" if component == "redis" else f"quay.io/argoproj/argocd:{version}"
        labels = {PART_OF: "argocd", COMPONENT: component, "app.kubernetes.io/name": f"argocd-{component}"}
        pod = {"metadata": {"labels": {"app": name, **labels}}, "spec": {"containers": [{"name": component, "image": image}]}}
        spec: Obj = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod}
        kind = "StatefulSet" if component == CONTROLLER else "Deployment"
        workloads.append((kind, {"metadata": {"name": name, "labels": labels}, "spec": spec}))
    return workloads


def controller_runs(world: World, namespace: str) -> bool:
    """Return True if an application controller is ready in the namespace; without one no Application is reconciled."""
    controllers = world.select(STATEFUL_SETS, namespace, {PART_OF: "argocd", COMPONENT: CONTROLLER})
    return any((controller.get("status") or {}).get("readyReplicas") for controller in controllers)


@pod_program(COMPONENT, CONTROLLER)
def controller(world: World, _pod: Obj, _node: str) -> Behaviour:
    """Play the application controller's pod."""
    if world.fault("argo_cd_controller_down"):
        return BlockedStart(reason="CrashLoopBackOff", message="back-off 5m0s restarting failed container=application-controller")
    return LongRunning()
