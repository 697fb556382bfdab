"""Rules about the machines' operating system: P18, P19, P21."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from workflows.spec.addresses import is_address
from workflows.spec.cluster import ClusterSpec
from workflows.spec.compat.registry import Finding, Platform, rule
from workflows.spec.policy_repository import PolicyRepository

ENFORCING = ("rhel", "rocky", "almalinux")
"""Distributions that are installed with SELinux enforcing, and that RKE2 has a policy for (package rke2-selinux)."""
OF_RANCHER = "rpm.rancher.io"
"""Where that package comes from, unless the spec says otherwise: no distribution has it."""
FIREWALLS_OFF = ("canal", "calico")
"""Network plugins whose documentation wants firewalld off (docs.rke2.io/known_issues, docs.tigera.io requirements)."""

MOST_NETWORKS = 8
"""As many as firewall_networks takes."""


@rule("P18", "warning", later=("os_prep/nodes",), source="docs.rke2.io/security/selinux")
def selinux_is_said(platform: Platform) -> Iterator[Finding]:
    """SELinux enforces only where RKE2 has a policy for it, which the spec asks for by saying the mode; AppArmor is not built into
    the kernels that come with SELinux."""
    os = platform.spec.os
    if os.distribution in ENFORCING and os.apparmor is not None:
        yield Finding(
            "os.apparmor", f"the kernel of {os.distribution} has no AppArmor", "leave it out, or write os.selinux", "error"
        )
    if os.distribution in ENFORCING and os.selinux is None:
        problem = f"{os.distribution} comes with SELinux enforcing, and without os.selinux nothing brings RKE2's policy for it"
        fix = f"write os: {{selinux: enforcing}}, which brings it from {OF_RANCHER} (os.rke2_repository: a mirror), or permissive"
        yield Finding("os.selinux", problem, f"{fix}; where it is disabled, leave it out")
    elif os.distribution not in ENFORCING and os.selinux == "enforcing":
        problem = f"RKE2 has no policy for {os.distribution}, and containers get labels that an enforcing kernel denies"
        yield Finding("os.selinux", problem, f"leave it out, or write permissive; it enforces on {', '.join(ENFORCING)}", "error")
    yield from _policy_comes(platform.spec)


def _policy_comes(spec: ClusterSpec) -> Iterator[Finding]:
    """The policy's repository is for machines that enforce; those without internet do not reach RKE2's own."""
    os, said = spec.os, spec.os.rke2_repository
    if os.distribution not in ENFORCING or os.selinux != "enforcing":
        if said != PolicyRepository():
            problem = "rke2_repository brings RKE2's SELinux policy, which needs selinux: enforcing on RHEL's family"
            yield Finding("os.rke2_repository", problem, "leave it out, or write os.selinux: enforcing", "error")
    elif (spec.airgap or spec.rke2.artifacts) and said.write and not (said.baseurl and said.gpgkey):
        lacking = " and ".join(key for key in ("baseurl", "gpgkey") if getattr(said, key) is None)
        problem = (
            f"without {lacking} of a mirror, machines ask {OF_RANCHER} for RKE2's SELinux policy, and this site has no internet"
        )
        fix = "write os.rke2_repository: {baseurl: https://…, gpgkey: https://…}"
        yield Finding("os.rke2_repository", problem, f"{fix}, or {{write: false}} where your own repositories have it")


@rule("P19", "warning", later=("rke2/functional",), source="docs.rke2.io/known_issues")
def firewall_is_kept(platform: Platform) -> Iterator[Finding]:
    """A host firewall that stays is at odds with Canal and Calico, which keep rules of their own in the same kernel."""
    cni = next((name for name in platform.spec.rke2.cni if name in FIREWALLS_OFF), None)
    if platform.spec.os.firewall == "keep" and cni:
        problem = f"RKE2 and Calico advise against a firewall on machines with {cni}: a reload of firewalld takes its rules away"
        yield Finding("os.firewall", problem, "write stop where the site allows it; else never reload firewalld on a running node")


@rule("P21", "warning", source="docs.rke2.io/install/requirements")
def firewall_lets_machines_in(platform: Platform) -> Iterator[Finding]:
    """A host firewall that stays lets in the machines of the cluster and nobody else, by VXLAN above all: whoever reaches its port
    is in the pods' network. What SSH dials is not always the address that machines have among themselves."""
    os, addresses = platform.spec.os, [machine.address for machine in platform.spec.machines]
    if os.firewall == "keep" and not os.firewall_networks:
        problem = "without firewall_networks kubelet, etcd and the pods' network are open to all who reach the machines"
        known = _around(addresses)
        example = f": [{', '.join(known)}]" if 0 < len(known) <= MOST_NETWORKS else ""
        fix = f"write firewall_networks{example}, the networks of the addresses that machines have among themselves"
        yield Finding("os.firewall_networks", problem, fix)
    sources = [ipaddress.ip_network(text) for text in os.firewall_networks]
    for machine in platform.spec.machines if sources else ():
        if is_address(machine.address) and not any(ipaddress.ip_address(machine.address) in one for one in sources):
            problem = (
                f"{machine.name} ({machine.address}) is in none of these networks: firewalls of the others refuse what it says"
            )
            problem += ", unless the machine has another address, which is in one"
            yield Finding("os.firewall_networks", problem, "add its network, or correct its address; or see that it has the other")
            return


def _around(addresses: list[str]) -> list[str]:
    """The networks of /24, or /64 of IPv6, that hold these addresses, joined where they lie side by side; of a public address
    itself alone, as its neighbours are others'. Names tell none."""
    known = [ipaddress.ip_address(one) for one in addresses if is_address(one)]
    sizes = [(str(one), one.version, (24 if one.version == 4 else 64) if one.is_private else one.max_prefixlen) for one in known]
    fours = [ipaddress.IPv4Network(f"{one}/{size}", strict=False) for one, version, size in sizes if version == 4]
    sixes = [ipaddress.IPv6Network(f"{one}/{size}", strict=False) for one, version, size in sizes if version == 6]
    return [*map(str, ipaddress.collapse_addresses(fours)), *map(str, ipaddress.collapse_addresses(sixes))]
