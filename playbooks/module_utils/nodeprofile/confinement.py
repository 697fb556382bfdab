"""SELinux's mode, set now and for later boots, and AppArmor's mode, set by the kernel's command line."""

from __future__ import annotations

import os
import re

from ansible.module_utils.nodeprofile.item import CannotChange, NodeAccess, RebootPending, Unavailable, read_text, settle

ENFORCE = "/sys/fs/selinux/enforce"
CONFIG = "/etc/selinux/config"
PARSER = "apparmor_parser"
LOADED = "loaded"
POLICIES = {"rke2-selinux": ("rke2", "/usr/share/selinux/packages/rke2.pp")}
"""Package → the SELinux policy module that it brings, and the module's file."""


def selinux(node: NodeAccess, wanted: str, root: str = "") -> list:
    """Set SELinux's mode and return its setting result in a list; an empty list if no mode is wanted.

    On a machine that booted with SELinux disabled the setting fails and nothing changes, because its files have no labels.
    """
    if not wanted:
        return []

    def read() -> str:
        if not os.path.exists(root + CONFIG):
            raise Unavailable("this machine has no SELinux")
        current, kept = selinux_mode(root), _mode_at_boot(root) or _configured_mode(root)
        return current if current == kept else "%s, and %s after a boot" % (current, kept)

    def change() -> None:
        if selinux_mode(root) == "disabled":
            raise CannotChange("SELinux is disabled: label the files first (fixfiles -F onboot), and boot with it")
        if _mode_at_boot(root) not in ("", wanted):
            raise CannotChange("the kernel's command line has enforcing=, which goes before its configuration: take it out there")
        node.write(root + CONFIG, _with_mode(read_text(root + CONFIG), wanted), 0o644)
        with open(root + ENFORCE, "w") as out:
            out.write("1" if wanted == "enforcing" else "0")

    return [settle(node, "SELinux", wanted, read, change)]


def policy_modules(node: NodeAccess, packages: list, wanted: str, root: str = "") -> list:
    """Return a setting result for each SELinux policy module that a package of the profile brings; none unless SELinux enforces.

    Such a package loads its module in a script after its files are there. If that fails, as with an older container-selinux, the
    package counts as installed and the module is missing (rancher/rke2-selinux#58).
    """
    return [
        _policy_module(node, package, *POLICIES[package], root=root)
        for package in packages
        if package in POLICIES and wanted == "enforcing" and selinux_mode(root)
    ]


def _policy_module(node: NodeAccess, package: str, module: str, path: str, root: str) -> dict:
    def read() -> str:
        modules = [line.split()[0] for line in node.must("semodule", "-l").splitlines() if line.strip()]
        return LOADED if module in modules else "not loaded"

    def change() -> None:
        there = "package %s is there, and its policy module is not loaded" % package
        if not os.path.exists(root + path):
            raise CannotChange("%s: it has no %s" % (there, path))
        try:
            node.must("semodule", "-i", root + path)
        except CannotChange as reason:
            raise CannotChange("%s: %s" % (there, reason)) from reason

    return settle(node, "SELinux module %s" % module, LOADED, read, change)


def selinux_mode(root: str = "") -> str:
    """Return SELinux's present mode: enforcing, permissive or disabled; empty if the machine has no SELinux."""
    text = read_text(root + ENFORCE).strip()
    if text:
        return "enforcing" if text == "1" else "permissive"
    return "disabled" if os.path.exists(root + CONFIG) else ""


def apparmor(node: NodeAccess, wanted: str, waiting: list, rebooted: bool, root: str = "") -> list:
    """Return the setting result for AppArmor's mode, `enabled` or `disabled`, in a list; empty `wanted` accepts the present mode.

    Where AppArmor is enabled its parser must be installed, because containerd loads a profile for each pod. `waiting` are names of
    kernel parameters that need a reboot. The list is empty if no mode is wanted and the kernel has no AppArmor.
    """
    mode = apparmor_mode(root)
    if not wanted and not mode:
        return []

    def read() -> str:
        current = apparmor_mode(root)
        if not current:
            raise Unavailable("this kernel has no AppArmor")
        if current != (wanted or current):
            if any("apparmor" in parameter for parameter in waiting) and not rebooted:
                raise RebootPending("the next boot brings it", current)
            raise CannotChange("it is %s: see `apparmor` and `lsm` on the kernel's command line" % current)
        return current if current != "enabled" or node.has(PARSER) else "enabled, without %s" % PARSER

    def refuse() -> None:
        raise CannotChange("%s is missing, without which containerd starts no pod: install the package that has it" % PARSER)

    return [settle(node, "AppArmor", wanted or mode, read, refuse)]


def apparmor_parameters(wanted: str, root: str = "") -> list:
    """Return the kernel parameters for the wanted AppArmor mode; an empty list if the kernel has that mode without a parameter."""
    is_on_command_line = any(word.startswith("apparmor=") for word in read_text(root + "/proc/cmdline").split())
    # the mode may come from a word on the command line, which must then stay in the boot loader's menu
    if not wanted or not apparmor_mode(root) or (apparmor_mode(root) == wanted and not is_on_command_line):
        return []
    return ["apparmor=%d" % (wanted == "enabled")]


def apparmor_mode(root: str = "") -> str:
    """Return AppArmor's present mode, enabled or disabled; empty if the kernel has no AppArmor."""
    text = read_text(root + "/sys/module/apparmor/parameters/enabled").strip()
    return {"Y": "enabled", "N": "disabled"}.get(text, "")


def _mode_at_boot(root: str) -> str:
    """Return the SELinux mode on the kernel's command line, which overrides the configuration; empty if there is none.

    libselinux takes the first such word.
    """
    words = [word for word in read_text(root + "/proc/cmdline").split() if word in ("enforcing=0", "enforcing=1")]
    return {"0": "permissive", "1": "enforcing"}[words[0][-1]] if words else ""


def _configured_mode(root: str) -> str:
    match = re.search(r"^\s*SELINUX=(\w+)", read_text(root + CONFIG), re.MULTILINE)
    return match.group(1) if match else "unset"


def _with_mode(text: str, wanted: str) -> str:
    line = "SELINUX=" + wanted
    if re.search(r"^\s*SELINUX=\w+", text, re.MULTILINE):
        return re.sub(r"^\s*SELINUX=\w+", line, text, flags=re.MULTILINE)
    return text.rstrip("\n") + "\n" + line + "\n"
