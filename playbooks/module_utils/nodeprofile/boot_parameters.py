"""Kernel command-line parameters and huge pages: kept in the boot loader's configuration, and read back from the running kernel."""

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
    NodeAccess,
    item,
    measured,
    read_text,
)

ON = "on the command line"
UNWRITTEN = "written, but the boot loader's menu does not have it, or has another value that counts"
REPEATABLE = (
    *("console", "earlycon", "pci", "memmap", "crashkernel", "hugepagesz", "hugepages", "modprobe.blacklist"),
    *("rd.driver.blacklist", "rd.driver.pre", "rd.lvm.lv", "rd.lvm.vg", "rd.luks.uuid", "rd.md.uuid"),
    *("ip", "ifname", "nameserver", "systemd.setenv", "systemd.mask", "systemd.wants"),
)
"""Keys that may repeat and of which every value counts: consoles, device quirks, memory ranges, page counts, module lists, dracut's
root devices (without which a machine may not boot), and settings of systemd.
"""
SIZE = "hugepagesz"
"""Kernel parameter with a size of huge pages. Of several page counts for one size the kernel takes the first."""
GRUB = {
    "update_grub": (["update-grub"], "/boot/grub/grub.cfg"),
    "grub2_mkconfig": (["grub2-mkconfig", "-o", "/boot/grub2/grub.cfg"], "/boot/grub2/grub.cfg"),
}
"""Adapter → the command that writes the boot loader's menu, and the menu file. The third adapter, `grubby`, edits its entries."""
DROP_IN = "/etc/default/grub.d/90-bringup.cfg"
DEFAULTS = "/etc/default/grub"
HUGE = "/sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages"
ASSIGNMENT = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?GRUB_CMDLINE_LINUX=((?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'#;\\])*)""", re.MULTILINE | re.DOTALL
)
"""Pattern of a shell assignment of GRUB_CMDLINE_LINUX, whose value it captures as the shell reads one word."""
WHOLE = re.compile(r"""("(?:[^"\\]|\\.)*")|('[^']*')""", re.DOTALL)
KIB = {"2M": 2048, "1G": 1048576}


def parameters(node: NodeAccess, wanted: list, adapter: str, rebooted: bool) -> list:
    """Write missing kernel parameters into the boot loader's configuration and return one setting result for each wanted parameter.

    A result is `ok` once the running kernel has the parameter. A parameter may have several words whose order counts, as in
    `hugepagesz=1G hugepages=16`. With `rebooted` (the machine was booted for it) a missing parameter has failed.
    """
    running = read_text("/proc/cmdline")
    error = ""
    try:
        kept = _boot_entries(node, adapter)
        lacking = [parameter for parameter in wanted if kept and not all(_has_parameter(line, parameter, wanted) for line in kept)]
        if lacking and not node.check_mode:
            _write_parameters(node, adapter, wanted, kept, lacking)
            kept = _boot_entries(node, adapter)
    except (OSError, CannotChange) as reason:
        error, kept, lacking = str(reason), [], []
    in_menu = {parameter: all(_has_parameter(line, parameter, wanted) for line in kept) for parameter in wanted} if kept else {}
    runs = {parameter: _has_parameter(running, parameter, wanted) for parameter in wanted}
    return [_item(node, name, runs[name], in_menu.get(name), name in lacking, rebooted, error) for name in wanted]


def _item(node: NodeAccess, parameter: str, runs: bool, kept: "bool | None", lacked: bool, rebooted: bool, error: str) -> Item:
    """Return the setting result of one parameter. `kept`: every boot entry has it; None if the boot loader is unknown."""
    name = "kernel parameter " + parameter
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
    node.reboots.append("kernel parameter %s" % parameter)
    why = "the next boot brings it"
    return item(name, CHANGED if lacked else DIFFERS, want=ON, before="absent", after="kept for the next boot", why=why)


def _has_parameter(line: str, parameter: str, wanted: list) -> bool:
    """Return True if a kernel command line has this parameter, with its words in a row.

    Of a repeated key only the last value counts, unless the key is REPEATABLE or wanted several times: then any value does.
    """
    words, ours = line.split(), parameter.split()
    key = _key(parameter)
    if key == SIZE and ours[0] in words:
        return words[words.index(ours[0]) :][: len(ours)] == ours
    if len(ours) > 1 or key in REPEATABLE or [_key(other) for other in wanted].count(key) > 1:
        return " %s " % " ".join(ours) in " %s " % " ".join(words)
    return [word for word in words if _key(word) == key][-1:] == [parameter]


def _key(word: str) -> str:
    """Return the part of a word before `=`, with - as _, because the kernel takes both for the same."""
    return word.partition("=")[0].replace("-", "_")


def _boot_entries(node: NodeAccess, adapter: str) -> list:
    """Return the kernel command line of every boot entry; empty if the machine does not boot by the loader of `adapter`."""
    if adapter == "grubby":
        return re.findall(r'^args="(.*)"$', node.must("grubby", "--info=ALL"), re.MULTILINE) if node.has("grubby") else []
    command, menu = GRUB[adapter] if adapter else ([""], "")
    if not command[0] or not node.has(command[0]):
        return []
    lines = [line.strip() for line in read_text(menu).splitlines()]
    return [line for line in lines if line.startswith("linux") and "/vmlinu" in line]


def _write_parameters(node: NodeAccess, adapter: str, wanted: list, kept: list, lacking: list) -> None:
    if adapter == "grubby":
        keys = _keys(lacking)
        # others stay where they are: the last console= is /dev/console
        added = [parameter for parameter in wanted if _keys([parameter]) & keys]
        node.must("grubby", "--update-kernel=ALL", "--args=" + " ".join(_other_values(kept, added) + added))
        return
    if adapter == "update_grub":  # Debian's grub-mkconfig reads drop-ins
        words = " ".join(wanted)
        node.write(DROP_IN, '# Made by bringup.\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX %s"\n' % words, 0o644)
    else:
        node.write(DEFAULTS, with_parameters(read_text(DEFAULTS), wanted), os.stat(DEFAULTS).st_mode & 0o7777)
    node.must(*GRUB[adapter][0])


def _other_values(kept: list, wanted: list) -> list:
    """Return the values that boot entries give to repeatable keys, in order, because grubby drops them when it adds a value."""
    keys = _keys(wanted) & set(REPEATABLE)
    values: list = []
    for line in kept:
        text = " %s " % " ".join(word for word in _without_page_counts(line, wanted).split() if _key(word) in keys)
        for parameter in wanted:
            text = text.replace(" %s " % " ".join(parameter.split()), " ", 1)
        own = text.split()
        values = values or own
        values += [word for word in own if word not in values]
    return values


def _keys(parameters: list) -> set:
    return {_key(word) for parameter in parameters for word in parameter.split()}


def _without_page_counts(line: str, wanted: list) -> str:
    """Return a command line without the huge page counts of those sizes for which `wanted` has a count."""
    for size in [word for parameter in wanted for word in parameter.split() if _key(word) == SIZE]:
        line = re.sub(r"(?<![^\s\"'])%s\s+hugepages=[^\s\"']*[ \t]*" % re.escape(size), "", line)
    return line


def with_parameters(text: str, wanted: list) -> str:
    """Return the text of /etc/default/grub with missing parameters added to its last GRUB_CMDLINE_LINUX.

    Raises CannotChange if that assignment has a quote without an end.
    """
    assignments = list(ASSIGNMENT.finditer(text))
    if not assignments:
        return text.rstrip("\n") + '\nGRUB_CMDLINE_LINUX="%s"\n' % " ".join(wanted)
    start, word, end = assignments[-1].start(1), assignments[-1].group(1), assignments[-1].end(1)
    if text[end : end + 1] not in ("", " ", "\t", "\n", ";", "#"):
        raise CannotChange("%s: GRUB_CMDLINE_LINUX has a quote that nothing ends: correct it" % DEFAULTS)
    have = " ".join(shlex.split(word))
    lack = [parameter for parameter in wanted if not _has_parameter(have, parameter, wanted)]
    if not lack:
        return text
    word, lacking = _without_page_counts(word, lack), " ".join(lack)
    whole = WHOLE.fullmatch(word)
    if not " ".join(shlex.split(word)):
        word = '"%s"' % lacking
    elif whole:
        word = "%s %s%s" % (word[:-1], lacking, word[-1])
    else:
        word += '" %s"' % lacking
    return text[:start] + word + text[end:]


def hugepages(wanted: dict, waiting: list, shown: str = HUGE) -> list:
    """Return one setting result for each wanted size of huge pages, measured on the running kernel.

    `waiting` are names of parameters that need a reboot; `shown` is the path of the kernel's page counter, with %d for KiB.
    """
    waits = any("hugepages" in parameter for parameter in waiting)
    return [_pages(size, least, waits, read_text(shown % KIB[size]).strip()) for size, least in sorted(wanted.items())]


def _pages(size: str, least: int, waits: bool, text: str) -> Item:
    name, want = "hugepages " + size, ">= %d" % least
    if not text:
        return item(name, UNAVAILABLE, want=want, why="this kernel has no huge pages of %s" % size)
    if int(text) < least and waits:
        return item(name, DIFFERS, want=want, after=text, why="the next boot brings them")
    return measured(name, int(text) >= least, want, text, "the kernel found no more memory in one piece: reboot, or ask for fewer")
