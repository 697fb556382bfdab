"""Stage os_prep: one play brings every machine to the profile that RKE2 and the GPU stack need; its gate reads them again."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from workflows.spec.cluster import ClusterSpec
from workflows.spec.ranges import compress
from workflows.stages import rights
from workflows.stages.access import ssh_arguments
from workflows.stages.site import Site
from workflows.stages.stage import Change, Object, Stage, Step, When, task

ID: Final = "os_prep"
GATES = {"play": "os_prep/nodes"}
PLAY_SECONDS = 4200
"""A shard of 50 machines side by side: 900 s for the profile with its packages, 1,800 s for a reboot, 900 s for reading again."""

MIB = 1024
"""MiB in a GiB."""

ITEMS = (
    "root",
    "hostname*",
    "swap now",
    "module br_netfilter",
    "module nouveau",
    "sysctl net.ipv4.ip_forward",
    "sysctl fs.inotify.max_user_instances",
    "disk *",
)
"""Items that must be among those which the machine shows: a profile that forgot them would prove nothing."""


def build(site: Site) -> Stage | None:
    """Every machine is prepared: servers must all pass, agents by quorum."""
    members = "agent" if site.count("agent") else "server"
    names = compress(machine.name for machine in site.machines)
    return Stage(
        id=ID,
        title="Operating system",
        steps=(_play(site.spec), _judge(site, members)),
        gates=tuple(GATES.values()),
        changes=(
            Change(
                what="kernel modules, sysctls, limits, swap off, time service, packages, services",
                where=names,
                reboots=site.spec.os.reboot,
            ),
        ),
        rollback="remove the files named 90-bringup* below /etc, turn swap on again, and reboot; packages stay",
    )


def _play(spec: ClusterSpec) -> Step:
    arguments: Object = {
        "playbook": ID,
        "ssh": ssh_arguments(spec),
        "gate": "os_prep/nodes",
        "select": "all",
        "fanned": True,
        "variables": _variables(spec),
    }
    return Step(
        task=task(ID, "play", Verb.PLAY, deadline=PLAY_SECONDS, arguments=arguments, expectations=_expectations(spec)),
        fan_out="shards",
        rules=rights.CLAIM,  # machines of a cluster that another run may hold
    )


def _variables(spec: ClusterSpec) -> Object:
    """Variables of the role that the spec decides (`playbooks/roles/os_prep/meta/argument_specs.yml`)."""
    return {
        "os_prep_disks": [{"path": path, "free_mib": gib * MIB} for path, gib in sorted(spec.os.free_disk_gib.items())],
        "os_prep_time_servers": list(spec.os.time_servers),
        "os_prep_reboot": spec.os.reboot,
    }


def _expectations(spec: ClusterSpec) -> Object:
    """What the gate wants of each machine; the profile itself is the role's (`playbooks/roles/os_prep/defaults`)."""
    system = f"{spec.os.distribution} {spec.os.version}"
    wanted: Object = {
        "systems": [system] if "." in spec.os.version else [system, f"{system}.*"],
        "items": list(ITEMS),
        "disk_free_mib": {path: gib * MIB for path, gib in sorted(spec.os.free_disk_gib.items())},
        "tolerate": list(spec.os.tolerate),
    }
    if spec.os.kernel:
        wanted["kernel"] = spec.os.kernel
    if spec.accelerator is not None:
        wanted["driver_on_host"] = spec.accelerator.driver == "host"
    return wanted


def _judge(site: Site, members: str) -> Step:
    arguments: Object = {
        "checks": [{"task": name, "gate": gate} for name, gate in GATES.items()],
        "needed": site.needed(ID, members),
        "members": members,
        "required": "server",
        "cordon": False,
    }
    return Step(task=task(ID, "judge", Verb.JUDGE, deadline=600, arguments=arguments), after=tuple(GATES), when=When.ANYHOW)
