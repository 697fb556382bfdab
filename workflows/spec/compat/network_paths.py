"""Rules about the network paths to the machines and to the API server: P20, P22."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.spec.compat.rule_table import Platform, RuleFinding, rule
from workflows.spec.fields import is_ipv6

TUNNEL = "write target: {{server: https://127.0.0.1:6443}} and keep {} open; or that address, if it can be reached"


@rule("P20", "warning", source="https://docs.rke2.io/install/requirements")
def the_api_is_reached(platform: Platform) -> Iterator[RuleFinding]:
    """If SSH reaches the servers only through a jump host or proxy, the spec says how requests reach the API server."""
    spec = platform.spec
    ssh, servers = spec.ssh, spec.servers
    jumps = next(filter(None, (host.ssh_jump or ssh.jump_host for host in servers)), "")
    proxy = next(filter(None, (host.ssh_http_proxy or ssh.http_proxy for host in servers)), "")
    if not (jumps or proxy) or spec.target.server is not None or "rke2" not in spec.enabled_stages():
        return
    at = spec.registration_address
    address = f"[{at}]:6443" if ":" in at else f"{at}:6443"
    problem = f"SSH goes through {jumps or proxy}, but requests to the API server go straight to https://{address}"
    tunnel = f"`ssh -N -L 6443:{address} {_login(jumps)}`" if jumps else "a tunnel"
    yield RuleFinding("target.server", problem, TUNNEL.format(tunnel))


@rule("P22", "warning", source="https://docs.rke2.io/networking/basic_network_options")
def nodes_have_ipv4(platform: Platform) -> Iterator[RuleFinding]:
    """Every machine that SSH dials by IPv6 also has an IPv4 address, because nodes use IPv4 as pods do."""
    reported: set[str] = set()
    for machine in platform.spec.machines:
        if is_ipv6(machine.address) and machine.group not in reported:
            reported.add(machine.group)
            problem = f"SSH dials {machine.name} by IPv6, but nodes use IPv4 as pods do (rke2.cluster_cidr): RKE2 takes"
            problem += (
                " the address of the machine's IPv4 default route, or node-ip of a drop-in, and does not start without either"
            )
            fix = "see that the machine has one of the two, or give IPv4 addresses"
            yield RuleFinding(f"hosts.{machine.group}.addresses", problem, fix)


def _login(jumps: str) -> str:
    """Return the `ssh` arguments that log in to the last of several jump hosts through the others."""
    before, _, last = jumps.rpartition(",")
    return (f"-J {before} " if before else "") + (f"ssh://{last}" if ":" in last else last)
