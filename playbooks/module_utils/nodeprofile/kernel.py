"""Kernel modules, and sysctls as the running kernel has them (their files are among the files)."""

from __future__ import annotations

import os

from ansible.module_utils.nodeprofile.item import Item, Node, Unavailable, read_text, settle


def modules(node: Node, wanted: dict, root: str = "") -> list:
    """Modules to be in the kernel, by name; the path beside it tells it of one that is built in without a trace."""
    return [_module(node, name, evidence or "", root) for name, evidence in sorted(wanted.items())]


def _module(node: Node, name: str, evidence: str, root: str) -> Item:
    def read() -> str:
        if is_loaded(name, root) or (evidence and os.path.exists(root + evidence)) or _built_in(name, root):
            return "loaded"
        if node.run("modinfo", name)[0] != 0:
            raise Unavailable("this kernel has no module %s: install its modules package" % name)
        return "absent"

    return settle(node, "module " + name, "loaded", read, lambda: _must(node, "modprobe", name))


def blacklist(node: Node, wanted: list, root: str = "") -> list:
    """Modules that must not be in the kernel; one that is in use leaves with the next boot only."""
    return [_unloaded(node, name, root) for name in wanted]


def _unloaded(node: Node, name: str, root: str) -> Item:
    def read() -> str:
        return "loaded" if is_loaded(name, root) else "not loaded"

    return settle(node, "module " + name, "not loaded", read, lambda: _must(node, "modprobe", "--remove", name))


def sysctls(node: Node, wanted: dict) -> list:
    """Values of the running kernel, blanks made equal."""
    return [_sysctl(node, key, " ".join(str(value).split())) for key, value in sorted(wanted.items())]


def _sysctl(node: Node, key: str, want: str) -> Item:
    path = "/proc/sys/" + key.replace(".", "/")

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


def _built_in(name: str, root: str) -> bool:
    listed = read_text(root + "/lib/modules/%s/modules.builtin" % os.uname().release)
    return any(line.endswith("/%s.ko" % name) for line in listed.splitlines())


def _must(node: Node, *command: str) -> None:
    node.must(*command)
