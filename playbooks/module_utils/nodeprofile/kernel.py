"""Kernel modules, and sysctls as the running kernel has them (their files are among the files)."""

from __future__ import annotations

import os
import re

from ansible.module_utils.nodeprofile.item import CannotChange, Item, Node, Unavailable, Waiting, read_text, settle

MODULES = "/lib/modules"
AT_LEAST = ("fs.inotify.", "vm.max_map_count")
"""Sysctls that are room for programs: what a distribution or a site has more of stays, as less of it breaks what runs there."""


def modules(node: Node, wanted: dict, root: str = "", *, rebooted: bool = False) -> list:
    """Modules to be in the kernel, by name; the path beside it tells it of one that is built in without a trace. `rebooted`: the
    machine was booted for what only a newer kernel has, so that waiting is over."""
    return [_module(node, name, evidence or "", root, rebooted) for name, evidence in sorted(wanted.items())]


def _module(node: Node, name: str, evidence: str, root: str, rebooted: bool) -> Item:
    def read() -> str:
        if is_loaded(name, root) or (evidence and os.path.exists(root + evidence)) or _built_in(name, root):
            return "loaded"
        if node.run("modinfo", name)[0] == 0:
            return "absent"
        newer = _newer_with(node, name, root)
        if newer and rebooted:
            raise CannotChange("the reboot did not bring kernel %s, which has it: choose it in the boot loader" % newer)
        if newer:
            raise Waiting("the next boot brings it, with kernel %s" % newer, "absent")
        raise Unavailable("this kernel has no module %s: install its modules package" % name)

    return settle(node, "module " + name, "loaded", read, lambda: _must(node, "modprobe", name))


def blacklist(node: Node, wanted: list, root: str = "") -> list:
    """Modules that must not be in the kernel; one that is in use leaves with the next boot only."""
    return [_unloaded(node, name, root) for name in wanted]


def _unloaded(node: Node, name: str, root: str) -> Item:
    def read() -> str:
        return "loaded" if is_loaded(name, root) else "not loaded"

    return settle(node, "module " + name, "not loaded", read, lambda: _must(node, "modprobe", "--remove", name))


def no_less(wanted: dict, root: str = "") -> dict:
    """The values, with those of the running kernel in place of lower ones where more is as good; a boot is to have them too."""
    return {key: _higher(key, str(value), root) if key.startswith(AT_LEAST) else value for key, value in wanted.items()}


def _higher(key: str, want: str, root: str) -> str:
    try:
        now = read_text(root + _path(key)).strip()
    except OSError:
        return want  # its item says why
    return now if now.isdigit() and want.isdigit() and int(now) > int(want) else want


def _path(key: str) -> str:
    return "/proc/sys/" + key.replace(".", "/")


def sysctls(node: Node, wanted: dict) -> list:
    """Values of the running kernel, blanks made equal."""
    return [_sysctl(node, key, " ".join(str(value).split())) for key, value in sorted(wanted.items())]


def _sysctl(node: Node, key: str, want: str) -> Item:
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
    """Whether the module is in the running kernel, as a module or, where it left a trace, built in."""
    return os.path.exists(root + "/sys/module/" + name.replace("-", "_"))


def _newer_with(node: Node, name: str, root: str) -> str:
    """The newest installed kernel after the running one, where it has the module: the package of a module may have brought it."""
    running, folder = os.uname().release, root + MODULES
    installed = sorted(os.listdir(folder), key=_numbers) if os.path.isdir(folder) else []
    newer = [release for release in installed if _numbers(release) > _numbers(running)]
    return newer[-1] if newer and node.run("modinfo", "-k", newer[-1], name)[0] == 0 else ""


def _numbers(release: str) -> list:
    return [int(number) for number in re.findall(r"[0-9]+", release)]


def _built_in(name: str, root: str) -> bool:
    listed = read_text(root + "/lib/modules/%s/modules.builtin" % os.uname().release)
    return any(line.endswith("/%s.ko" % name) for line in listed.splitlines())


def _must(node: Node, *command: str) -> None:
    node.must(*command)
