"""Rules about the operating system of the machines: P18, P19, P21."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.compat.rule_table import Platform, RuleFinding, rule
from workflows.spec.fields import is_address
from workflows.spec.sections.node import PolicyRepository

ENFORCING = ("rhel", "rocky", "almalinux")
"""Distributions that enforce SELinux by default and for which RKE2 has a policy (package rke2-selinux)."""
OF_RANCHER = "rpm.rancher.io"
"""Default server of the package rke2-selinux, which no distribution ships."""
FIREWALLS_OFF = ("canal", "calico")
"""Network plugins whose documentation asks to turn firewalld off.

Sources: https://docs.rke2.io/known_issues and https://docs.tigera.io/calico/latest/getting-started/kubernetes/requirements
"""

MOST_NETWORKS = 8
"""Largest number of entries of `os.firewall_networks`."""


@rule("P18", "warning", source="https://docs.rke2.io/security/selinux", later=("os_prep/nodes",))
def selinux_is_said(platform: Platform) -> Iterator[RuleFinding]:
    """A spec names SELinux's mode where RKE2 has a policy for the distribution, and no AppArmor; elsewhere it enforces none."""
    os = platform.spec.os
    if os.distribution in ENFORCING and os.apparmor is not None:
        yield RuleFinding(
            "os.apparmor", f"the kernel of {os.distribution} has no AppArmor", "leave it out, or write os.selinux", "error"
        )
    if os.distribution in ENFORCING and os.selinux is None:
        problem = f"{os.distribution} enforces SELinux by default, and without os.selinux RKE2's policy is not installed"
        fix = f"write os: {{selinux: enforcing}}, which brings it from {OF_RANCHER} (os.rke2_repository: a mirror), or permissive"
        yield RuleFinding("os.selinux", problem, f"{fix}; where it is disabled, leave it out")
    elif os.distribution not in ENFORCING and os.selinux == "enforcing":
        problem = f"RKE2 has no policy for {os.distribution}, and containers get labels that an enforcing kernel denies"
        yield RuleFinding(
            "os.selinux", problem, f"leave it out, or write permissive; it enforces on {', '.join(ENFORCING)}", "error"
        )
    yield from _policy_comes(platform.spec)


def _policy_comes(spec: ClusterSpec) -> Iterator[RuleFinding]:
    """Yield findings about the repository of RKE2's SELinux policy: only enforcing machines use it, offline ones need a mirror."""
    os, repository = spec.os, spec.os.rke2_repository
    if os.distribution not in ENFORCING or os.selinux != "enforcing":
        if repository != PolicyRepository():
            problem = "rke2_repository brings RKE2's SELinux policy, which needs selinux: enforcing on RHEL's family"
            yield RuleFinding("os.rke2_repository", problem, "leave it out, or write os.selinux: enforcing", "error")
    elif (spec.airgap or spec.rke2.artifacts) and repository.write and not (repository.baseurl and repository.gpgkey):
        lacking = " and ".join(key for key in ("baseurl", "gpgkey") if getattr(repository, key) is None)
        problem = (
            f"without {lacking} of a mirror, machines ask {OF_RANCHER} for RKE2's SELinux policy, and this site has no internet"
        )
        fix = "write os.rke2_repository: {baseurl: https://…, gpgkey: https://…}"
        yield RuleFinding("os.rke2_repository", problem, f"{fix}, or {{write: false}} where your own repositories have it")


@rule("P19", "warning", source="https://docs.rke2.io/known_issues", later=("rke2/functional",))
def firewall_is_kept(platform: Platform) -> Iterator[RuleFinding]:
    """A host firewall is off on machines with Canal or Calico, because these keep rules of their own in the same kernel."""
    cni = next((name for name in platform.spec.rke2.cni if name in FIREWALLS_OFF), None)
    if platform.spec.os.firewall == "keep" and cni:
        problem = f"RKE2 and Calico advise against a firewall on machines with {cni}: a reload of firewalld takes its rules away"
        yield RuleFinding(
            "os.firewall", problem, "write stop where the site allows it; else never reload firewalld on a running node"
        )


@rule("P21", "warning", source="https://docs.rke2.io/install/requirements")
def firewall_lets_machines_in(platform: Platform) -> Iterator[RuleFinding]:
    """A host firewall that is kept admits the machines of the cluster and nobody else."""
    # VXLAN matters most: whoever reaches its port is in the network of the pods. Machines may use other addresses among themselves
    # than those that SSH dials.
    os, addresses = platform.spec.os, [machine.address for machine in platform.spec.machines]
    if os.firewall == "keep" and not os.firewall_networks:
        problem = "without firewall_networks kubelet, etcd and the pods' network are open to all who reach the machines"
        known = _around(addresses)
        example = f": [{', '.join(known)}]" if 0 < len(known) <= MOST_NETWORKS else ""
        fix = f"write firewall_networks{example}, the networks of the addresses that machines have among themselves"
        yield RuleFinding("os.firewall_networks", problem, fix)
    sources = [ipaddress.ip_network(text) for text in os.firewall_networks]
    for machine in platform.spec.machines if sources else ():
        if is_address(machine.address) and not any(ipaddress.ip_address(machine.address) in network for network in sources):
            problem = (
                f"{machine.name} ({machine.address}) is in none of these networks: other machines' firewalls refuse its packets"
            )
            problem += ", unless the machine also has an address in one of them"
            yield RuleFinding("os.firewall_networks", problem, "add its network, or correct its address")
            return


def _around(addresses: list[str]) -> list[str]:
    """Return the /24 or /64 networks that hold these addresses, adjacent ones joined.

    A public address stays alone, since its neighbours belong to others. Host names are left out.
    """
    known = [ipaddress.ip_address(text) for text in addresses if is_address(text)]
    sizes = [(str(ip), ip.version, (24 if ip.version == 4 else 64) if ip.is_private else ip.max_prefixlen) for ip in known]
    fours = [ipaddress.IPv4Network(f"{ip}/{size}", strict=False) for ip, version, size in sizes if version == 4]
    sixes = [ipaddress.IPv6Network(f"{ip}/{size}", strict=False) for ip, version, size in sizes if version == 6]
    return [*map(str, ipaddress.collapse_addresses(fours)), *map(str, ipaddress.collapse_addresses(sixes))]
