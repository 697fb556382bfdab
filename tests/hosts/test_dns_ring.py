"""Scripts `dns_ring.sh` and `host_probe.sh` in three hosts in place of pods: real busybox, a real DNS server, a Service by the
kernel's DNAT, and HAProxy where the Ingress that the product makes asks for a controller.

What Kubernetes would bring is made here: the Service's rules (kube-proxy), the names (CoreDNS), and each pod's environment.
"""

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from cluster_site import Site
from hostlab import lab, network
from hostlab.host import Host
from hostlab.waiting import listens, until

from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import Status, Verdict
from steps.stages.rke2 import gate
from steps.stages.rke2.contract import (
    FunctionalExpectation,
    FunctionalObservation,
    HostNetworkExpectation,
    HostNetworkObservation,
)
from workflows.plan.compiler import compile_plan
from workflows.stages import manifest_objects

pytestmark = pytest.mark.sampled("preparing hosts")

API, VIP = "10.43.0.1", "10.43.0.50"
NAMES = "bringup-check.svc.cluster.local"
TOOLS = f"""set -e
base64 -d > /usr/local/bin/busybox
chmod 755 /usr/local/bin/busybox
for tool in httpd nslookup wget; do ln -s busybox /usr/local/bin/$tool; done
ip route add 10.43.0.0/16 dev eth0
echo 'search {NAMES} svc.cluster.local cluster.local' > /etc/resolv.conf
echo 'nameserver {network.GATEWAY}' >> /etc/resolv.conf
echo 'options ndots:5 timeout:1 attempts:1' >> /etc/resolv.conf
"""
SCRIPT = manifest_objects.script("dns_ring.sh").replace(" -T 3 ", " ")
"""Debian's static busybox crashes where its wget has a time limit."""
FRESH = """pkill httpd
while grep -qiE ':1F90 \\S+ 0A' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done
rm -rf /tmp/www /tmp/asked /tmp/answer /dev/termination-log
"""
"""A pod of a former round no longer listens on port 8080."""
PROXY = """defaults
  mode http
  timeout connect 2s
  timeout client 5s
  timeout server 5s
frontend node
  bind @ADDRESS@:80
  http-request deny deny_status 404 unless { hdr(host) -i @RULE@ }
  default_backend service
backend service
  server vip @VIP@:80
"""
START_SECONDS = 30.0
OUTSIDE = "charts.example.com"
ANSWER = "10.43.0.60"
HOST_SCRIPT = manifest_objects.script("host_probe.sh").replace(" -T 3 ", " ")
NO_RULE = "wget: server returned error: HTTP/1.1 404 Not Found"
SERVICE = "iptables -t nat -A OUTPUT -d {vip} -p tcp --dport 80 -j DNAT --to-destination {pod}:8080"


@pytest.fixture
def pods(up: Any, tmp_path: Path) -> Iterator[Sequence[Host]]:
    """Three hosts in place of pods, and a DNS server that knows the names of a headless Service and of the API."""
    hosts = up(3).hosts
    busybox = base64.b64encode(Path("/usr/bin/busybox").read_bytes()).decode()
    for host in hosts:
        host.run("sh", "-c", TOOLS, text=busybox)
    records = {"kubernetes.default.svc.cluster.local": API, f"vip.{NAMES}": VIP}
    records |= {f"dns-{number}.dns.{NAMES}": host.address for number, host in enumerate(hosts)}
    # the second domain has a record for every name below it
    records |= {OUTSIDE: "198.51.100.7", "wild.example.org": "198.51.100.80"}
    lines = ["no-resolv", "no-hosts", "bind-interfaces", f"listen-address={network.GATEWAY}", "local=/cluster.local/"]
    settings = tmp_path / "dnsmasq.conf"
    settings.write_text("\n".join([*lines, *(f"address=/{name}/{address}" for name, address in records.items()), ""]))
    with subprocess.Popen(["dnsmasq", "--keep-in-foreground", f"--conf-file={settings}", "--pid-file="]) as names:
        try:
            assert until(lambda: listens(network.GATEWAY, 53), START_SECONDS), names.poll()
            yield hosts
        finally:
            names.terminate()


def test_every_pod_comes_through_and_what_one_lacks_is_told_of_it_alone(pods: Sequence[Host]) -> None:
    for host in pods:
        serve(host, pods[0])
    verdict = ring(pods)
    assert verdict.is_pass, verdict.reason

    pods[2].run("iptables", "-t", "nat", "-F")
    verdict = ring(pods)
    assert [row.node for row in verdict.nodes if row.status is not Status.PASS] == ["n002"]
    assert "kube-proxy's rules are missing" in verdict.reason
    serve(pods[2], pods[0])

    pods[1].run("sh", "-c", "echo 'nameserver 10.77.0.9' > /etc/resolv.conf")
    verdict = ring(pods)
    assert [row.node for row in verdict.nodes if row.status is not Status.PASS] == ["n001"]
    assert "kubernetes.default resolves to nothing" in verdict.reason


def test_every_pod_comes_in_by_the_product_s_ingress_and_a_controller_that_brings_no_answer_is_named(
    pods: Sequence[Host], tmp_path: Path
) -> None:
    for host in pods:
        serve(host, pods[0])
    way = ingress_of(tmp_path)
    with controller(pods[0], way, tmp_path), controller(pods[1], way, tmp_path):
        verdict = ring(pods, way, controllers=("n000", "n001"))
        assert verdict.is_pass, verdict.reason

        verdict = ring(pods, way | {"INGRESS_HOST": "another.internal"}, controllers=("n000", "n001"))
        seen = [row.seen for row in verdict.nodes if row.status is Status.FAIL]
        assert seen[:2] == [f"the ingress controller of this node brings no answer on port 80 ({NO_RULE})"] * 2
        assert [one.partition(" (")[0] for one in seen[2:]] == ["no ingress controller brings an answer on port 80"]
    with controller(pods[0], way, tmp_path):
        verdict = ring(pods, way, controllers=("n000", "n001"))
        assert [row.node for row in verdict.nodes if row.status is not Status.PASS] == ["n001"]
        said = "the ingress controller of this node brings no answer on port 80; that of another node brought an answer from n000"
        assert said in verdict.reason


def test_outside_names_are_asked_for_and_a_search_domain_that_catches_them_is_named(pods: Sequence[Host]) -> None:
    for host in pods:
        serve(host, pods[0])
    verdict = ring(pods, outside=(OUTSIDE,))
    assert verdict.is_pass, verdict.reason

    verdict = ring(pods, outside=(OUTSIDE, "unknown.example.com"))
    assert "a pod here resolves names of the cluster, and not unknown.example.com" in verdict.reason
    pods[1].run("sh", "-c", "sed -i '/^search/s/$/ wild.example.org/' /etc/resolv.conf")
    verdict = ring(pods, outside=(OUTSIDE,))
    assert [row.node for row in verdict.nodes if row.status is not Status.PASS] == ["n001"]
    assert "search domain wild.example.org of this node answers for outside names too" in verdict.reason


def test_a_server_asks_its_dns_servers_and_a_service_on_another_node(pods: Sequence[Host]) -> None:
    server, other = pods[0], pods[1]
    other.run("sh", "-c", FRESH)
    other.run("sh", "-c", "mkdir -p /tmp/www/cgi-bin; printf '#!/bin/sh\nprintf \"\\r\\n\\r\\nn001\"\n' > /tmp/www/cgi-bin/name")
    other.run("sh", "-c", "chmod +x /tmp/www/cgi-bin/name; httpd -p 8080 -h /tmp/www")
    server.run("sh", "-c", SERVICE.format(vip=ANSWER, pod=other.address))
    good = host_probe(server)
    assert good["upstreams"] == [{"server": network.GATEWAY, "answer": "198.51.100.7"}]
    assert (good["answered"], good["unanswered"], good["error"]) == (["n001"], 0, "")
    assert host_network(good).is_pass

    server.run("iptables", "-t", "nat", "-F")
    server.run("sh", "-c", f"iptables -A OUTPUT -d {ANSWER} -j REJECT; echo 'nameserver 10.77.0.9' > /etc/resolv.conf")
    cut = host_probe(server)
    assert cut["upstreams"] == [{"server": "10.77.0.9", "answer": ""}]
    assert (cut["answered"], cut["unanswered"] > 0) == ([], True)
    assert "no DNS server that CoreDNS asks (10.77.0.9) answers about charts.example.com" in host_network(cut).reason
    cut["upstreams"] = good["upstreams"]
    assert "from the host network of this server, a Service with pods on n001 does not answer" in host_network(cut).reason


def host_probe(server: Host) -> dict[str, Any]:
    """Run the script as the pod in a server's network, and read its termination message."""
    environment = {"NODE_NAME": server.name, "SECONDS_TO_WAIT": "3", "OUTSIDE": OUTSIDE, "ANSWER_SERVICE_HOST": ANSWER}
    words = [f"{key}={value}" for key, value in environment.items()]
    server.run("env", *words, "busybox", "sh", "-c", HOST_SCRIPT)
    return dict(json.loads(server.run("cat", "/dev/termination-log")))


def host_network(report: dict[str, Any]) -> Verdict:
    """Judge a server's report, where the other node runs a pod behind the Service."""
    pod = CheckPod(name="host-0", node="n000", index=0, phase="Succeeded", report=report)
    return gate.host_network(
        HostNetworkObservation(pods=(pod,), answers=("n001",)), HostNetworkExpectation(nodes=("n000",), outside=OUTSIDE)
    )


def ingress_of(folder: Path) -> dict[str, str]:
    """Return the variables that the product gives its check pods about its Ingress in the cluster of these hosts; RULE is the host
    name of the Ingress, SERVICE the Service behind it."""
    site = Site(lab.current(), folder, "http://192.0.2.1")
    site.more = {"rke2": {"ingress_controller": "ingress-nginx"}}
    plan = compile_plan(site.write("n[001-002]"))
    made = next(task.arguments["objects"] for task in plan.tasks if (task.stage, task.name) == ("rke2", "functional"))
    objects = {one["kind"]: one for one in made}
    (rule,) = objects["Ingress"]["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    (container,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    told = {entry["name"]: entry["value"] for entry in container["env"] if entry["name"].startswith("INGRESS_")}
    return told | {"RULE": rule["host"], "SERVICE": path["backend"]["service"]["name"]}


@contextmanager
def controller(host: Host, way: dict[str, str], folder: Path) -> Iterator[None]:
    """A stand-in for an ingress controller on port 80 of a node: a real proxy that has the Ingress's rule."""
    assert way["SERVICE"] == "vip", "the only Service here"
    settings = folder / f"{host.name}.cfg"
    settings.write_text(PROXY.replace("@ADDRESS@", host.address).replace("@RULE@", way["RULE"]).replace("@VIP@", VIP))
    command = ["ip", "netns", "exec", network.namespace(host.name), "haproxy", "-db", "-q", "-f", str(settings)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as proxy:
        try:
            assert until(lambda: listens(host.address, 80), START_SECONDS), proxy.poll()
            yield
        finally:
            proxy.terminate()


def serve(host: Host, pod: Host) -> None:
    """The Service of the check as this host reaches it: one pod behind its address."""
    host.run("sh", "-c", SERVICE.format(vip=VIP, pod=pod.address))


def ring(
    pods: Sequence[Host],
    way: Mapping[str, str] = MappingProxyType({}),
    controllers: tuple[str, ...] = (),
    outside: tuple[str, ...] = (),
) -> Verdict:
    """Judge one round of all pods with the gate; with `way`, also through the Ingress, where `controllers` names their nodes."""
    way = {**way, "OUTSIDE": " ".join(outside)}
    with ThreadPoolExecutor(len(pods)) as at_once:
        reports = list(at_once.map(lambda number: report(pods, number, way), range(len(pods))))
    seen = tuple(
        CheckPod(name=f"dns-{number}", node=host.name, index=number, phase="Succeeded", report=said)
        for number, (host, said) in enumerate(zip(pods, reports, strict=True))
    )
    want = FunctionalExpectation(nodes=tuple(host.name for host in pods), ingress="INGRESS_HOST" in way, outside=outside)
    return gate.functional(FunctionalObservation(pods=seen, ingress=controllers if want.ingress else None), want)


def report(pods: Sequence[Host], number: int, way: Mapping[str, str]) -> dict[str, Any]:
    """Run the script as the pod of this index, and read its termination message."""
    environment = {
        "JOB_COMPLETION_INDEX": str(number),
        "COUNT": str(len(pods)),
        "NODE_NAME": pods[number].name,
        "SECONDS_TO_WAIT": "6",
        "KUBERNETES_SERVICE_HOST": API,
        "VIP_SERVICE_HOST": VIP,
        "HOST_IP": pods[number].address,
        **way,
    }
    words = [f"{key}={value}" for key, value in environment.items()]
    pods[number].run("sh", "-c", FRESH)
    pods[number].run("env", *words, "busybox", "sh", "-c", SCRIPT)
    return dict(json.loads(pods[number].run("cat", "/dev/termination-log")))
