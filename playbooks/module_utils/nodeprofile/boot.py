"""The kernel's command line: kept where the boot loader reads it, and judged by what the running kernel was given."""

from __future__ import annotations

import os
import re
import shlex

from ansible.module_utils.nodeprofile.item import (
    CHANGED,
    DIFFERS,
    FAILED,
    OK,
    UNAVAILABLE,
    CannotChange,
    Item,
    Node,
    item,
    measured,
    read_text,
)

ON = "on the command line"
UNWRITTEN = "written, but the boot loader's menu does not have it, or has another value that counts"
SEVERAL = (
    *("console", "earlycon", "pci", "memmap", "crashkernel", "hugepagesz", "hugepages", "modprobe.blacklist"),
    *("rd.driver.blacklist", "rd.driver.pre", "rd.lvm.lv", "rd.lvm.vg", "rd.luks.uuid", "rd.md.uuid"),
    *("ip", "ifname", "nameserver", "systemd.setenv", "systemd.mask", "systemd.wants"),
)
"""Keys of which each value counts: more consoles, quirks and ranges, page counts for the size before them, more modules, what
dracut looks for before it mounts the root (without which a machine may not boot), and settings of systemd."""
SIZE = "hugepagesz"
"""The kernel ignores a size of pages that it was given before: of its counts the first one counts."""
GRUB = {
    "update_grub": (["update-grub"], "/boot/grub/grub.cfg"),
    "grub2_mkconfig": (["grub2-mkconfig", "-o", "/boot/grub2/grub.cfg"], "/boot/grub2/grub.cfg"),
}
"""Adapter → the command that writes the boot loader's menu, and the menu. `grubby` (boot loader entries) is the third adapter."""
DROP_IN = "/etc/default/grub.d/90-bringup.cfg"
DEFAULTS = "/etc/default/grub"
HUGE = "/sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages"
ASSIGNED = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?GRUB_CMDLINE_LINUX=((?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'#;\\])*)""", re.MULTILINE | re.DOTALL
)
"""An assignment, and its value as the shell reads one word."""
WHOLE = re.compile(r"""("(?:[^"\\]|\\.)*")|('[^']*')""", re.DOTALL)
KIB = {"2M": 2048, "1G": 1048576}


def parameters(node: Node, wanted: list, adapter: str, rebooted: bool) -> list:
    """Each parameter (several words where their order counts, as in `hugepagesz=1G hugepages=16`) is kept for the next boots; it
    is ok once the running kernel has it. `rebooted`: the machine was booted for it, so that waiting is over."""
    running = read_text("/proc/cmdline")
    error = ""
    try:
        kept = _kept(node, adapter)
        lacking = [one for one in wanted if kept and not all(_has(line, one, wanted) for line in kept)]
        if lacking and not node.check_mode:
            _keep(node, adapter, wanted, kept, lacking)
            kept = _kept(node, adapter)
    except (OSError, CannotChange) as reason:
        error, kept, lacking = str(reason), [], []
    in_menu = {one: all(_has(line, one, wanted) for line in kept) for one in wanted} if kept else {}
    runs = {one: _has(running, one, wanted) for one in wanted}
    return [_item(node, one, runs[one], in_menu.get(one), one in lacking, rebooted, error) for one in wanted]


def _item(node: Node, one: str, runs: bool, kept: "bool | None", lacked: bool, rebooted: bool, error: str) -> Item:
    """`kept`: whether every entry of the boot loader has it; None where no boot loader is known."""
    name = "kernel parameter " + one
    before = "lacks" if lacked else ""
    if error:
        return item(name, FAILED, want=ON, before=before, why=error)
    if kept is None:
        if runs:
            return item(name, OK, want=ON, after=ON)
        return item(name, UNAVAILABLE, want=ON, why="no boot loader that we know: give the parameter where this machine boots from")
    if not kept:
        if node.check_mode:
            return item(name, DIFFERS, want=ON, before="absent", after="absent")
        return item(name, FAILED, want=ON, before="absent", why=UNWRITTEN)
    if runs:
        return item(name, CHANGED if lacked else OK, want=ON, before="only until the next boot" if lacked else "", after=ON)
    if rebooted:
        why = "the reboot did not bring it: the machine boots with another menu than the one we wrote"
        return item(name, FAILED, want=ON, before="kept for the next boot", after="absent", why=why)
    node.reboots.append("kernel parameter %s" % one)
    why = "the next boot brings it"
    return item(name, CHANGED if lacked else DIFFERS, want=ON, before="absent", after="kept for the next boot", why=why)


def _has(line: str, parameter: str, wanted: list) -> bool:
    """Whether a command line gives the kernel a parameter: several words stand one after the other, and of a key that repeats the
    last value counts, where the kernel does not take each."""
    words, ours = line.split(), parameter.split()
    key = _key(parameter)
    if key == SIZE and ours[0] in words:
        return words[words.index(ours[0]) :][: len(ours)] == ours
    if len(ours) > 1 or key in SEVERAL or [_key(one) for one in wanted].count(key) > 1:
        return " %s " % " ".join(ours) in " %s " % " ".join(words)
    return [word for word in words if _key(word) == key][-1:] == [parameter]


def _key(word: str) -> str:
    """The kernel takes - and _ in names for the same."""
    return word.partition("=")[0].replace("-", "_")


def _kept(node: Node, adapter: str) -> list:
    """The command line of every entry of the boot loader; none where the machine boots some other way."""
    if adapter == "grubby":
        return re.findall(r'^args="(.*)"$', node.must("grubby", "--info=ALL"), re.MULTILINE) if node.has("grubby") else []
    command, menu = GRUB[adapter] if adapter else ([""], "")
    if not command[0] or not node.has(command[0]):
        return []
    lines = [line.strip() for line in read_text(menu).splitlines()]
    return [line for line in lines if line.startswith("linux") and "/vmlinu" in line]


def _keep(node: Node, adapter: str, wanted: list, kept: list, lacking: list) -> None:
    if adapter == "grubby":
        keys = _keys(lacking)
        given = [one for one in wanted if _keys([one]) & keys]  # others stay where they are: the last console= is /dev/console
        node.must("grubby", "--update-kernel=ALL", "--args=" + " ".join(_beside(kept, given) + given))
        return
    if adapter == "update_grub":
        words = " ".join(wanted)
        node.write(DROP_IN, '# Made by bringup.\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX %s"\n' % words, 0o644)
    else:
        node.write(DEFAULTS, merged(read_text(DEFAULTS), wanted), os.stat(DEFAULTS).st_mode & 0o7777)
    node.must(*GRUB[adapter][0])


def _beside(kept: list, wanted: list) -> list:
    """What the entries give already of keys of which each value counts: grubby takes all values of a key away for the one it adds,
    so that they are given once more, in their order."""
    keys = _keys(wanted) & set(SEVERAL)
    found: list = []
    for line in kept:
        text = " %s " % " ".join(word for word in _without_counts(line, wanted).split() if _key(word) in keys)
        for one in wanted:
            text = text.replace(" %s " % " ".join(one.split()), " ", 1)
        own = text.split()
        found = found or own
        found += [word for word in own if word not in found]
    return found


def _keys(parameters: list) -> set:
    return {_key(word) for one in parameters for word in one.split()}


def _without_counts(line: str, wanted: list) -> str:
    """Without the counts of pages of the sizes that are wanted: ours take their place."""
    for size in [word for one in wanted for word in one.split() if _key(word) == SIZE]:
        line = re.sub(r"(?<![^\s\"'])%s\s+hugepages=[^\s\"']*[ \t]*" % re.escape(size), "", line)
    return line


def merged(text: str, wanted: list) -> str:
    """/etc/default/grub with the parameters that its GRUB_CMDLINE_LINUX lacks; the shell keeps the last assignment."""
    found = list(ASSIGNED.finditer(text))
    if not found:
        return text.rstrip("\n") + '\nGRUB_CMDLINE_LINUX="%s"\n' % " ".join(wanted)
    start, word, end = found[-1].start(1), found[-1].group(1), found[-1].end(1)
    if text[end : end + 1] not in ("", " ", "\t", "\n", ";", "#"):
        raise CannotChange("%s: GRUB_CMDLINE_LINUX has a quote that nothing ends: correct it" % DEFAULTS)
    have = " ".join(shlex.split(word))
    lack = [one for one in wanted if not _has(have, one, wanted)]
    if not lack:
        return text
    word, lacking = _without_counts(word, lack), " ".join(lack)
    whole = WHOLE.fullmatch(word)
    if not " ".join(shlex.split(word)):
        word = '"%s"' % lacking
    elif whole:
        word = "%s %s%s" % (word[:-1], lacking, word[-1])
    else:
        word += '" %s"' % lacking
    return text[:start] + word + text[end:]


def hugepages(wanted: dict, waiting: list, shown: str = HUGE) -> list:
    """Huge pages that the running kernel has, by size (2M, 1G); `waiting` is what the next boot will bring, `shown` the file with
    the number of those of a size in KiB."""
    waits = any("hugepages" in one for one in waiting)
    return [_pages(size, least, waits, read_text(shown % KIB[size]).strip()) for size, least in sorted(wanted.items())]


def _pages(size: str, least: int, waits: bool, text: str) -> Item:
    name, want = "hugepages " + size, ">= %d" % least
    if not text:
        return item(name, UNAVAILABLE, want=want, why="this kernel has no huge pages of %s" % size)
    if int(text) < least and waits:
        return item(name, DIFFERS, want=want, after=text, why="the next boot brings them")
    return measured(name, int(text) >= least, want, text, "the kernel found no more memory in one piece: reboot, or ask for fewer")
