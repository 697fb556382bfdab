"""What check `dns` of stage rke2 makes: a ring of pods, a Service in front of them, and an Ingress where RKE2 has a controller."""

from __future__ import annotations

from typing import NamedTuple

from workflows.spec.cluster import ClusterSpec
from workflows.spec.compat.kubernetes import TRAEFIK_SINCE
from workflows.spec.derived import ingress_groups
from workflows.spec.products import kubernetes
from workflows.stages import objects
from workflows.stages.site import Site
from workflows.stages.stage import Object, Rule

STAGE, CHECK = "rke2", "dns"
JOB_SECONDS = 600
POD_SECONDS = 240
"""How long a pod of the ring waits for its neighbours: the slowest image pull among them."""
SERVICE = "vip"
"""The Service with an address; Kubernetes tells it to pods as VIP_SERVICE_HOST."""
INGRESS_HOST = "ring.bringup-check.internal"
MOST_ENTRIES = 3


class Controller(NamedTuple):
    """An ingress controller of RKE2: its IngressClass, its DaemonSet, and the label of its pods (port 80 of their nodes)."""

    ingress_class: str
    workload: str
    pods: str


CONTROLLERS = {
    "ingress-nginx": Controller(
        "nginx",
        "DaemonSet rke2-ingress-nginx-controller",
        "app.kubernetes.io/name=rke2-ingress-nginx,app.kubernetes.io/component=controller",
    ),
    "traefik": Controller("traefik", "DaemonSet rke2-traefik", "app.kubernetes.io/name=rke2-traefik"),
}
"""From the values of rancher/rke2-charts (kind: DaemonSet, hostPort 80). Not verified: the labels of Traefik's pods."""


def controller(site: Site) -> Controller | None:
    """The ingress controller that this cluster has; None where the spec wants none, or where taints keep it from every node."""
    named = site.spec.rke2.ingress_controller or _of_release(site.spec)
    return CONTROLLERS.get(named) if entries(site) else None


def entries(site: Site) -> tuple[str, ...]:
    """Addresses of some machines on which an ingress controller runs."""
    groups = ingress_groups(site.spec)
    return tuple(machine.address for machine in site.machines if machine.group in groups)[:MOST_ENTRIES]


def _of_release(spec: ClusterSpec) -> str:
    return "traefik" if kubernetes(spec.rke2.version)[:2] >= TRAEFIK_SINCE else "ingress-nginx"


def made(site: Site) -> list[Object]:
    """The check's objects, in order: a pod is told of Services that are there before it."""
    found = controller(site)
    ways = [_ingress(found)] if found else []
    return [objects.check_namespace(), _names(), _address(), *ways, _ring(site, found)]


def rules(site: Site) -> tuple[Rule, ...]:
    """Rights to make them."""
    verbs, space = ("get", "create", "delete"), (objects.CHECK_NAMESPACE,)
    services = Rule(groups=("",), resources=("services",), verbs=verbs, namespaces=space)
    ingresses = Rule(groups=("networking.k8s.io",), resources=("ingresses",), verbs=verbs, namespaces=space)
    return (services, ingresses) if controller(site) else (services,)


def _names() -> Object:
    """A headless Service gives each pod of the ring its name, before it is ready too."""
    spec = {"clusterIP": "None", "ports": [{"name": "http", "port": 8080}]}
    return _service(CHECK, spec)


def _address() -> Object:
    """A Service with an address of its own: it was not there before, so that it shows rules that are kept up to date."""
    return _service(SERVICE, {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]})


def _service(name: str, spec: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": objects.check_metadata(STAGE, CHECK) | {"name": name},
        "spec": {"publishNotReadyAddresses": True, "selector": {objects.CHECK_LABEL: CHECK}, **spec},
    }


def _ingress(found: Controller) -> Object:
    backend = {"service": {"name": SERVICE, "port": {"name": "http"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": objects.check_metadata(STAGE, CHECK),
        "spec": {"ingressClassName": found.ingress_class, "rules": [{"host": INGRESS_HOST, "http": {"paths": paths}}]},
    }


def _ring(site: Site, found: Controller | None) -> Object:
    """One pod on each node: it resolves names, reaches the Service, asks the next pod, answers another, comes in by ingress."""
    environment = [
        objects.node_name(),
        {"name": "COUNT", "value": "@count_text"},
        {"name": "SECONDS_TO_WAIT", "value": str(POD_SECONDS)},
    ]
    if found:
        environment += [
            {"name": "INGRESS_HOST", "value": INGRESS_HOST},
            {"name": "INGRESS_AT", "value": " ".join(entries(site))},
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ]
    pod = {
        "subdomain": CHECK,
        "containers": [objects.container(site.spec.check_image, objects.script("dns_ring.sh"), env=environment)],
    }
    return objects.per_node_job(STAGE, CHECK, pod, seconds=JOB_SECONDS)
