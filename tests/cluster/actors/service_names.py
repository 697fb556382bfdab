"""Names of Services for pods, and their ports on the node: Debian's dnsmasq in CoreDNS's place, one rule in kube-proxy's.

There is no kube-proxy, so a name leads to the pod behind a Service and not to the Service's own address.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kubelab import box
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster

DOMAIN, SERVER, CHAIN = "cluster.local", "dnsmasq", "BRINGUP-PORTS"
PORTS = f"""set -e
if iptables -t nat -N {CHAIN} 2>/dev/null; then
  for chain in PREROUTING OUTPUT; do iptables -t nat -A $chain -d "$1" -j {CHAIN}; done
fi
iptables -t nat -F {CHAIN}
iptables -t nat -A {CHAIN} -p tcp --dport "$2" -j DNAT --to-destination "$3"
"""
"""Script that leads a port of the node to a pod, and those of earlier calls nowhere."""


@contextmanager
def resolving(cluster: Cluster) -> Iterator[None]:
    """Let pods that start while the context lasts ask the name server of this module; `lead` starts it."""
    cluster.node.restart_kubelet(f"--cluster-dns={box.ADDRESS}", f"--cluster-domain={DOMAIN}")
    try:
        yield
    finally:
        box.stop(SERVER)
        cluster.node.restart_kubelet()


def lead(plane: ControlPlane, namespace: str, service: str) -> None:
    """Lead the name of one Service, and its port on the node, to the pod behind it once that is ready; earlier ones end."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name%3D{service}"
    address = box.seen(lambda: _ready(plane.get(path) or {}), bool, f"{plane.name}-manager")
    (port,) = (plane.get(f"/api/v1/namespaces/{namespace}/services/{service}") or {})["spec"]["ports"]
    box.run("sh", "-c", PORTS, "sh", box.ADDRESS, str(port["nodePort"]), f"{address}:{port['targetPort']}")
    box.stop(SERVER)
    command = [SERVER, "--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--user=root", "--pid-file="]
    command += ["--bind-interfaces", f"--listen-address={box.ADDRESS}", f"--local=/{DOMAIN}/"]
    box.start(SERVER, [*command, f"--address=/{service}.{namespace}.svc.{DOMAIN}/{address}"])


def _ready(slices: Mapping[str, Any]) -> str:
    """Return the address of the first ready endpoint; empty without one."""
    endpoints = (endpoint for entry in slices.get("items", ()) for endpoint in entry.get("endpoints") or ())
    return next((str(endpoint["addresses"][0]) for endpoint in endpoints if endpoint["conditions"].get("ready")), "")
