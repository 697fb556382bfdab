"""What stage os_prep changes on a machine, and how that is undone, in words out of the node profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workflows.stages.stage import Object

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
"""What a spec or its criteria add, by the profile's key."""


def changed(profile: Object) -> str:
    """Everything that the profile sets, but for what it only looks at."""
    said = profile | profile.get("gpu", {})
    parts = ["hostname, /etc/hosts, packages, kernel modules, sysctls, limits of locked memory"]
    parts += ["swap off (also in /etc/fstab)"] if said.get("swap_off") else []
    parts += ["time service"] if said.get("time_service") else []
    parts += [f"{_listed(names)} {state}" for state in ("stopped", "masked") if (names := _services(said, state))]
    parts += [word for key, word in _FURTHER.items() if said.get(key)]
    parts += [f"SELinux {said['selinux']}"] if said.get("selinux") else []
    parts += [f"AppArmor {said['apparmor']}"] if said.get("apparmor") else []
    parts += [
        f"dnf repository of {package} ({entry['keys'].get('baseurl', 'no URL known')})"
        for package, entry in said.get("repositories", {}).items()
    ]
    return ", ".join(parts)


def undone(profile: Object) -> str:
    """The way back, by hand: what was there before is known to the machine alone."""
    return "; ".join([*_steps(profile | profile.get("gpu", {})), "reboot; packages, users and the hostname stay"])


def _steps(said: Object) -> Iterator[str]:
    ours = "90-bringup*, zz-bringup* and bringup-*"
    yield f"remove the files named {ours} below /etc and /usr/local/sbin"
    yield "remove bringup's lines of /etc/hosts, and take `# bringup: ` away from the lines there that begin with it"
    if said.get("swap_off"):
        yield "take `# bringup: ` away from the lines of /etc/fstab"
    if masked := _services(said, "masked"):
        yield f"unmask {_listed(masked)}"
    if stopped := _services(said, "stopped"):
        yield f"enable {_listed(stopped)} again where they ran"
    if said.get("firewall"):
        yield _closed(said["firewall"])
    system = said.get("system", {})
    if said.get("time_servers") and system.get("chrony"):
        yield f"put {system['chrony']}.before-bringup back to its place"
    if said.get("kernel_parameters"):
        yield _boot_loader(str(system.get("boot_loader", "")), said["kernel_parameters"])
    if said.get("selinux"):
        yield "give /etc/selinux/config the mode it had"
    for entry in said.get("repositories", {}).values():
        yield f"remove {entry['path']} where its first line says that bringup made it"
    if said.get("interface_names"):
        yield "remove /etc/systemd/network/10-bringup-*.link"
    if said.get("routes"):
        yield "take the routes out of NetworkManager's connections, where it configures their interfaces"
    if said.get("dns"):
        yield "give /etc/resolv.conf the servers it had, where no service writes it"
    if (said.get("blacklist") or said.get("interface_names")) and system.get("initramfs"):
        yield f"run {' '.join(system['initramfs'])}"


def _closed(openings: Object) -> str:
    """How a firewall is closed again: our rules in ufw are marked, those in firewalld are known by what they let in."""
    ports = sorted(port for key in ("api", "servers", "nodes") for port in openings.get(key, ()))
    trusted = " and ".join(openings.get("pods", ()))
    ufw = "delete ufw's rules with the comment `made by bringup`"
    return (
        f"close {', '.join(ports)} in firewalld's zones, and take {trusted} from its zone trusted (a reset leaves them too); {ufw}"
    )


def _boot_loader(adapter: str, parameters: Sequence[str]) -> str:
    """How the kernel's command line is made as it was, with the boot loader of the distribution."""
    words = " ".join(parameters)
    return {
        "update_grub": "run update-grub",
        "grubby": f"run grubby --update-kernel=ALL --remove-args='{words}'",
    }.get(adapter, f"take {words} out of /etc/default/grub and run grub2-mkconfig -o /boot/grub2/grub.cfg")


def _services(said: Object, wanted: str) -> list[str]:
    """Units of the profile in a state; a service and its timer are one."""
    names = (name for name, state in sorted(said.get("services", {}).items()) if state == wanted)
    return list(dict.fromkeys(name.removesuffix(".service").removesuffix(".timer") for name in names))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
