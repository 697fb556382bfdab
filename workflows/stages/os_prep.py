"""Stage os_prep: one play applies the node profile that RKE2 and the GPU stack need to every machine; its gate reads it back."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from steps.contract.host_ranges import fold
from steps.contract.task import Verb
from workflows.catalog import criteria, profile
from workflows.spec.accelerators import kubernetes
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.gpu_pools import GpuPool, gpu_pools
from workflows.stages import rights
from workflows.stages.host_access import ssh_arguments
from workflows.stages.stage import Change, Object, Site, Stage, Step, judge_step, task

_FURTHER = {
    "kernel_parameters": "kernel command line",
    "pcie_acs": "PCIe ACS off",
    "dns": "DNS",
    "users": "users",
    "links": "MTU",
    "interface_names": "names of interfaces",
    "routes": "routes",
    "time_servers": "time servers",
    "firewall": "what the cluster needs let in by a firewall that runs",
}
"""Profile key → words for it in the plan, for settings that only some specs have."""


def describe_changes(profile: Object) -> str:
    """Return a comma-separated text of everything that the profile sets, without what it only checks."""
    settings = profile | profile.get("gpu", {})
    parts = ["hostname, /etc/hosts, packages, kernel modules, sysctls, limits of locked memory"]
    parts += ["swap off (also in /etc/fstab)"] if settings.get("swap_off") else []
    parts += ["time service"] if settings.get("time_service") else []
    parts += [f"{_listed(names)} {state}" for state in ("stopped", "masked") if (names := _services(settings, state))]
    parts += [word for key, word in _FURTHER.items() if settings.get(key)]
    parts += [f"SELinux {settings['selinux']}"] if settings.get("selinux") else []
    parts += [f"AppArmor {settings['apparmor']}"] if settings.get("apparmor") else []
    parts += [
        f"dnf repository of {package} ({entry['keys'].get('baseurl', 'no URL known')})"
        for package, entry in settings.get("repositories", {}).items()
    ]
    return ", ".join(parts)


def describe_rollback(profile: Object) -> str:
    """Return a sentence with the steps to undo the profile by hand, because only the machine itself knows its earlier state."""
    return "; ".join([*_steps(profile | profile.get("gpu", {})), "reboot; packages, users and the hostname stay"])


def _steps(settings: Object) -> Iterator[str]:
    ours = "90-bringup*, zz-bringup* and bringup-*"
    yield f"remove the files named {ours} below /etc and /usr/local/sbin"
    yield "remove bringup's lines of /etc/hosts, and take `# bringup: ` away from the lines there that begin with it"
    if settings.get("swap_off"):
        yield "take `# bringup: ` away from the lines of /etc/fstab"
    if masked := _services(settings, "masked"):
        yield f"unmask {_listed(masked)}"
    if stopped := _services(settings, "stopped"):
        yield f"enable {_listed(stopped)} again where they ran"
    if settings.get("firewall"):
        yield _closed(settings["firewall"])
    system = settings.get("system", {})
    if settings.get("time_servers") and system.get("chrony"):
        yield f"put {system['chrony']}.before-bringup back to its place"
    if settings.get("kernel_parameters"):
        yield _boot_loader(str(system.get("boot_loader", "")), settings["kernel_parameters"])
    if settings.get("selinux"):
        yield "give /etc/selinux/config the mode it had"
    for entry in settings.get("repositories", {}).values():
        yield f"remove {entry['path']} where its first line says that bringup made it"
    if settings.get("interface_names"):
        yield "remove /etc/systemd/network/10-bringup-*.link"
    if settings.get("routes"):
        yield "take the routes out of NetworkManager's connections, where it configures their interfaces"
    if settings.get("dns"):
        yield "give /etc/resolv.conf the servers it had, where no service writes it"
    if (settings.get("blacklist") or settings.get("interface_names")) and system.get("initramfs"):
        yield f"run {' '.join(system['initramfs'])}"


def _closed(openings: Object) -> str:
    """Return the step to close the ports that bringup opened in a firewall.

    In ufw, bringup's rules have a comment; in firewalld only the list of ports and networks identifies them.
    """
    ports = sorted(port for key in ("api", "servers", "nodes") for port in openings.get(key, ()))
    trusted = " and ".join(openings.get("pods", ()))
    ufw = "delete ufw's rules with the comment `made by bringup`"
    return (
        f"close {', '.join(ports)} in firewalld's zones, and take {trusted} from its zone trusted (a reset leaves them too); {ufw}"
    )


def _boot_loader(adapter: str, parameters: Sequence[str]) -> str:
    """Return the step to remove kernel parameters with the boot loader tool of the distribution."""
    words = " ".join(parameters)
    return {"update_grub": "run update-grub", "grubby": f"run grubby --update-kernel=ALL --remove-args='{words}'"}.get(
        adapter, f"take {words} out of /etc/default/grub and run grub2-mkconfig -o /boot/grub2/grub.cfg"
    )


def _services(settings: Object, target_state: str) -> list[str]:
    """Return the units that the profile puts into the state `target_state`; a service and its timer are listed as one name."""
    names = (name for name, state in sorted(settings.get("services", {}).items()) if state == target_state)
    return list(dict.fromkeys(name.removesuffix(".service").removesuffix(".timer") for name in names))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


ID: Final = "os_prep"
GATES = {"play": "os_prep/nodes"}
PLAY_SECONDS = 4500
"""Time limit in seconds of the play for a shard of 50 machines at the same time.

The profile with its packages, and the wait for other work on the machine, take 1,200 s, a reboot 1,380 s, the second reading
900 s; the rest is for logins
(`playbooks/roles/os_prep/defaults`).
"""

CGROUP_V2 = (1, 35, 0)
"""First Kubernetes version whose kubelet does not start on cgroup version 1, unless its settings allow it."""
MIB = 1024
"""Number of MiB in a GiB."""
TIME_SERVICE = "time service"
"""Name of the time service's entry in a host report. A spec that tolerates its failure accepts clocks that are not synchronized."""
MELLANOX = "15b3"
"""PCI vendor id of the NICs whose device ids a spec names."""
LINK_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}
"""Kind of the fabric → the link layer of its ports, as the kernel names it."""
POLICY = "rke2-selinux"
"""Name of the package with RKE2's SELinux policy, and of its entry under `repositories` in the profile."""
RESOLV_CONF, RESOLV_CONF_FIELD = "resolv-conf", "resolvConf"
"""Setting of the kubelet that names the resolv.conf of pods, as an argument and as a field of KubeletConfiguration."""
POLICY_MODULE = "SELinux module rke2"
"""Name of that policy's module in a host report (`playbooks/module_utils/nodeprofile/confinement.py`)."""

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
"""Settings that every host report must show (name patterns), because a profile without them would prove nothing."""
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
    "executable": "exec",
}
"""Profile key → first word of the setting's name in a host report, for keys whose every entry has a result of its own."""
KEPT = {
    "modules": "file /etc/modules-load.d/*",
    "blacklist": "file /etc/modprobe.d/*",
    "sysctls": "file /etc/sysctl.d/*",
    "memlock": "file /etc/security/limits.d/*",
}
"""Profile key → file that applies this part of the profile again at the next boot."""
SINGLE = {
    "swap_off": "swap /etc/fstab",
    "time_service": TIME_SERVICE,
    "default_route": "default route",
    "dns": "DNS",
    "pcie_acs": "PCIe ACS",
    "firewall": "firewall",
    "containerd_templates": "containerd templates",
    "pod_resolv_conf": "DNS of pods",
    "background": "other work on the machine",
    "kernel_headers": "kernel headers",
    "link_types": "link type*",
}
"""Profile key → name of its single result in a host report.

Ports are missing because a machine with RKE2 reports none, memlock because only systemd's limit is reported. The line in /etc/hosts
does not exist on a machine that is reached by name.
"""


def build(site: Site) -> Stage | None:
    """Return stage os_prep, which covers every machine: all servers must pass, agents by quorum."""
    members = "agent" if site.count("agent") else "server"
    names, needed = fold(site.changeable_hosts("all")), site.needed(ID, members)
    checks = [{"task": name, "gate": gate} for name, gate in GATES.items()]
    return Stage(
        id=ID,
        title="Operating system",
        steps=(_play(site.spec), judge_step(ID, checks, needed=needed, members=members, required="server")),
        gates=tuple(GATES.values()),
        changes=(Change(what=describe_changes(node_profile(site.spec)), where=names, reboots=site.spec.os.reboot),),
        rollback=describe_rollback(node_profile(site.spec)),
    )


def _play(spec: ClusterSpec) -> Step:
    arguments: Object = {
        "playbook": ID,
        "ssh": ssh_arguments(spec),
        "gate": "os_prep/nodes",
        "select": "all",
        "fanned": True,
        # the variables of the role (`playbooks/roles/os_prep/meta/argument_specs.yml`)
        "variables": {
            "os_prep_profile": node_profile(spec),
            "os_prep_reboot": spec.os.reboot,
            **({} if _asks_for_time(spec) else {"os_prep_clock_seconds": 0}),
        },
    }
    return Step(
        task=task(ID, "play", Verb.PLAY, deadline=PLAY_SECONDS, arguments=arguments, expectations=_expectations(spec)),
        fan_out="shards",
        rules=rights.CLAIM,  # the machines may belong to a cluster whose lease another run holds
    )


def _planned_gpus(pool: GpuPool) -> Object:
    """Return the GPUs that machines of a pool show on the PCI bus, whatever shares them."""
    gpus = pool.accelerator
    others = {machine.name: machine.gpus for machine in pool.spec.gpu_machines if machine.gpus != gpus.per_node}
    # with a label of its own the product may be a variant of the one that the spec names
    product = {} if gpus.product_label else {"product": gpus.product}
    return {"groups": list(pool.groups), "gpus": gpus.per_node, **({"others": others} if others else {}), **product}


def _policy_items(node: Object) -> list[str]:
    """Return the names of the SELinux modules in a host report: a package can be installed without its module."""
    return [POLICY_MODULE] if node.get("selinux") == "enforcing" and POLICY in node.get("packages", ()) else []


def _asks_for_time(spec: ClusterSpec) -> bool:
    """Return True if the gate must fail a machine whose clock is not synchronized."""
    return not any(fnmatchcase(TIME_SERVICE, pattern) for pattern in spec.os.tolerate)


def node_profile(spec: ClusterSpec) -> Object:
    """Return the node profile for a spec: the catalog's layers, overridden by the spec's own settings.

    Additions for GPU machines are under `gpu`, and the names of their groups under `gpu_groups`. Kernel parameters, huge pages,
    interfaces and routes apply to GPU machines, which the fabric connects, or to all machines if none has GPUs.
    """
    general, special = profile.resolve(criteria.facts(spec))
    general = profile.merge_layers(profile.merge_layers(general, _of_all(spec)), _of_policy(spec, general))
    special = profile.merge_layers(special, _of_fast(spec))
    if path := spec.rke2.kubelet_args.get(RESOLV_CONF) or spec.rke2.kubelet_config.get(RESOLV_CONF_FIELD):
        general |= {"pod_resolv_conf": [str(path)]}
    groups = [name for name, group in spec.hosts.items() if group.gpu]
    if not groups:
        return profile.merge_layers(general, special)
    return general | {"gpu_groups": groups, "gpu": special}


def _of_all(spec: ClusterSpec) -> Object:
    os = spec.os
    settings: Object = {
        "disks": {path: gib * MIB for path, gib in sorted(os.free_disk_gib.items())},
        "mounts": {path: list(mount.filesystem) for path, mount in sorted(os.mounts.items())},
        "time_servers": list(os.time_servers),
        "dns": {"servers": list(os.dns.servers), "search": list(os.dns.search)} if os.dns else {},
        "users": [user.model_dump(mode="json", exclude_defaults=True) for user in os.users],
        "selinux": os.selinux or "",
        "apparmor": os.apparmor or "",
    }
    if os.firewall == "keep":  # the networks to let in; the catalog has the ports
        pods = [str(ipaddress.ip_network(text)) for text in (spec.rke2.cluster_cidr, spec.rke2.service_cidr)]
        settings["firewall"] = {"pods": pods, "networks": list(os.firewall_networks)}
    return {key: value for key, value in settings.items() if value}


def _of_policy(spec: ClusterSpec, general: Object) -> Object:
    """Return the profile part that changes the dnf repository of RKE2's SELinux policy as the spec says, or removes it.

    The result is empty if the catalog's layers do not use that repository.
    """
    repository = spec.os.rke2_repository
    if POLICY not in general.get("repositories", {}):
        return {}
    if not repository.write:
        return {"repositories": {POLICY: None}}
    keys = {"baseurl": repository.baseurl, "gpgkey": repository.gpgkey, "repo_gpgcheck": "" if repository.repo_gpgcheck else "0"}
    return {"repositories": {POLICY: {"keys": {key: value for key, value in keys.items() if value}}}}


def _of_fast(spec: ClusterSpec) -> Object:
    os, fabric = spec.os, spec.fabric
    parameters, sysctls = list(os.kernel_parameters), {}
    # pages of 1 GiB can be reserved reliably only at boot; those of 2 MiB also by sysctl
    if os.hugepages and os.hugepages.size == "1G":
        parameters.append(f"hugepagesz=1G hugepages={os.hugepages.count}")
    elif os.hugepages:
        sysctls = {"vm.nr_hugepages": str(os.hugepages.count)}
    # with the operator's driver the interfaces do not exist yet while this stage runs
    linked = fabric.kind != "none" and fabric.driver == "host" and (fabric.mtu or fabric.interfaces)
    settings: Object = {
        "kernel_parameters": parameters,
        "sysctls": sysctls,
        "hugepages": {os.hugepages.size: os.hugepages.count} if os.hugepages else {},
        "links": _links(spec) if linked else {},
        "interface_names": dict(sorted(os.interface_names.items())),
        "routes": [route.model_dump(mode="json", exclude_none=True) for route in os.routes],
        "kernel_headers": bool(built_drivers(spec)),
    }
    if fabric.kind != "none" and fabric.driver == "host":
        settings["link_types"] = {"layer": LINK_LAYERS[fabric.kind], "devices": _devices(spec), "count": fabric.nics_per_node}
        settings["link_types"] |= {"rails": list(fabric.rails)} if fabric.rails else {}
    looks_at_interfaces = settings["links"] or settings.get("link_types") or os.interface_names or os.routes
    if fabric.kind != "none" and fabric.mode == "host_device" and looks_at_interfaces:
        settings["given_away"] = _devices(spec)
    return {key: value for key, value in settings.items() if value}


def built_drivers(spec: ClusterSpec) -> list[str]:
    """Return the drivers that operators build on GPU machines for their running kernel, as words of a sentence."""
    override = spec.overrides.get("gpu_operator")
    driver = override.values.get("driver", {}) if override else {}
    is_precompiled = isinstance(driver, Mapping) and driver.get("usePrecompiled") is True
    drivers = ["the GPU Operator's NVIDIA driver"] if _has_operator_driver(spec) and not is_precompiled else []
    if spec.fabric.kind != "none" and spec.fabric.driver == "operator":
        drivers.append("the Network Operator's NIC driver")
    return drivers


def _has_operator_driver(spec: ClusterSpec) -> bool:
    return spec.accelerator is not None and spec.accelerator.driver == "operator"


def _devices(spec: ClusterSpec) -> list[str]:
    return [f"{MELLANOX}:{device}" for device in spec.fabric.device_ids]


def _links(spec: ClusterSpec) -> Object:
    names: Object = {"names": list(spec.fabric.interfaces)}
    devices: Object = {"devices": _devices(spec)}
    return (names if spec.fabric.interfaces else devices) | ({"mtu": spec.fabric.mtu} if spec.fabric.mtu else {})


def _expectations(spec: ClusterSpec) -> Object:
    """Return the expectation by which the gate of os_prep judges a machine: settings that its report must show, and other facts."""
    system = f"{spec.os.distribution} {spec.os.version}"
    node = node_profile(spec)
    expectations: Object = {
        # a version without a dot stands for all its minor releases
        "systems": [system] if "." in spec.os.version else [system, f"{system}.*"],
        "items": list(dict.fromkeys([*ITEMS, *proving_items(node), *_policy_items(node)])),
        "gpu_items": proving_items(node.get("gpu", {})),
        "disk_free_mib": {path: gib * MIB for path, gib in sorted(spec.os.free_disk_gib.items())},
        "tolerate": list(spec.os.tolerate),
    }
    if node.get("time_service") and _asks_for_time(spec):
        expectations["clock_synchronized"] = True
    if node.get("selinux"):
        expectations["selinux"] = node["selinux"]
    allows_cgroup_v1 = (
        spec.rke2.kubelet_args.get("fail-cgroupv1") == "false" or spec.rke2.kubelet_config.get("failCgroupV1") is False
    )
    if kubernetes(spec.rke2.version) >= CGROUP_V2 and not allows_cgroup_v1:
        expectations["cgroup_v2"] = True
    if spec.os.kernel:
        expectations["kernel"] = spec.os.kernel
    if spec.accelerator is not None:
        expectations["driver_on_host"] = spec.accelerator.driver == "host"
    expectations["pools"] = [_planned_gpus(pool) for pool in gpu_pools(spec)]
    expectations["built_drivers"] = built_drivers(spec)
    expectations["may_differ"] = spec.validation.allowed_differences
    if spec.fabric.kind != "none" and spec.fabric.driver == "operator":
        expectations["nics_on_host"] = False
    return {key: value for key, value in expectations.items() if value not in ([], {})}


def proving_items(part: Object) -> list[str]:
    """Return the names of the settings that a host report must show to prove that this part of a profile was applied.

    A report that lacks one of them proves nothing. Names may be patterns.
    """
    links = part.get("links", {})
    names = [f"{word} {entry}" for key, word in PROVEN.items() for entry in part.get(key, ())]
    names += [name for key, name in KEPT.items() if part.get(key)]
    names += [f"file {file['path']}" for file in part.get("files", ()) if not file.get("needs")]
    names += [f"user {user['name']}" for user in part.get("users", ())]
    names += [f"route {route['to']}" for route in part.get("routes", ())]
    names += [f"name of {address}" for address in part.get("interface_names", {}).values()]
    names += [f"link {name}" for name in links.get("names", ())] + (["MTU of *"] if links.get("mtu") else [])
    return names + [name for key, name in (SINGLE | profile.CONFINEMENT).items() if part.get(key)]
