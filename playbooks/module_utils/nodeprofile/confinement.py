"""SELinux and AppArmor: what confines programs on this machine. SELinux's mode is set now and for the next boots, AppArmor's by the
kernel's command line."""

from __future__ import annotations

import os
import re

from ansible.module_utils.nodeprofile.item import CannotChange, Node, Unavailable, Waiting, read_text, settle

ENFORCE = "/sys/fs/selinux/enforce"
CONFIG = "/etc/selinux/config"
PARSER = "apparmor_parser"


def selinux(node: Node, wanted: str, root: str = "") -> list:
    """`enforcing` or `permissive`. A machine that booted with SELinux disabled is left alone: its files have no labels."""
    if not wanted:
        return []

    def read() -> str:
        if not os.path.exists(root + CONFIG):
            raise Unavailable("this machine has no SELinux")
        now, kept = selinux_mode(root), _at_boot(root) or _kept(root)
        return now if now == kept else "%s, and %s after a boot" % (now, kept)

    def change() -> None:
        if selinux_mode(root) == "disabled":
            raise CannotChange("SELinux is disabled: label the files first (fixfiles -F onboot), and boot with it")
        if _at_boot(root) not in ("", wanted):
            raise CannotChange("the kernel's command line has enforcing=, which goes before its configuration: take it out there")
        node.write(root + CONFIG, _with_mode(read_text(root + CONFIG), wanted), 0o644)
        with open(root + ENFORCE, "w") as out:
            out.write("1" if wanted == "enforcing" else "0")

    return [settle(node, "SELinux", wanted, read, change)]


def selinux_mode(root: str = "") -> str:
    """enforcing, permissive or disabled; empty where the machine has no SELinux at all."""
    text = read_text(root + ENFORCE).strip()
    if text:
        return "enforcing" if text == "1" else "permissive"
    return "disabled" if os.path.exists(root + CONFIG) else ""


def apparmor(node: Node, wanted: str, waiting: list, rebooted: bool, root: str = "") -> list:
    """`enabled` or `disabled`; empty: as it is. Where it is enabled, its parser must be there: containerd loads a profile for
    each pod. `waiting` is what the next boot will bring of the kernel's command line."""
    mode = apparmor_mode(root)
    if not wanted and not mode:
        return []

    def read() -> str:
        now = apparmor_mode(root)
        if not now:
            raise Unavailable("this kernel has no AppArmor")
        if now != (wanted or now):
            if any("apparmor" in one for one in waiting) and not rebooted:
                raise Waiting("the next boot brings it", now)
            raise CannotChange("it is %s: see `apparmor` and `lsm` on the kernel's command line" % now)
        return now if now != "enabled" or node.has(PARSER) else "enabled, without %s" % PARSER

    def refuse() -> None:
        raise CannotChange("%s is missing, without which containerd starts no pod: install the package that has it" % PARSER)

    return [settle(node, "AppArmor", wanted or mode, read, refuse)]


def apparmor_parameters(wanted: str, root: str = "") -> list:
    """What the kernel's command line must say for it; nothing where it is so by itself, which spares a reboot."""
    told = any(word.startswith("apparmor=") for word in read_text(root + "/proc/cmdline").split())
    if not wanted or not apparmor_mode(root) or (apparmor_mode(root) == wanted and not told):
        return []
    return ["apparmor=%d" % (wanted == "enabled")]


def apparmor_mode(root: str = "") -> str:
    """enabled or disabled; empty where the kernel has no AppArmor."""
    text = read_text(root + "/sys/module/apparmor/parameters/enabled").strip()
    return {"Y": "enabled", "N": "disabled"}.get(text, "")


def _at_boot(root: str) -> str:
    """The mode that the kernel's command line asks for, whatever the configuration says; libselinux takes the first word."""
    words = [word for word in read_text(root + "/proc/cmdline").split() if word in ("enforcing=0", "enforcing=1")]
    return {"0": "permissive", "1": "enforcing"}[words[0][-1]] if words else ""


def _kept(root: str) -> str:
    found = re.search(r"^\s*SELINUX=(\w+)", read_text(root + CONFIG), re.MULTILINE)
    return found.group(1) if found else "unset"


def _with_mode(text: str, wanted: str) -> str:
    line = "SELINUX=" + wanted
    if re.search(r"^\s*SELINUX=\w+", text, re.MULTILINE):
        return re.sub(r"^\s*SELINUX=\w+", line, text, flags=re.MULTILINE)
    return text.rstrip("\n") + "\n" + line + "\n"
