"""A firewall that stays: the real firewalld and the real ufw, each on a host of its own, with pods that reach each other by VXLAN.

Pods are network namespaces of the hosts, wired as Canal wires them, and a port of the node is led to one as kube-proxy does it.
"""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from hostlab.host import Host
from hostlab.lab import Init, Lab
from hostlab.profile import judged, reached, request, variables
from hostlab.waiting import until

from steps.clients.ansible import playing
from steps.contract.host_play import PlayResult
from steps.stages.os_prep import probe
from steps.stages.os_prep.contract import Item, ItemStatus
from workflows.catalog import criteria
from workflows.catalog import profile as catalog

pytestmark = pytest.mark.sampled("preparing hosts")

INSTALL = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends")
PODS = ["10.42.0.0/16", "10.43.0.0/16"]
API, ETCD, KUBELET, NODE_PORT, OTHER = 6443, 2379, 10250, 30080, 9876
SERVED = (API, ETCD, KUBELET, OTHER)
POD_PORT = 8080
WIRED = """set -e
ip link add flannel.1 address 02:00:00:00:00:0{own} type vxlan id 1 dev eth0 local {address} dstport 8472 nolearning
ip addr add 10.42.{own}.0/32 dev flannel.1
ip link set flannel.1 up
bridge fdb append 02:00:00:00:00:0{peer} dev flannel.1 dst {peer_address}
ip neigh add 10.42.{peer}.0 lladdr 02:00:00:00:00:0{peer} dev flannel.1 nud permanent
ip route add 10.42.{peer}.0/24 via 10.42.{peer}.0 dev flannel.1 onlink
ip netns add pod
ip link add cali0 type veth peer name eth0 netns pod
ip addr add 10.42.{own}.1/24 dev cali0
ip link set cali0 up
ip -n pod addr add 10.42.{own}.2/24 dev eth0
ip -n pod link set eth0 up
ip -n pod link set lo up
ip -n pod route add default via 10.42.{own}.1
echo 1 > /proc/sys/net/ipv4/ip_forward
{led}
systemd-run --quiet ip netns exec pod python3 -m http.server {pod_port}
for port in {served}; do systemd-run --quiet python3 -m http.server $port; done
"""
LED = f"iptables -t nat -A PREROUTING -p tcp --dport {NODE_PORT} -j DNAT --to-destination 10.42.{{own}}.2:{POD_PORT}"
POLKIT = "polkit.service"
"""Unit to mask: polkit does not start in these hosts, D-Bus would wait for it at each call, and root does not need it."""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()"
ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class Site:
    """A server with firewalld, an agent with ufw, and somebody who is no machine of the cluster."""

    lab: Lab
    server: Host
    agent: Host
    stranger: Host

    def play(self, *, check: bool = False, **firewall: list[str]) -> PlayResult:
        """The play os_prep on the two machines of the cluster, as a spec with `firewall: keep` has it."""
        kept, _ = catalog.resolve(dict.fromkeys(criteria.DIMENSIONS, "none") | {"os": "debian", "firewall": "keep", "cni": "canal"})
        told = variables(
            **{key: [] for key in ("ports", "server_ports", "agent_ports")},
            services=kept["services"],
            firewall=kept["firewall"] | {"pods": PODS, "networks": [], **firewall},
        )
        roles = ((self.server, "server"), (self.agent, "agent"))
        hosts = [reached(self.lab, host, groups=(f"{role}s", role)) for host, role in roles]
        return playing.play(request(self.lab, *hosts, variables=told, check=check))

    def ways(self) -> dict[str, bool]:
        """Try all connections between hosts and pods and return which succeed."""
        pods = {host: f"10.42.{number}.2" for number, host in enumerate((self.server, self.agent))}
        asked = {f"{host.name} pod": (host, pods[peer], POD_PORT, "ip", "netns", "exec", "pod") for host, peer in self.pairs}
        for host, peer in (*self.pairs, (self.stranger, self.server), (self.stranger, self.agent)):
            asked |= {f"{host.name} {peer.name} {port}": (host, peer.address, port) for port in (*SERVED, NODE_PORT)}
        with ThreadPoolExecutor(8) as pool:
            return dict(zip(asked, pool.map(lambda words: connects(*words), asked.values()), strict=True))

    @property
    def pairs(self) -> tuple[tuple[Host, Host], tuple[Host, Host]]:
        """Each machine of the cluster with the other."""
        return (self.server, self.agent), (self.agent, self.server)


@pytest.fixture
def site(up: Any) -> Site:
    lab = up(3, Init.SYSTEMD, prepared=True)
    made = Site(lab, *lab.hosts)
    made.server.run("systemctl", "mask", POLKIT)
    made.server.run(*INSTALL, "firewalld")
    made.server.run("systemctl", "enable", "--now", "firewalld")
    made.agent.run(*INSTALL, "ufw")
    made.agent.run("sh", "-c", "ufw allow 22/tcp; ufw --force enable; systemctl enable --now ufw")
    words = {"pod_port": POD_PORT, "served": " ".join(map(str, SERVED))}
    for number, (host, peer) in enumerate(made.pairs):
        told = {
            "led": LED.format(own=number),
            "own": number,
            "peer": 1 - number,
            "address": host.address,
            "peer_address": peer.address,
        }
        host.run("sh", "-c", WIRED.format(**words, **told))
    for number, (host, _) in enumerate(made.pairs):
        own = [("127.0.0.1", port) for port in SERVED] + [(f"10.42.{number}.2", POD_PORT)]
        assert until(lambda host=host, own=own: all(connects(host, *place) for place in own), ANSWER_SECONDS)
    return made


def connects(host: Host, address: str, port: int, *inside: str) -> bool:
    """Return True if a connection succeeds, from a host or, with the prefix `inside`, from one of its pods."""
    try:
        host.run(*inside, "python3", "-c", CONNECT, address, str(port))
    except subprocess.CalledProcessError:
        return False
    return True


def open_ways(ways: dict[str, bool]) -> set[str]:
    """Return the connections that succeeded."""
    return {way for way, is_open in ways.items() if is_open}


def assert_open(site: Site, expected: set[str], why: str = "") -> None:
    """Check that exactly these connections succeed; a busy machine may take a while to answer."""
    seen: list[set[str]] = []

    def as_expected() -> bool:
        seen.append(open_ways(site.ways()))
        return seen[-1] == expected

    assert until(as_expected, ANSWER_SECONDS), (why, "lacking", expected - seen[-1], "beside", seen[-1] - expected)


def item(result: PlayResult, host: Host) -> Item:
    """Return the module's item about the firewall of a host."""
    node = next(node for node in probe.from_play(result.hosts).nodes if node.node == host.name)
    return next(one for one in node.items if one.name == "firewall")


def test_firewalls_that_stay_let_in_the_cluster_and_nobody_else_also_after_a_boot(site: Site) -> None:
    networks = [f"{host.address}/32" for host, _ in site.pairs]
    server, agent, stranger = site.server.name, site.agent.name, site.stranger.name
    led = {f"{host} {server} {NODE_PORT}" for host in (agent, stranger)}
    assert_open(site, led, "what nat leads elsewhere, firewalld lets through")

    looked = site.play(check=True, networks=networks)
    assert [item(looked, host).status for host, _ in site.pairs] == [ItemStatus.DIFFERS] * 2
    assert_open(site, led, "check mode opens nothing")

    first = site.play(networks=networks)
    assert judged(first, items=("firewall",)).is_pass, judged(first).reason
    assert [item(first, host).status for host, _ in site.pairs] == [ItemStatus.CHANGED] * 2
    opened = {f"{server} pod", f"{agent} pod"}
    opened |= {f"{agent} {server} {port}" for port in (API, ETCD, KUBELET, NODE_PORT)}
    opened |= {f"{server} {agent} {port}" for port in (KUBELET, NODE_PORT)}
    opened |= {f"{stranger} {server} {port}" for port in (API, NODE_PORT)} | {f"{stranger} {agent} {NODE_PORT}"}
    assert_open(site, opened)

    again = site.play(networks=networks)
    assert [outcome.changed for outcome in again.hosts] == [0, 0]
    assert [item(again, host).status for host, _ in site.pairs] == [ItemStatus.OK] * 2
    assert site.server.run("systemctl", "is-active", "firewalld") == "active\n"
    assert "Status: active" in site.agent.run("ufw", "status")

    site.server.run("systemctl", "restart", "firewalld")
    site.server.run("firewall-cmd", "--state")  # answers once its rules are there
    assert "DNAT" not in site.server.run("iptables", "-t", "nat", "-S", "PREROUTING"), "why firewalld is never reloaded"
    site.server.run("sh", "-c", LED.format(own=0))
    site.agent.run("sh", "-c", "/lib/ufw/ufw-init stop; /lib/ufw/ufw-init start")
    assert_open(site, opened, "as a boot brings it")


def test_without_networks_ports_are_open_to_all_and_what_was_closed_by_hand_is_opened_again(site: Site) -> None:
    first = site.play()
    assert judged(first, items=("firewall",)).is_pass, judged(first).reason
    server, agent, stranger = site.server.name, site.agent.name, site.stranger.name
    opened = {f"{server} pod", f"{agent} pod", *(f"{server} {agent} {port}" for port in (KUBELET, NODE_PORT))}
    opened |= {f"{host} {server} {port}" for host in (agent, stranger) for port in (API, ETCD, KUBELET, NODE_PORT)}
    opened |= {f"{stranger} {agent} {port}" for port in (KUBELET, NODE_PORT)}
    assert_open(site, opened)

    site.server.run("firewall-cmd", "--remove-port=8472/udp")
    site.server.run("firewall-cmd", "--permanent", "--zone=trusted", "--remove-source=10.42.0.0/16")
    site.agent.run("ufw", "route", "delete", "allow", "to", "10.42.0.0/16")
    site.agent.run("iptables", "-D", "ufw-user-input", "-p", "udp", "--dport", "8472", "-j", "ACCEPT")
    assert not site.ways()[f"{site.agent.name} pod"]
    second = site.play()
    assert item(second, site.server).before == "firewalld.service lacks 8472/udp; all from 10.42.0.0/16"
    assert item(second, site.agent).before == "ufw.service lacks 8472/udp; all from 10.42.0.0/16"
    assert [item(second, host).status for host, _ in site.pairs] == [ItemStatus.CHANGED] * 2
    assert_open(site, opened)
