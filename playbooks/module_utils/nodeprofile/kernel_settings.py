"""Kernel modules and sysctls of the running kernel. `profile_files` writes the files that set them at boot."""

from __future__ import annotations

import os
import re

from ansible.module_utils.nodeprofile.item import CannotChange, Item, NodeAccess, RebootPending, Unavailable, read_text, settle

MODULES = "/lib/modules"
MINIMUM_KEYS = ("fs.inotify.", "vm.max_map_count")
"""Prefixes of sysctls that are upper limits for programs. A higher value stays: lowering it would break programs."""


def modules(node: NodeAccess, wanted: dict, root: str = "", *, rebooted: bool = False) -> list:
    """Load each wanted kernel module and return one setting result for each.

    `wanted` maps a name to a path that exists if the module is built in. With `rebooted` (the machine was booted for a newer
    kernel) a missing module has failed.
    """
    return [_module(node, name, evidence or "", root, rebooted) for name, evidence in sorted(wanted.items())]


def _module(node: NodeAccess, name: str, evidence: str, root: str, rebooted: bool) -> Item:
    def read() -> str:
        if is_loaded(name, root) or (evidence and os.path.exists(root + evidence)) or _built_in(name, root):
            return "loaded"
        if node.run("modinfo", name)[0] == 0:
            return "absent"
        newer = _newer_kernel_with(node, name, root)
        if newer and rebooted:
            raise CannotChange("the reboot did not bring kernel %s, which has it: choose it in the boot loader" % newer)
        if newer:
            raise RebootPending("the next boot brings it, with kernel %s" % newer, "absent")
        raise Unavailable("this kernel has no module %s: install its modules package" % name)

    return settle(node, "module " + name, "loaded", read, lambda: node.must("modprobe", name))


def blacklist(node: NodeAccess, wanted: list, root: str = "") -> list:
    """Unload each kernel module that must not be loaded and return one setting result for each. A used one stays until a reboot."""
    return [_blacklisted_module(node, name, root) for name in wanted]


def _blacklisted_module(node: NodeAccess, name: str, root: str) -> Item:
    def read() -> str:
        return "loaded" if is_loaded(name, root) else "not loaded"

    return settle(node, "module " + name, "not loaded", read, lambda: node.must("modprobe", "--remove", name))


def at_least_running(wanted: dict, root: str = "") -> dict:
    """Return the wanted sysctls; those with a key in MINIMUM_KEYS get the running kernel's value where that is higher."""
    return {key: _higher(key, str(value), root) if key.startswith(MINIMUM_KEYS) else value for key, value in wanted.items()}


def _higher(key: str, want: str, root: str) -> str:
    try:
        present = read_text(root + _path(key)).strip()
    except OSError:
        return want  # its item says why
    return present if present.isdigit() and want.isdigit() and int(present) > int(want) else want


def _path(key: str) -> str:
    return "/proc/sys/" + key.replace(".", "/")


def sysctls(node: NodeAccess, wanted: dict) -> list:
    """Set each sysctl of the running kernel and return one setting result for each; runs of blanks in values count as one."""
    return [_sysctl(node, key, " ".join(str(value).split())) for key, value in sorted(wanted.items())]


def _sysctl(node: NodeAccess, key: str, want: str) -> Item:
    path = _path(key)

    def read() -> str:
        if not os.path.exists(path):
            raise Unavailable("this kernel has no %s" % key)
        return " ".join(read_text(path).split())

    def change() -> None:
        with open(path, "w") as out:
            out.write(want + "\n")

    return settle(node, "sysctl " + key, want, read, change)


def is_loaded(name: str, root: str = "") -> bool:
    """Return True if the kernel module is loaded, or built in and visible in /sys/module."""
    return os.path.exists(root + "/sys/module/" + name.replace("-", "_"))


def _newer_kernel_with(node: NodeAccess, name: str, root: str) -> str:
    """Return the release of the newest installed kernel if it is newer than the running one and has the module; else empty."""
    running, folder = os.uname().release, root + MODULES
    installed = sorted(os.listdir(folder), key=_numbers) if os.path.isdir(folder) else []
    newer = [release for release in installed if _numbers(release) > _numbers(running)]
    return newer[-1] if newer and node.run("modinfo", "-k", newer[-1], name)[0] == 0 else ""


def _numbers(release: str) -> list:
    return [int(number) for number in re.findall(r"[0-9]+", release)]


def _built_in(name: str, root: str) -> bool:
    listed = read_text(root + "/lib/modules/%s/modules.builtin" % os.uname().release)
    return any(line.endswith("/%s.ko" % name) for line in listed.splitlines())
