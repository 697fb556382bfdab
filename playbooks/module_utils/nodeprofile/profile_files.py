"""Files and directories of the profile, swap, and the files that restore kernel settings and limits after a boot."""

from __future__ import annotations

import hashlib
import os

from ansible.module_utils import selinux_labels
from ansible.module_utils.nodeprofile import folder_modes, systemd_services
from ansible.module_utils.nodeprofile.item import Item, NodeAccess, read_text, settle

OURS = folder_modes.OURS
BLACKLIST = "/etc/modprobe.d/90-bringup.conf"
DRACUT = "/etc/dracut.conf.d/90-bringup.conf"
SYSTEMD = "/etc/systemd/system.conf.d/90-bringup.conf"
IN_INITRAMFS = 'install_optional_items+=" %s "' % BLACKLIST
BACKUP_SUFFIX = ".before-bringup"
"""Suffix of the copy of a site's file that one of our files has replaced."""


def boot_files(want: dict) -> list:
    """Return the file entries that set modules, sysctls and limits again at the next boot, and the profile's own file entries."""
    memlock = want["memlock"]
    rows = ["%s %s memlock %s" % (user, kind, memlock) for user in ("*", "root") for kind in ("soft", "hard")]
    limits = ["[Manager]", "%s=%s" % (systemd_services.MEMLOCK, systemd_services.limit(memlock))]
    blacklist = [line for name in want["blacklist"] for line in ("blacklist " + name, "options %s modeset=0" % name)]
    return [
        _own_file("/etc/modules-load.d/90-bringup.conf", sorted(want["modules"])),
        _own_file(BLACKLIST, blacklist, reload="initramfs"),
        # an initramfs for any machine (dracut-config-generic, as in cloud images) has nothing of /etc/modprobe.d else
        _own_file(DRACUT, [IN_INITRAMFS] if want["blacklist"] else [], needs="/etc/dracut.conf.d", reload="initramfs"),
        # last of all: of two assignments a boot takes the later, and hardened images have theirs in 99-sysctl.conf and net_*.conf
        _own_file("/etc/sysctl.d/zz-bringup.conf", ["%s = %s" % pair for pair in sorted(want["sysctls"].items())]),
        # root is not among the users that * stands for
        _own_file("/etc/security/limits.d/90-bringup.conf", rows if memlock else []),
        # services do not pass pam_limits
        _own_file(SYSTEMD, limits if memlock else [], needs="/etc/systemd", reload="systemd"),
        *want["files"],
    ]


def _own_file(path: str, lines: list, needs: str = "", reload: str = "") -> dict:
    content = "".join(line + "\n" for line in [OURS, *lines]) if lines else ""
    return {"path": path, "content": content, "needs": needs, "reload": reload}


def files(node: NodeAccess, wanted: list) -> list:
    """Write the wanted files (`path`, `content`, `mode`) and return one setting result for each.

    A file is written only where `needs` exists. `reload` names the service or tool that must read a change. With `aside`, a file
    that is not ours is first saved under another name.
    """
    there = [entry for entry in wanted if not entry.get("needs") or os.path.exists(entry["needs"])]
    return [_file(node, entry) for entry in there if entry["content"]]


def _file(node: NodeAccess, entry: dict) -> Item:
    path, content, mode = entry["path"], entry["content"], entry.get("mode", "0644")
    return whole_file(node, "file " + path, path, content, mode, entry.get("reload", ""), aside=bool(entry.get("aside")))


def whole_file(
    node: NodeAccess, name: str, path: str, content: str, octal: str = "0644", reload: str = "", *, aside: bool = False
) -> Item:
    """Write one whole file if content, mode, owner or its folder's mode differ; return its setting result, named `name`."""
    mode = int(octal, 8)

    def read() -> str:
        if not os.path.exists(path):
            return "absent"
        closed = ", in a folder that is closed to others" if folder_modes.closed_folders(path, mode) else ""
        return _signature(read_text(path), os.stat(path).st_mode & 0o7777) + _foreign_owner(path) + closed

    def change() -> None:
        node.reload(reload)
        if aside and before and not before.startswith(OURS):
            node.write(path + BACKUP_SUFFIX, before, os.stat(path).st_mode & 0o7777)
        node.write(path, content, mode)

    before = read_text(path)
    result = settle(node, name, _signature(content, mode), read, change)
    if result["status"] in ("changed", "differs"):
        node.diffs.append({"before_header": path, "after_header": path, "before": before, "after": content})
    return result


def _foreign_owner(path: str) -> str:
    """Return a remark if neither root nor this user owns the file, else an empty string.

    Its owner could change a file that root relies on, and sudo ignores such a file.
    """
    owner = os.stat(path).st_uid
    return "" if owner in (0, os.geteuid()) else ", owned by uid %d" % owner


def _signature(content: str, mode: int) -> str:
    return "%04o %s" % (mode, hashlib.sha256(content.encode()).hexdigest()[:12])


def directories(node: NodeAccess, wanted: dict) -> list:
    """Create each wanted directory, owned by root and with its mode; return one setting result for each."""
    return [_directory(node, path, int(mode, 8)) for path, mode in sorted(wanted.items())]


def _directory(node: NodeAccess, path: str, mode: int) -> Item:
    def read() -> str:
        return "%04o%s" % (os.stat(path).st_mode & 0o7777, _foreign_owner(path)) if os.path.isdir(path) else "absent"

    def change() -> None:
        selinux_labels.make_folders(path)
        os.chmod(path, mode)
        if os.geteuid() == 0:
            os.chown(path, 0, 0)

    return settle(node, "directory " + path, "%04o" % mode, read, change)


def swap(node: NodeAccess, off: bool, root: str = "") -> list:
    """Turn swap off, now and in /etc/fstab, and return both setting results; an empty list unless `off`.

    The kubelet does not start with swap, and pages of pinned GPU buffers must stay in memory.
    """
    if not off:
        return []
    return [
        settle(node, "swap now", "off", lambda: _swap_now(root), lambda: node.must("swapoff", "--all")),
        settle(node, "swap /etc/fstab", "not listed", lambda: _swap_listed(root), lambda: _unlist_swap(node, root)),
    ]


def _swap_now(root: str) -> str:
    return "on" if len(read_text(root + "/proc/swaps").splitlines()) > 1 else "off"


def _is_swap(line: str) -> bool:
    fields = line.split()
    return len(fields) > 2 and not line.lstrip().startswith("#") and fields[2] == "swap"


def _swap_listed(root: str) -> str:
    return "listed" if any(_is_swap(line) for line in read_text(root + "/etc/fstab").splitlines()) else "not listed"


def _unlist_swap(node: NodeAccess, root: str) -> None:
    lines = read_text(root + "/etc/fstab").splitlines()
    node.write(root + "/etc/fstab", "".join("%s%s\n" % ("# bringup: " if _is_swap(line) else "", line) for line in lines), 0o644)
