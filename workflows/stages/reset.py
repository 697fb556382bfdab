"""Stage reset: remove RKE2 from machines, agents first; its gate counts what RKE2 left on each machine."""

from __future__ import annotations

from typing import Final

from steps.contract.host_ranges import fold
from steps.contract.task import Verb
from workflows.stages import rights
from workflows.stages.host_access import ssh_arguments
from workflows.stages.stage import Change, Object, Site, Stage, Step, judge_step, task

ID: Final = "reset"
PLAYBOOK = "rke2_reset"
SHARDS_AT_ONCE = 2
"""Number of shards at the same time while some servers stay.

All machines ask the same server to drain and delete their Nodes, with ten kubectl calls each.
"""
SECONDS = 1200
"""Time limit in seconds to clean a shard of 50 machines at the same time, after their pods have ended."""


def build(site: Site) -> Stage | None:
    """Return stage reset; agents go first, while the servers still run and can delete the agents' Nodes."""
    agents = (_play(site, "agent", fan_out="agents"),) if site.changeable_hosts("agent") else ()
    servers = (_play(site, "server", after=tuple(step.name for step in agents)),) if site.changeable_hosts("server") else ()
    steps = (*agents, *servers)
    names, before = site.changeable_hosts("all"), "drained, its Node deleted; " if _is_survived(site) else ""
    return Stage(
        id=ID,
        title="Take RKE2 off the machines",
        parallelism=SHARDS_AT_ONCE if _is_survived(site) else 0,
        steps=(*steps, _judge(site, steps)),
        gates=tuple(f"{ID}/{step.name}" for step in steps),
        changes=(Change(what=f"{before}RKE2, its containers, network, data and files are removed", where=fold(names)),),
        rollback="none: data of the removed servers and agents is gone; `bringup run` builds anew",
    )


def _play(site: Site, role: str, *, fan_out: str = "", after: tuple[str, ...] = ()) -> Step:
    addresses = (machine.address for machine in site.machines if machine.role == "server")
    servers = list(dict.fromkeys((site.spec.registration_address, *addresses)))
    arguments: Object = {
        "playbook": PLAYBOOK,
        "ssh": ssh_arguments(site.spec),
        "gate": f"{ID}/{role}s",
        "select": role,
        "may_be_down": True,
        "variables": {
            "rke2_reset_forget": _is_survived(site),
            "rke2_reset_servers": servers,
            "rke2_reset_pods": site.spec.rke2.cluster_cidr,
        },
    }
    if role == "server" and site.spec.rke2.virtual_address:
        arguments["variables"]["rke2_reset_virtual_address"] = site.spec.registration_address
    if _is_survived(site):
        arguments["helpers"] = "server"
        arguments["variables"] |= {
            "rke2_reset_drain_seconds": site.spec.rke2.drain_seconds,
            "rke2_registration_address": site.spec.registration_address,  # its servers delete the Nodes
        }
    if fan_out:
        arguments["fanned"] = True
    return Step(
        task=task(ID, f"{role}s", Verb.PLAY, deadline=SECONDS + site.spec.rke2.drain_seconds, arguments=arguments),
        after=after,
        fan_out=fan_out,
        rules=rights.CLAIM,
    )


def _is_survived(site: Site) -> bool:
    """Return True if at least one server stays, so that the Nodes and etcd members of the removed machines must be deleted."""
    return len(site.changeable_hosts("server")) < site.count("server")


def _judge(site: Site, steps: tuple[Step, ...]) -> Step:
    members = "agent" if site.changeable_hosts("agent") else "server"
    checks = [{"task": step.name, "gate": f"{ID}/{step.name}", "select": str(step.task.arguments["select"])} for step in steps]
    required = "server" if site.changeable_hosts("server") else ""
    return judge_step(ID, checks, needed=len(site.changeable_hosts(members)), members=members, required=required)
