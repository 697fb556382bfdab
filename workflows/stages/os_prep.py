"""Stage os_prep: one play brings every machine to the profile that RKE2 and the GPU stack need; its gate reads them again."""

from __future__ import annotations

import ipaddress
from fnmatch import fnmatchcase
from typing import Final

from steps.contract.task import Verb
from workflows.catalog import criteria, profile
from workflows.spec.cluster import ClusterSpec
from workflows.spec.products import kubernetes
from workflows.spec.ranges import compress
from workflows.stages import os_prep_words, rights
from workflows.stages.access import ssh_arguments
from workflows.stages.site import Site
from workflows.stages.stage import Change, Object, Stage, Step, When, task

ID: Final = "os_prep"
GATES = {"play": "os_prep/nodes"}
PLAY_SECONDS = 4200
"""A shard of 50 machines side by side: 900 s for the profile with its packages, 1,380 s for a reboot, 900 s for reading again; the
rest is for logins (`playbooks/roles/os_prep/defaults`)."""

CGROUP_V2 = (1, 35, 0)
"""Kubernetes from which on a kubelet does not start with version 1 of control groups, unless its settings allow it."""
MIB = 1024
"""MiB in a GiB."""
TIME_SERVICE = "time service"
"""Item without which a machine's clock need not be synchronized, where it is tolerated."""
MELLANOX = "15b3"
"""PCI vendor of the NICs whose device ids a spec names."""
POLICY = "rke2-selinux"
"""The package of RKE2's SELinux policy."""

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
PROVEN = {
    "packages": "package",
    "modules": "module",
    "blacklist": "module",
    "sysctls": "sysctl",
    "directories": "directory",
    "services": "service",
    "disks": "disk",
    "kernel_parameters": "kernel parameter",
    "hugepages": "hugepages",
    "mounts": "mount",
    "repositories": "repository of",
    "system_users": "system user",
}
"""Parts of a profile each entry of which every machine shows as an item of its own, and the first word of its name."""
KEPT = {
    "modules": "file /etc/modules-load.d/*",
    "blacklist": "file /etc/modprobe.d/*",
    "sysctls": "file /etc/sysctl.d/*",
    "memlock": "file /etc/security/limits.d/*",
}
"""The file that brings a part again with the next boot."""
SINGLE = {
    "swap_off": "swap /etc/fstab",
    "time_service": TIME_SERVICE,
    "default_route": "default route",
    "dns": "DNS",
    "pcie_acs": "PCIe ACS",
    "firewall": "firewall",
}
"""Parts that are one item. Not among them: ports, which show nothing where RKE2 has them, and memlock, only systemd's; nor
the line in /etc/hosts, which a machine that is reached by a name has not."""


def build(site: Site) -> Stage | None:
    """Every machine is prepared: servers must all pass, agents by quorum."""
    members = "agent" if site.count("agent") else "server"
    names = compress(site.touched("all"))
    return Stage(
        id=ID,
        title="Operating system",
        steps=(_play(site.spec), _judge(site, members)),
        gates=tuple(GATES.values()),
        changes=(
            Change(
                what=os_prep_words.changed(node_profile(site.spec)),
                where=names,
                reboots=site.spec.os.reboot,
            ),
        ),
        rollback=os_prep_words.undone(node_profile(site.spec)),
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
    """Variables of the role (`playbooks/roles/os_prep/meta/argument_specs.yml`)."""
    told: Object = {"os_prep_profile": node_profile(spec), "os_prep_reboot": spec.os.reboot}
    return told if _asks_for_time(spec) else told | {"os_prep_clock_seconds": 0}


def _asks_for_time(spec: ClusterSpec) -> bool:
    """Whether a clock that is not synchronized is a fault here."""
    return not any(fnmatchcase(TIME_SERVICE, pattern) for pattern in spec.os.tolerate)


def node_profile(spec: ClusterSpec) -> Object:
    """The catalog's layers for this spec, and over them what the spec says itself. Kernel, huge pages, interfaces and routes are
    for the machines with GPUs, which the fabric connects; for all where none has GPUs."""
    general, special = profile.resolve(criteria.facts(spec))
    general = profile.over(profile.over(general, _of_all(spec)), _of_policy(spec, general))
    special = profile.over(special, _of_fast(spec))
    groups = [name for name, group in spec.hosts.items() if group.gpu]
    if not groups:
        return profile.over(general, special)
    return general | {"gpu_groups": groups, "gpu": special}


def _of_all(spec: ClusterSpec) -> Object:
    os = spec.os
    said: Object = {
        "disks": {path: gib * MIB for path, gib in sorted(os.free_disk_gib.items())},
        "mounts": {path: list(mount.filesystem) for path, mount in sorted(os.mounts.items())},
        "time_servers": list(os.time_servers),
        "dns": {"servers": list(os.dns.servers), "search": list(os.dns.search)} if os.dns else {},
        "users": [user.model_dump(mode="json", exclude_defaults=True) for user in os.users],
        "selinux": os.selinux or "",
        "apparmor": os.apparmor or "",
        "firewall": _let_in(spec) if os.firewall == "keep" else {},
    }
    return {key: value for key, value in said.items() if value}


def _of_policy(spec: ClusterSpec, general: Object) -> Object:
    """What the spec says of the repository of RKE2's SELinux policy, where the catalog's layers ask for that."""
    said = spec.os.rke2_repository
    if POLICY not in general.get("repositories", {}):
        return {}
    if not said.write:
        return {"repositories": {POLICY: None}}
    keys = {"baseurl": said.baseurl, "gpgkey": said.gpgkey, "repo_gpgcheck": "" if said.repo_gpgcheck else "0"}
    return {"repositories": {POLICY: {"keys": {key: value for key, value in keys.items() if value}}}}


def _let_in(spec: ClusterSpec) -> Object:
    """Networks that a firewall which stays must know; the ports are the catalog's."""
    pods = [str(ipaddress.ip_network(text)) for text in (spec.rke2.cluster_cidr, spec.rke2.service_cidr)]
    return {"pods": pods, "networks": list(spec.os.firewall_networks)}


def _of_fast(spec: ClusterSpec) -> Object:
    os, fabric = spec.os, spec.fabric
    parameters, sysctls = list(os.kernel_parameters), {}
    if os.hugepages and os.hugepages.size == "1G":
        parameters.append(f"hugepagesz=1G hugepages={os.hugepages.count}")
    elif os.hugepages:
        sysctls = {"vm.nr_hugepages": str(os.hugepages.count)}
    # a driver that the operator brings has no interfaces yet
    linked = fabric.kind != "none" and fabric.driver == "host" and (fabric.mtu or fabric.interfaces)
    said: Object = {
        "kernel_parameters": parameters,
        "sysctls": sysctls,
        "hugepages": {os.hugepages.size: os.hugepages.count} if os.hugepages else {},
        "links": _links(spec) if linked else {},
        "interface_names": dict(sorted(os.interface_names.items())),
        "routes": [route.model_dump(mode="json", exclude_none=True) for route in os.routes],
    }
    if fabric.kind != "none" and fabric.mode == "host_device" and (said["links"] or os.interface_names or os.routes):
        said["given_away"] = _devices(spec)
    return {key: value for key, value in said.items() if value}


def _devices(spec: ClusterSpec) -> list[str]:
    return [f"{MELLANOX}:{device}" for device in spec.fabric.device_ids]


def _links(spec: ClusterSpec) -> Object:
    names: Object = {"names": list(spec.fabric.interfaces)}
    devices: Object = {"devices": _devices(spec)}
    return (names if spec.fabric.interfaces else devices) | ({"mtu": spec.fabric.mtu} if spec.fabric.mtu else {})


def _expectations(spec: ClusterSpec) -> Object:
    """What the gate wants of each machine: the items that the profile must have shown, and what machines must be beside it."""
    system = f"{spec.os.distribution} {spec.os.version}"
    said = node_profile(spec)
    wanted: Object = {
        "systems": [system] if "." in spec.os.version else [system, f"{system}.*"],
        "items": list(dict.fromkeys([*ITEMS, *proven(said)])),
        "gpu_items": proven(said.get("gpu", {})),
        "disk_free_mib": {path: gib * MIB for path, gib in sorted(spec.os.free_disk_gib.items())},
        "tolerate": list(spec.os.tolerate),
    }
    if said.get("time_service") and _asks_for_time(spec):
        wanted["clock_synchronized"] = True
    if said.get("selinux"):
        wanted["selinux"] = said["selinux"]
    told = spec.rke2.kubelet_args.get("fail-cgroupv1") == "false" or spec.rke2.kubelet_config.get("failCgroupV1") is False
    if kubernetes(spec.rke2.version) >= CGROUP_V2 and not told:
        wanted["cgroup_v2"] = True
    if spec.os.kernel:
        wanted["kernel"] = spec.os.kernel
    if spec.accelerator is not None:
        wanted["driver_on_host"] = spec.accelerator.driver == "host"
    return {key: value for key, value in wanted.items() if value not in ([], {})}


def proven(part: Object) -> list[str]:
    """Names of the items by which a node shows that it got this part of a profile: a play that left one out proves nothing."""
    links = part.get("links", {})
    names = [f"{word} {one}" for key, word in PROVEN.items() for one in part.get(key, ())]
    names += [name for key, name in KEPT.items() if part.get(key)]
    names += [f"file {file['path']}" for file in part.get("files", ()) if not file.get("needs")]
    names += [f"user {user['name']}" for user in part.get("users", ())]
    names += [f"route {route['to']}" for route in part.get("routes", ())]
    names += [f"name of {address}" for address in part.get("interface_names", {}).values()]
    names += [f"link {name}" for name in links.get("names", ())] + (["MTU of *"] if links.get("mtu") else [])
    return names + [name for key, name in (SINGLE | profile.CONFINEMENT).items() if part.get(key)]


def _judge(site: Site, members: str) -> Step:
    arguments: Object = {
        "checks": [{"task": name, "gate": gate} for name, gate in GATES.items()],
        "needed": site.needed(ID, members),
        "members": members,
        "required": "server",
        "cordon": False,
    }
    return Step(task=task(ID, "judge", Verb.JUDGE, deadline=600, arguments=arguments), after=tuple(GATES), when=When.ANYHOW)
