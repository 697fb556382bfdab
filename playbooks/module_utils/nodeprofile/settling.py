"""A profile from its first item to its last: what this machine must be, settled in the one order in which that works."""

from __future__ import annotations

import os

from ansible.module_utils.nodeprofile import (
    accounts,
    boot,
    confinement,
    facts,
    files,
    firewall,
    given,
    kernel,
    link_names,
    links,
    listening,
    names,
    own_name,
    packages,
    pci,
    repositories,
    routes,
    services,
    storage,
)
from ansible.module_utils.nodeprofile.item import CHANGED, DIFFERS, FAILED, OK, UNAVAILABLE, Item, Node, Unavailable, item, measured

NO_ROOT = "the SSH user needs sudo without a password, or its password in ssh.sudo_password"
CHRONY = "server %s iburst\n"
CHRONY_END = "driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\n"


def of_machine(parameters: dict) -> dict:
    """The profile of this machine out of the module's parameters: what all must be, and on GPU machines what those must be too."""
    profile = dict(parameters["profile"])
    extra = profile.pop("gpu")
    gpu = bool(set(profile.pop("gpu_groups")) & set(parameters["groups"]))
    if gpu:
        profile = {key: _both(value, extra[key]) for key, value in profile.items()}
    profile["sysctls"] = kernel.no_less(profile["sysctls"])
    for key in ("hostname", "address", "rebooted_from"):
        profile[key] = parameters[key]
    profile["gpu_machine"] = gpu
    profile["server"] = "server" in parameters["groups"]
    return profile


def _both(all_of_them: object, more: object) -> object:
    if isinstance(all_of_them, dict) and isinstance(more, dict):
        return dict(all_of_them, **more)
    if isinstance(all_of_them, list) and isinstance(more, list):
        return all_of_them + [one for one in more if one not in all_of_them]
    return more or all_of_them


def settle_all(node: Node, want: dict) -> list:
    """Every item of the profile: packages before the services that they bring, modules before their sysctls, reloads last."""
    system, rebooted = want["system"], bool(want["rebooted_from"])
    boot_loader, manager = _adapter(system, "boot_loader"), _adapter(system, "package_manager")
    # repositories before their packages; a machine of another distribution than the profile's gets none
    brought = repositories.repositories(node, want["repositories"] if manager else {})
    # first of all: a package may bring a kernel, whose boot entry needs our parameters
    installed = packages.packages(node, want["packages"], manager, int(system.get("lock_seconds") or 0))
    words = [*want["kernel_parameters"], *confinement.apparmor_parameters(want["apparmor"])]
    parameters = boot.parameters(node, words, boot_loader, rebooted)
    waiting = [entry["name"] for entry in parameters if entry["status"] in (CHANGED, DIFFERS)]
    return [
        measured("root", os.geteuid() == 0, "uid 0", "uid %d" % os.geteuid(), NO_ROOT),
        *storage.disks(node, want["disks"]),
        *storage.mounts(want["mounts"]),
        *listening.ports(node, listening.of_role(want)),
        *routes.default_route(want["default_route"]),
        *own_name.hostname(node, want["hostname"]),
        *own_name.hosts(node, want["address"], want["hostname"]),
        *own_name.over_boots(want["address"], want["hostname"]),
        *brought,
        *installed,
        *files.files(node, [*files.kept(want), *chrony(want["time_servers"], system)]),
        *files.directories(node, want["directories"]),
        *files.swap(node, want["swap_off"]),
        *kernel.modules(node, want["modules"], rebooted=rebooted),
        *kernel.blacklist(node, want["blacklist"]),
        *kernel.sysctls(node, want["sysctls"]),
        *parameters,
        *boot.hugepages(want["hugepages"], waiting),
        *confinement.selinux(node, want["selinux"]),
        *confinement.apparmor(node, want["apparmor"], waiting, rebooted),
        *accounts.system_users(node, want["system_users"]),
        *accounts.users(node, want["users"]),
        *names.dns(node, want["dns"].get("servers") or [], want["dns"].get("search") or []),
        *_fabric(node, want, rebooted),
        *pci.acs(node, want["pcie_acs"]),
        *services.memlock(node, want["memlock"]),
        *services.services(node, want["services"], (system.get("time_services") or []) if want["time_service"] else []),
        *firewall.firewall(node, want["firewall"], want["server"], want["address"]),
        *services.reloads(node, system),
    ]


def _fabric(node: Node, want: dict, rebooted: bool) -> list:
    """Interfaces by name, then what needs one of that name."""
    mtus = dict.fromkeys(want["links"].get("names") or [], int(want["links"].get("mtu") or 0))
    pods = given.Given(node, want["given_away"], list(mtus), want["interface_names"])
    named = link_names.named(node, want["interface_names"], mtus, want["address"], rebooted, pods)
    pending = link_names.pending(named)
    rows = [*named, *links.links(node, want["links"], pending, pods), *routes.routes(node, want["routes"], pending, pods)]
    return rows + pods.told()


def is_to_be_continued(items: list) -> bool:
    """Whether something can be changed only after the boot that the machine asks for."""
    return any(entry["status"] == DIFFERS and entry.get("why") == links.NAMED_LATER for entry in items)


def is_without_initramfs(items: list) -> bool:
    """Whether no boot may be asked for: its initramfs could not be made. dracut before 107 takes the old one away first, and
    a machine whose /boot is full has none then."""
    return any(entry["name"] == services.INITRAMFS and entry["status"] == FAILED for entry in items)


def _adapter(system: dict, key: str) -> str:
    """What the profile says of its distributions; nothing where this machine's, or one that it is like, is not among them."""
    release = facts.os_release()
    ours = {release.get("ID", ""), *release.get("ID_LIKE", "").split()} & set(system.get("ids") or [])
    return str(system.get(key) or "") if ours else ""


def chrony(servers: list, system: dict) -> list:
    """Chrony's file with these servers alone, in place of the distribution's."""
    if not servers or not system.get("chrony"):
        return []
    content = "# Made by bringup.\n" + "".join(CHRONY % server for server in servers) + CHRONY_END
    return [{"path": system["chrony"], "content": content, "reload": "time", "aside": True}]


def confirmed(changed: list, read: list) -> list:
    """What a second reading of the whole profile makes of the items: what did not last has failed, changed or as it was."""
    again = {entry["name"]: entry for entry in read}
    return [_confirmed(entry, again.get(entry["name"])) for entry in changed]


def _confirmed(entry: Item, again: "Item | None") -> Item:
    if again is None or entry["status"] == again["status"]:
        return entry
    if again["status"] == OK:
        return dict(entry, status=CHANGED if entry["status"] == FAILED else entry["status"], after=again.get("after", ""))
    if again["status"] == CHANGED or entry["status"] not in (CHANGED, OK):
        return entry
    if again["status"] == UNAVAILABLE:
        seen = {key: value for key, value in entry.items() if key != "after"}
        return dict(seen, status=UNAVAILABLE, why=again.get("why", ""))
    waits = again["status"] == DIFFERS and "why" in again
    return dict(entry, status=DIFFERS if waits else FAILED, after=again.get("after", ""), why=_lost(entry, again, waits))


def _lost(entry: Item, again: Item, waits: bool) -> str:
    why = str(again.get("why", ""))
    if waits or entry["status"] == CHANGED:
        return why or "changed, and something changed it back at once"
    return "it was as wanted, and another change undid it%s" % (": " + why if why else "")


def packages_ask(node: Node, want: dict) -> tuple:
    """Whether an installed package waits for a reboot; and an item that says so, where nobody can tell."""
    try:
        return packages.asks_for_reboot(node, _adapter(want["system"], "package_manager")), []
    except Unavailable as reason:
        return False, [item("reboot for packages", UNAVAILABLE, want="known", why=str(reason))]


def reboot_reasons(node: Node, want: dict, asking: bool) -> list:
    """What only a reboot changes: the kernel's command line, a newer kernel's modules, those in use, and what packages ask for."""
    asked = ["a package asks for it"] if asking else []
    loaded = ["%s is loaded" % name for name in want["blacklist"] if kernel.is_loaded(name)]
    return [*dict.fromkeys(node.reboots), *asked, *loaded]
