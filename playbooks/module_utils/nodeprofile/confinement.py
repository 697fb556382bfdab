"""SELinux and AppArmor: what confines programs on this machine; the mode of SELinux is set now and for the next boots."""

from __future__ import annotations

import os
import re

from ansible.module_utils.nodeprofile.item import CannotChange, Node, Unavailable, read_text, settle

ENFORCE = "/sys/fs/selinux/enforce"
CONFIG = "/etc/selinux/config"


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


def apparmor_mode() -> str:
    """enabled or disabled; empty where the kernel has no AppArmor."""
    text = read_text("/sys/module/apparmor/parameters/enabled").strip()
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
