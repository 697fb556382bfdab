"""Sentences for the plan: the changes of stage os_prep on a machine and how to undo them, from the node profile."""

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
"""Words for the parts that a spec or its criteria add, by key of the profile."""


def changed(profile: Object) -> str:
    """Return the list of everything that the profile sets, without the parts that it only checks."""
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


def undone(profile: Object) -> str:
    """Return the steps to undo the profile by hand; only the machine itself knows its earlier state."""
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
    """Return how to close a firewall again: bringup's rules carry a mark in ufw, but in firewalld they show only by what they let
    in.
    """
    ports = sorted(port for key in ("api", "servers", "nodes") for port in openings.get(key, ()))
    trusted = " and ".join(openings.get("pods", ()))
    ufw = "delete ufw's rules with the comment `made by bringup`"
    return (
        f"close {', '.join(ports)} in firewalld's zones, and take {trusted} from its zone trusted (a reset leaves them too); {ufw}"
    )


def _boot_loader(adapter: str, parameters: Sequence[str]) -> str:
    """Return how to restore the kernel's command line with the boot loader of the distribution."""
    words = " ".join(parameters)
    return {
        "update_grub": "run update-grub",
        "grubby": f"run grubby --update-kernel=ALL --remove-args='{words}'",
    }.get(adapter, f"take {words} out of /etc/default/grub and run grub2-mkconfig -o /boot/grub2/grub.cfg")


def _services(settings: Object, wanted: str) -> list[str]:
    """Return the units that the profile puts into a state; a service and its timer count as one."""
    names = (name for name, state in sorted(settings.get("services", {}).items()) if state == wanted)
    return list(dict.fromkeys(name.removesuffix(".service").removesuffix(".timer") for name in names))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
