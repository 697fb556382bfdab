"""The charts that RKE2 packages: their HelmCharts in kube-system, and what each of them installs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from steps.stages.rke2.contract import parse_version
from workflows.rehearsal.simulator.api.api_kinds import NAMESPACES, RUNTIME_CLASSES, Obj
from workflows.rehearsal.simulator.charts.chart_installers import ChartRelease, chart
from workflows.rehearsal.simulator.controllers.network_plugins import CNI
from workflows.rehearsal.simulator.world import World

SYSTEM = "kube-system"
OTHERS = ("rke2-coredns", "rke2-metrics-server", "rke2-runtimeclasses")
SERVERS = tuple({"key": f"node-role.kubernetes.io/{role}", "operator": "Exists"} for role in ("control-plane", "etcd"))
"""Tolerations of CoreDNS in RKE2's chart."""
INGRESS = {"ingress-nginx": "rke2-ingress-nginx", "traefik": "rke2-traefik"}
"""Name of the packaged chart by ingress controller."""


def ingress_of(version: str) -> str:
    """Return the ingress controller that an RKE2 release gives new clusters: `traefik` from v1.36 on, else `ingress-nginx`."""
    release = parse_version(version)
    return "traefik" if release is not None and (release.major, release.minor) >= (1, 36) else "ingress-nginx"


def packaged_charts(cni: Iterable[str], ingress: str) -> Iterator[Obj]:
    """Yield the HelmCharts that RKE2 creates: of these network plugins, of this ingress controller, and of its fixed parts."""
    controller = [INGRESS[ingress]] if ingress in INGRESS else []
    for name in (*(f"rke2-{plugin}" for plugin in cni), *OTHERS, *controller):
        bootstrap = name not in ("rke2-metrics-server", *controller)
        spec = {"chartContent": "c2ltdWxhdGVk", "bootstrap": bootstrap, "backOffLimit": 20, "targetNamespace": SYSTEM}
        yield {"metadata": {"name": name, "namespace": SYSTEM}, "spec": spec}


def _network_plugin(plugin: str, world: World, release: ChartRelease) -> None:
    release.namespace, name, label = CNI[plugin]
    world.create(NAMESPACES, {"metadata": {"name": release.namespace}})
    every = [{"operator": "Exists"}]
    release.daemon_set(name, {"k8s-app": label}, image=f"rancher/hardened-{plugin}:simulated", tolerations=every)
    release.namespace = SYSTEM


for _plugin in CNI:
    chart(f"rke2-{_plugin}")(functools.partial(_network_plugin, _plugin))


@chart("rke2-coredns")
def _coredns(world: World, release: ChartRelease) -> None:
    replicas = 1 if len(world.fleet) == 1 else 2
    name = "rke2-coredns-rke2-coredns"
    release.deployment(
        name, {"k8s-app": "kube-dns"}, replicas=replicas, image="rancher/hardened-coredns:simulated", tolerations=SERVERS
    )
    release.deployment("rke2-coredns-rke2-coredns-autoscaler", {"k8s-app": "kube-dns-autoscaler"})


@chart("rke2-metrics-server")
def _metrics(_world: World, release: ChartRelease) -> None:
    release.deployment("rke2-metrics-server")


@chart("rke2-ingress-nginx")
def _ingress(_world: World, release: ChartRelease) -> None:
    labels = {"app.kubernetes.io/name": "rke2-ingress-nginx", "app.kubernetes.io/component": "controller"}
    release.daemon_set("rke2-ingress-nginx-controller", labels, image="rancher/nginx-ingress-controller:simulated")


@chart("rke2-traefik")
def _traefik(_world: World, release: ChartRelease) -> None:
    release.daemon_set("rke2-traefik", {"app.kubernetes.io/name": "rke2-traefik"}, image="rancher/traefik:simulated")


@chart("rke2-runtimeclasses")
def _runtime_classes(_world: World, release: ChartRelease) -> None:
    for name in ("nvidia", "nvidia-cdi", "nvidia-legacy"):
        release.put(RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": name})
