"""Script `dns_ring.sh` in three hosts in place of pods: real busybox, a real DNS server, a Service by the kernel's DNAT.

What Kubernetes would bring is made here: the Service's rules (kube-proxy), the names (CoreDNS), and each pod's environment.
"""

import base64
import json
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hostlab import network
from hostlab.host import Host

from steps.contract.checks import CheckPod
from steps.contract.stages.rke2 import FunctionalExpectation, FunctionalObservation
from steps.contract.verdict import Status, Verdict
from steps.gates import rke2 as gate
from workflows.stages import objects

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
SCRIPT = objects.script("dns_ring.sh").replace(" -T 3 ", " ")
"""Debian's static busybox crashes where its wget has a time limit."""
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
    lines = ["no-resolv", "no-hosts", "bind-interfaces", f"listen-address={network.GATEWAY}", "local=/cluster.local/"]
    settings = tmp_path / "dnsmasq.conf"
    settings.write_text("\n".join([*lines, *(f"address=/{name}/{address}" for name, address in records.items()), ""]))
    with subprocess.Popen(["dnsmasq", "--keep-in-foreground", f"--conf-file={settings}", "--pid-file="]) as names:
        try:
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


def serve(host: Host, pod: Host) -> None:
    """The Service of the check as this host reaches it: one pod behind its address."""
    host.run("sh", "-c", SERVICE.format(vip=VIP, pod=pod.address))


def ring(pods: Sequence[Host]) -> Verdict:
    """What the gate says of one round of all pods."""
    with ThreadPoolExecutor(len(pods)) as at_once:
        reports = list(at_once.map(lambda number: report(pods, number), range(len(pods))))
    seen = tuple(
        CheckPod(name=f"dns-{number}", node=host.name, index=number, phase="Succeeded", report=said)
        for number, (host, said) in enumerate(zip(pods, reports, strict=True))
    )
    return gate.functional(FunctionalObservation(pods=seen), FunctionalExpectation(nodes=tuple(host.name for host in pods)))


def report(pods: Sequence[Host], number: int) -> dict[str, Any]:
    """Run the script as the pod of this index, and read its termination message."""
    environment = {
        "JOB_COMPLETION_INDEX": str(number),
        "COUNT": str(len(pods)),
        "NODE_NAME": pods[number].name,
        "SECONDS_TO_WAIT": "6",
        "KUBERNETES_SERVICE_HOST": API,
        "VIP_SERVICE_HOST": VIP,
    }
    words = [f"{key}={value}" for key, value in environment.items()]
    pods[number].run("sh", "-c", "pkill httpd; rm -rf /tmp/www /tmp/asked /tmp/answer /dev/termination-log")
    pods[number].run("env", *words, "busybox", "sh", "-c", SCRIPT)
    return dict(json.loads(pods[number].run("cat", "/dev/termination-log")))
