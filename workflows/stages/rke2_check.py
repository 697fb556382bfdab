"""Objects of the checks `dns` and `host` of stage rke2.

Check `dns` is a ring of pods with a Service over them, and an Ingress if RKE2 has a controller. Check `host` asks from the network
of each server what API servers and CoreDNS ask there: a Service with pods on other nodes, and the DNS servers of resolv.conf.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from workflows.spec.accelerators import kubernetes
from workflows.spec.cluster_spec import ingress_groups
from workflows.spec.compat.kubernetes import TRAEFIK_SINCE
from workflows.stage_names import STAGES
from workflows.stages import manifest_objects
from workflows.stages.stage import Object, Rule, Site

STAGE, CHECK = "rke2", "dns"
JOB_SECONDS = 600
POD_SECONDS = 240
"""Seconds for which a pod of the ring waits for its neighbours, whose image pull may be slow."""
SERVICE = "vip"
"""Name of the Service that has a cluster address; Kubernetes tells pods this address in VIP_SERVICE_HOST."""
INGRESS_HOST = "ring.bringup-check.internal"
MOST_ENTRIES = 3
HOST, ANSWER = "host", "answer"
"""Check in the network of the servers, and name of the Service that it asks (in ANSWER_SERVICE_HOST) and of the pods behind it."""
ANSWERING = 3
"""Nodes with a pod behind Service `answer`: the asking server's own and one with a broken pod network leave one that can answer."""
MOST_OUTSIDE = 2
"""Most outside names that are looked up: each that nothing answers costs a pod several seconds."""


class Controller(NamedTuple):
    """An ingress controller of RKE2: its IngressClass, its DaemonSet, and the label of its pods (which use port 80 of nodes)."""

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
"""Ingress controllers by name, from the values of rancher/rke2-charts (kind DaemonSet, hostPort 80). Not verified: the labels of
Traefik's pods.
"""


def controller(site: Site) -> Controller | None:
    """Return the cluster's ingress controller, or None if the spec wants none or taints keep it away from every node."""
    since_traefik = kubernetes(site.spec.rke2.version)[:2] >= TRAEFIK_SINCE
    name = site.spec.rke2.ingress_controller or ("traefik" if since_traefik else "ingress-nginx")
    return CONTROLLERS.get(name) if entries(site) else None


def entries(site: Site) -> tuple[str, ...]:
    """Return the addresses of up to three machines on which an ingress controller runs."""
    groups = ingress_groups(site.spec)
    return tuple(machine.address for machine in site.machines if machine.group in groups)[:MOST_ENTRIES]


def outside_names(site: Site) -> tuple[str, ...]:
    """Return host names outside of the cluster that pods of later stages must resolve, those of the earliest stage first.

    Pods behind a proxy resolve the proxy's name alone. A site that names all sources by address has none.
    """
    proxy, argo = site.spec.proxy, site.spec.delivery.argo_cd
    releases = sorted(site.releases.values(), key=lambda release: _place(release.stage))
    sources = [url for release in releases for url in (release.repo, release.chart, release.manifest)]
    urls = [proxy.https or proxy.http or ""] if proxy else [*([argo.repo] if argo else []), *sources]
    names = dict.fromkeys(filter(None, map(_host_name, urls)))
    return tuple(names)[:MOST_OUTSIDE]


def _host_name(url: str) -> str:
    """Return the host name in a URL or in Git's short form `git@HOST:PATH`; empty for an address, or a name inside a cluster."""
    host = (urlsplit(url).hostname or "") if "://" in url else url.partition("@")[2].partition(":")[0]
    digits = host.replace(".", "").isdigit() or ":" in host
    return "" if digits or "." not in host or host.endswith((".svc", ".cluster.local")) else host


def check_objects(site: Site) -> list[Object]:
    """Return the objects of check `dns` in the order of creation.

    Services come first, because a pod's environment lists only Services that exist before the pod.
    """
    ingress = controller(site)
    # the headless Service gives each pod of the ring a DNS name, even before the pod is ready; the other one has a new cluster
    # address, so that the check proves that nodes keep their Service rules up to date
    names = {"clusterIP": "None", "ports": [{"name": "http", "port": 8080}]}
    address = {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    services = [manifest_objects.ring_service(STAGE, CHECK, name, spec) for name, spec in ((CHECK, names), (SERVICE, address))]
    return [*services, *([_ingress(ingress)] if ingress else []), _ring(site, ingress)]


def host_objects(site: Site) -> list[Object]:
    """Return the objects of check `host` in the order of creation: the Service that it asks, pods behind that, and its own pods."""
    address = {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    return [manifest_objects.ring_service(STAGE, ANSWER, ANSWER, address), _answering(site), _host(site)]


def rules(site: Site) -> tuple[Rule, ...]:
    """Return the rights to create the check's Services and, if there is an ingress controller, its Ingress."""
    verbs, space = ("get", "create", "delete"), (manifest_objects.CHECK_NAMESPACE,)
    ingresses = Rule(groups=("networking.k8s.io",), resources=("ingresses",), verbs=verbs, namespaces=space)
    return (manifest_objects.SERVICE_RIGHTS, ingresses) if controller(site) else (manifest_objects.SERVICE_RIGHTS,)


def _ingress(ingress: Controller) -> Object:
    backend = {"service": {"name": SERVICE, "port": {"name": "http"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": manifest_objects.check_metadata(STAGE, CHECK),
        "spec": {"ingressClassName": ingress.ingress_class, "rules": [{"host": INGRESS_HOST, "http": {"paths": paths}}]},
    }


def _answering(site: Site) -> Object:
    """Return a Job with pods on a few nodes behind Service `answer`, which run until the check is over."""
    environment = [manifest_objects.node_name(), {"name": "SECONDS_TO_WAIT", "value": str(JOB_SECONDS)}]
    apart = {"labelSelector": {"matchLabels": {manifest_objects.CHECK_LABEL: ANSWER}}, "topologyKey": manifest_objects.HOSTNAME}
    pod = {
        "containers": [_container(site, "host_answer.sh", environment)],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
    }
    job = manifest_objects.per_node_job(STAGE, ANSWER, pod, seconds=JOB_SECONDS)
    number = min(ANSWERING, len(site.machines))
    job["spec"] |= {"completions": number, "parallelism": number}
    return job


def _host(site: Site) -> Object:
    """Return a Job with a pod in the network of each server, with the resolv.conf that the kubelet gives to CoreDNS."""
    environment = [
        manifest_objects.node_name(),
        {"name": "SECONDS_TO_WAIT", "value": str(POD_SECONDS)},
        {"name": "OUTSIDE", "value": " ".join(outside_names(site)[:1])},
        *([{"name": "ALONE", "value": "true"}] if len(site.machines) == 1 else []),
    ]
    pod = {
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "containers": [_container(site, "host_probe.sh", environment)],
    }
    return manifest_objects.per_node_job(STAGE, HOST, pod, seconds=JOB_SECONDS)


def _container(site: Site, script: str, environment: list[Object]) -> Object:
    return manifest_objects.container(site.spec.check_image, manifest_objects.script(script), env=environment)


def _ring(site: Site, ingress: Controller | None) -> Object:
    """Return a Job with one pod per node, each of which tests the network with its neighbours.

    Each pod resolves names, reaches the Service, asks the next pod, answers the previous one, and sends a request through the
    ingress.
    """
    environment = [
        manifest_objects.node_name(),
        # the verb `job` fills in the number of nodes under test
        {"name": "COUNT", "value": "@count_text"},
        {"name": "SECONDS_TO_WAIT", "value": str(POD_SECONDS)},
        {"name": "OUTSIDE", "value": " ".join(outside_names(site))},
    ]
    if ingress:
        environment += [
            {"name": "INGRESS_HOST", "value": INGRESS_HOST},
            {"name": "INGRESS_AT", "value": " ".join(entries(site))},
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ]
    pod = {
        "subdomain": CHECK,
        "containers": [_container(site, "dns_ring.sh", environment)],
    }
    return manifest_objects.per_node_job(STAGE, CHECK, pod, seconds=JOB_SECONDS)


def _place(stage: str) -> int:
    """Return the place of a stage in running order; stages of a factory come after all of a bring-up."""
    return STAGES.index(stage) if stage in STAGES else len(STAGES)
