"""Files, directories, and the lines that we own in files of others."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket

from ansible.module_utils.nodeprofile.item import Item, Node, measured, read_text, settle

BEGIN = "# begin of bringup's lines\n"
END = "# end of bringup's lines\n"
MIB = 1024 * 1024


def files(node: Node, wanted: list) -> list:
    """Whole files: `path`, `content`, `mode`; only where `needs` exists; `reload` names what must learn of a change."""
    return [_file(node, entry) for entry in wanted if not entry["needs"] or os.path.exists(entry["needs"])]


def _file(node: Node, entry: dict) -> Item:
    path, content, mode = entry["path"], entry["content"], int(entry["mode"], 8)

    def read() -> str:
        return _signature(read_text(path), os.stat(path).st_mode & 0o7777) if os.path.exists(path) else "absent"

    before = read_text(path)
    result = settle(node, "file " + path, _signature(content, mode), read, lambda: node.write(path, content, mode))
    if result["status"] in ("changed", "differs"):
        node.diffs.append({"before_header": path, "after_header": path, "before": before, "after": content})
        if entry["reload"] and entry["reload"] not in node.reloads:
            node.reloads.append(entry["reload"])
    return result


def _signature(content: str, mode: int) -> str:
    return "%04o %s" % (mode, hashlib.sha256(content.encode()).hexdigest()[:12])


def directories(node: Node, wanted: list) -> list:
    """Directories: `path`, `mode`; owned by root."""
    return [_directory(node, entry["path"], int(entry["mode"], 8)) for entry in wanted]


def _directory(node: Node, path: str, mode: int) -> Item:
    def read() -> str:
        return "%04o" % (os.stat(path).st_mode & 0o7777) if os.path.isdir(path) else "absent"

    def change() -> None:
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)

    return settle(node, "directory " + path, "%04o" % mode, read, change)


def disks(wanted: list) -> list:
    """Free space: `path`, `free_mib`; a path that is not there yet counts as its nearest parent."""
    return [_disk(entry["path"], entry["free_mib"]) for entry in wanted]


def _disk(path: str, least: int) -> Item:
    free = shutil.disk_usage(existing(path)).free // MIB
    return measured(
        "disk " + path, free >= least, ">= %d MiB free" % least, "%d MiB free" % free, "No space left for what is to come"
    )


def existing(path: str) -> str:
    """The path, or its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def hostname(node: Node, want: str) -> list:
    """The name of the machine, now and after a reboot."""
    if not want:
        return []

    def read() -> str:
        now, kept = socket.gethostname(), read_text("/etc/hostname").strip()
        return now if now == kept else "%s, %s in /etc/hostname" % (now, kept)

    def change() -> None:
        node.write("/etc/hostname", want + "\n", 0o644)
        socket.sethostname(want)

    return [settle(node, "hostname", want, read, change)]


def hosts(node: Node, wanted: list) -> list:
    """Our block in /etc/hosts: `address`, `names`; the other lines stay."""
    if not wanted:
        return []
    block = BEGIN + "".join("%s %s\n" % (entry["address"], " ".join(entry["names"])) for entry in wanted) + END
    ours = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)

    def read() -> str:
        found = ours.search(read_text("/etc/hosts"))
        return _entries(found.group(0)) if found else "absent"

    def change() -> None:
        rest = ours.sub("", read_text("/etc/hosts"))
        node.write("/etc/hosts", rest + ("" if rest.endswith("\n") or not rest else "\n") + block, 0o644)

    return [settle(node, "hosts", _entries(block), read, change)]


def _entries(block: str) -> str:
    lines = block.splitlines()[1:-1]
    return lines[0] if len(lines) == 1 else "%d lines, %s" % (len(lines), hashlib.sha256(block.encode()).hexdigest()[:12])


def swap(node: Node, off: bool) -> list:
    """No swap: kubelet does not start with it, and a page of a pinned GPU buffer must not leave memory."""
    if not off:
        return []
    return [
        settle(node, "swap now", "off", _swap_now, lambda: _swapoff(node)),
        settle(node, "swap /etc/fstab", "not listed", _swap_listed, lambda: _unlist_swap(node)),
    ]


def _swap_now() -> str:
    return "on" if len(read_text("/proc/swaps").splitlines()) > 1 else "off"


def _swapoff(node: Node) -> None:
    node.must("swapoff", "--all")


def _is_swap(line: str) -> bool:
    fields = line.split()
    return len(fields) > 2 and not line.lstrip().startswith("#") and fields[2] == "swap"


def _swap_listed() -> str:
    return "listed" if any(_is_swap(line) for line in read_text("/etc/fstab").splitlines()) else "not listed"


def _unlist_swap(node: Node) -> None:
    lines = read_text("/etc/fstab").splitlines()
    node.write("/etc/fstab", "".join("%s%s\n" % ("# bringup: " if _is_swap(line) else "", line) for line in lines), 0o644)
