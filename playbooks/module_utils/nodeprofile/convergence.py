"""The order in which all host settings of a node profile are read and changed on this machine, and the reasons for a reboot."""

from __future__ import annotations

import os

from ansible.module_utils.nodeprofile import (
    boot_parameters,
    confinement,
    containerd_templates,
    facts,
    firewall,
    host_identity,
    kernel_headers,
    kernel_settings,
    link_names,
    link_types,
    links,
    machine_limits,
    os_packages,
    pcie_acs,
    pod_interfaces,
    pod_resolver,
    port_listeners,
    profile_files,
    resolver,
    routes,
    storage,
    systemd_services,
    user_accounts,
)
from ansible.module_utils.nodeprofile.item import (
    CHANGED,
    DIFFERS,
    FAILED,
    OK,
    UNAVAILABLE,
    Item,
    NodeAccess,
    Unavailable,
    item,
    measured,
)

NO_ROOT = "the SSH user needs sudo without a password, or its password in ssh.sudo_password"
CHRONY = "server %s iburst\n"
CHRONY_END = "driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\n"


def machine_profile(parameters: dict) -> dict:
    """Return this machine's profile from the module's parameters: the part for all machines, with the GPU part on GPU machines."""
    profile = dict(parameters["profile"])
    extra = profile.pop("gpu")
    gpu = bool(set(profile.pop("gpu_groups")) & set(parameters["groups"]))
    if gpu:
        profile = {key: _combined(value, extra[key]) for key, value in profile.items()}
    profile["sysctls"] = kernel_settings.at_least_running(profile["sysctls"])
    for key in ("hostname", "address", "rebooted_from"):
        profile[key] = parameters[key]
    profile["gpu_machine"] = gpu
    profile["server"] = "server" in parameters["groups"]
    return profile


def _combined(common: object, more: object) -> object:
    if isinstance(common, dict) and isinstance(more, dict):
        return dict(common, **more)
    if isinstance(common, list) and isinstance(more, list):
        return common + [entry for entry in more if entry not in common]
    return more or common


def settle_all(node: NodeAccess, want: dict) -> list:
    """Bring every host setting to its wanted value (in check mode: compare it) and return all setting results.

    Packages come before their services, and kernel modules before their sysctls.
    """
    system, rebooted = want["system"], bool(want["rebooted_from"])
    boot_loader, manager = _adapter(system, "boot_loader"), _adapter(system, "package_manager")
    # repositories before their packages; a machine of another distribution than the profile's gets none
    repositories = os_packages.repositories(node, want["repositories"] if manager else {})
    # first of all: a package may bring a kernel, whose boot entry needs our parameters
    installed = os_packages.packages(node, want["packages"], manager, int(system.get("lock_seconds") or 0))
    words = [*want["kernel_parameters"], *confinement.apparmor_parameters(want["apparmor"])]
    parameters = boot_parameters.parameters(node, words, boot_loader, rebooted)
    waiting = [entry["name"] for entry in parameters if entry["status"] in (CHANGED, DIFFERS)]
    return [
        measured("root", os.geteuid() == 0, "uid 0", "uid %d" % os.geteuid(), NO_ROOT),
        *machine_limits.limits(want["gpu_machine"]),
        *storage.disks(node, want["disks"]),
        *storage.mounts(want["mounts"]),
        *storage.executable(want["executable"]),
        *containerd_templates.templates(want["containerd_templates"]),
        *port_listeners.ports(node, port_listeners.ports_of_role(want)),
        *routes.default_route(want["default_route"]),
        *host_identity.hostname(node, want["hostname"]),
        *host_identity.hosts(node, want["address"], want["hostname"]),
        *host_identity.cloud_init_hosts(want["address"], want["hostname"]),
        *repositories,
        *installed,
        *kernel_headers.headers(node, want["kernel_headers"], manager),
        *profile_files.files(node, [*profile_files.boot_files(want), *chrony(want["time_servers"], system)]),
        *profile_files.directories(node, want["directories"]),
        *profile_files.swap(node, want["swap_off"]),
        *kernel_settings.modules(node, want["modules"], rebooted=rebooted),
        *kernel_settings.blacklist(node, want["blacklist"]),
        *kernel_settings.sysctls(node, want["sysctls"]),
        *parameters,
        *boot_parameters.hugepages(want["hugepages"], waiting),
        *confinement.selinux(node, want["selinux"]),
        *confinement.policy_modules(node, want["packages"], want["selinux"]),
        *confinement.apparmor(node, want["apparmor"], waiting, rebooted),
        *user_accounts.system_users(node, want["system_users"]),
        *user_accounts.users(node, want["users"]),
        *resolver.dns(node, want["dns"].get("servers") or [], want["dns"].get("search") or []),
        *pod_resolver.dns_of_pods(want["pod_resolv_conf"]),
        *_fabric(node, want, rebooted),
        *pcie_acs.acs(node, want["pcie_acs"]),
        *systemd_services.memlock(node, want["memlock"]),
        *systemd_services.services(node, want["services"], (system.get("time_services") or []) if want["time_service"] else []),
        *firewall.firewall(node, want["firewall"], want["server"], want["address"]),
        *systemd_services.reloads(node, system),
    ]


def _fabric(node: NodeAccess, want: dict, rebooted: bool) -> list:
    """Return the setting results for fabric interfaces: their names first, then MTUs and routes, which need the names."""
    mtus = dict.fromkeys(want["links"].get("names") or [], int(want["links"].get("mtu") or 0))
    pods = pod_interfaces.PodInterfaces(node, want["given_away"], list(mtus), want["interface_names"])
    named = link_names.named_links(node, want["interface_names"], mtus, want["address"], rebooted, pods)
    pending = link_names.names_after_boot(named)
    rows = [*named, *links.links(node, want["links"], pending, pods), *routes.routes(node, want["routes"], pending, pods)]
    rows += link_types.link_types(want["link_types"], pods)
    return rows + pods.summary()


def is_to_be_continued(items: list) -> bool:
    """Return True if a setting result waits for an interface name that only the requested reboot brings."""
    return any(entry["status"] == DIFFERS and entry.get("why") == links.NAME_AFTER_BOOT for entry in items)


def is_without_initramfs(items: list) -> bool:
    """Return True if making the initramfs failed: the machine might not boot, as dracut before 107 removes the old one first."""
    return any(entry["name"] == systemd_services.INITRAMFS and entry["status"] == FAILED for entry in items)


def _adapter(system: dict, key: str) -> str:
    """Return a setting of the profile's distribution; empty if this machine runs neither that distribution nor a derivative."""
    release = facts.os_release()
    ours = {release.get("ID", ""), *release.get("ID_LIKE", "").split()} & set(system.get("ids") or [])
    return str(system.get(key) or "") if ours else ""


def chrony(servers: list, system: dict) -> list:
    """Return the file entry of a chrony.conf with only these servers, in a list; empty without servers or a known path."""
    if not servers or not system.get("chrony"):
        return []
    content = "# Made by bringup.\n" + "".join(CHRONY % server for server in servers) + CHRONY_END
    return [{"path": system["chrony"], "content": content, "reload": "time", "aside": True}]


def confirm(changed: list, read: list) -> list:
    """Return the `changed` setting results, corrected by a second reading of the profile (`read`).

    A setting whose value did not last has failed.
    """
    again = {entry["name"]: entry for entry in read}
    return [_confirm_item(entry, again.get(entry["name"])) for entry in changed]


def _confirm_item(entry: Item, again: "Item | None") -> Item:
    if again is None or entry["status"] == again["status"]:
        return entry
    if again["status"] == OK:
        return dict(entry, status=CHANGED if entry["status"] == FAILED else entry["status"], after=again.get("after", ""))
    if again["status"] == CHANGED or entry["status"] not in (CHANGED, OK):
        return entry
    if again["status"] == UNAVAILABLE:
        known = {key: value for key, value in entry.items() if key != "after"}
        return dict(known, status=UNAVAILABLE, why=again.get("why", ""))
    waits = again["status"] == DIFFERS and "why" in again
    return dict(entry, status=DIFFERS if waits else FAILED, after=again.get("after", ""), why=_why_lost(entry, again, waits))


def _why_lost(entry: Item, again: Item, waits: bool) -> str:
    why = str(again.get("why", ""))
    if waits or entry["status"] == CHANGED:
        return why or "changed, and something changed it back at once"
    return "it was as wanted, and another change undid it%s" % (": " + why if why else "")


def packages_need_reboot(node: NodeAccess, want: dict) -> tuple:
    """Return True if an installed package needs a reboot, and a list of one setting result if the package manager cannot tell."""
    try:
        return os_packages.asks_for_reboot(node, _adapter(want["system"], "package_manager")), []
    except Unavailable as reason:
        return False, [item("reboot for packages", UNAVAILABLE, want="known", why=str(reason))]


def reboot_reasons(node: NodeAccess, want: dict, asking: bool) -> list:
    """Return why the machine needs a reboot: settings recorded it, a package asks (`asking`), a blacklisted module is loaded."""
    packages = ["a package asks for it"] if asking else []
    loaded = ["%s is loaded" % name for name in want["blacklist"] if kernel_settings.is_loaded(name)]
    return [*dict.fromkeys(node.reboots), *packages, *loaded]
