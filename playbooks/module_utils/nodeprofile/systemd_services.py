"""Services, limits and reloads on machines where systemd is process 1. Elsewhere services are reported as unavailable."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Optional

from ansible.module_utils import polling
from ansible.module_utils.nodeprofile import reload_marks
from ansible.module_utils.nodeprofile.item import (
    CHANGED,
    FAILED,
    CannotChange,
    Item,
    NodeAccess,
    Unavailable,
    item,
    read_text,
    settle,
)

STARTED = "active, enabled"
STOPPED = "not active, not enabled"
MASKED = "masked"
PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,ConditionResult,ConditionTimestamp,NeedDaemonReload"

MEMLOCK = "DefaultLimitMEMLOCK"
RELOAD = "reload "
INITRAMFS = RELOAD + "initramfs"
"""Name of the setting result that says whether the next boot has a current initramfs."""
BOOTING = ("initializing", "starting")
BOOT_SECONDS = 180
"""Longest wait for the end of a boot, in seconds, because some unit may never end; then the machine is read as it is."""


def has_systemd(root: str = "") -> bool:
    """Return True if systemd is process 1 of this machine."""
    return os.path.isdir(root + "/run/systemd/system")


def wait_for_boot(node: NodeAccess, seconds: float = BOOT_SECONDS, pause: float = polling.FIRST) -> None:
    """Wait until systemd has started the units of the boot, for at most `seconds`.

    SSH answers earlier, when the time service does not run and PCIe ACS is still on.
    """
    for _ in polling.attempts(seconds, pause):
        if node.run("systemctl", "is-system-running")[1].strip() not in BOOTING:
            break


def services(node: NodeAccess, wanted: dict, time_services: list, root: str = "") -> list:
    """Bring units to their state (started, stopped or masked); return one setting result for each, and one for the time service.

    A unit that is not installed counts as stopped. All units are read in one call and changed with one reload, because each takes
    systemd 0.2 s.
    """
    try:
        states = _loaded_units(node, sorted({*wanted, *time_services})) if has_systemd(root) else {}
        rows = [_service(node, "service " + name, name, state, states.get(name)) for name, state in sorted(wanted.items())]
        if states and time_services and any(row["status"] in (CHANGED, FAILED) for row in rows):
            states = units(node, time_services)  # what was started or stopped just now may keep the clock
    except CannotChange as error:
        return [item("services", FAILED, want="what systemd says of them", why=str(error))]
    return rows + (_time_service(node, time_services, states, wanted) if time_services else [])


def _loaded_units(node: NodeAccess, names: list) -> dict:
    """Return systemd's properties of units, after a daemon-reload if their files changed; else new drop-ins would not count."""
    states = units(node, names)
    if node.check_mode or not any(unit["NeedDaemonReload"] == "yes" for unit in states.values()):
        return states
    node.must("systemctl", "daemon-reload")
    return units(node, names)


def _service(node: NodeAccess, label: str, name: str, state: str, seen: Optional[dict]) -> Item:
    if seen is None:
        status = "unavailable" if state == "started" else "ok"
        return item(label, status, want=state, why="no init runs services here")
    want = {"started": STARTED, "stopped": STOPPED, "masked": MASKED}[state]
    return settle(node, label, want, lambda: _state(name, want, seen), lambda: _change(node, name, state), seen_later=True)


def units(node: NodeAccess, names: list) -> dict:
    """Return unit name → systemd's properties of it, all read in one call. Raises CannotChange."""
    if not names:
        return {}
    output = node.must("systemctl", "show", "--property=" + PROPERTIES, *names)
    blocks = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in output.split("\n\n")]
    return dict(zip(names, blocks))


def _state(name: str, want: str, seen: dict) -> str:
    if seen["LoadState"] == "masked":
        return MASKED if want == MASKED else STOPPED
    if want == MASKED:
        return "not masked"
    if want == STARTED and seen["ConditionTimestamp"] and seen["ConditionResult"] == "no":
        raise Unavailable("systemd does not start %s here: a condition of the unit is not met" % name)
    active = "active" if seen["ActiveState"] in ("active", "reloading") else "not active"
    enabled = seen["UnitFileState"] in ("enabled", "enabled-runtime", "static", "alias", "generated")
    if want == STOPPED and seen["UnitFileState"] in ("static", "generated", "alias"):
        enabled = False
    return "%s, %s" % (active, "enabled" if enabled else "not enabled")


def _change(node: NodeAccess, name: str, state: str) -> None:
    verb = {"started": "enable", "stopped": "disable", "masked": "mask"}[state]
    node.reload("units")  # what fails may have changed links to unit files before
    node.must("systemctl", verb, "--now", "--no-reload", name)


def _time_service(node: NodeAccess, candidates: list, seen: dict, wanted: dict) -> list:
    """Return a setting result, in a list, for one running and enabled time service of `candidates`.

    If none runs, the first installed one is started that the profile (`wanted`) does not stop.
    """
    if not seen:
        running = running_time_service()
        status = "ok" if running else "unavailable"
        return [item("time service", status, want="active", after=running, why="" if running else "no init runs services here")]
    banned = {name for name, state in wanted.items() if state != "started"}
    candidates = [name for name in candidates if not banned & {name, seen[name]["Id"]}]
    active = [name for name in candidates if seen[name]["ActiveState"] == "active"]
    there = active or [name for name in candidates if seen[name]["LoadState"] == "loaded"]
    if active and _state(active[0], STARTED, seen[active[0]]) == STARTED:
        return [item("time service", "ok", want="active", after=active[0])]
    if not there:
        why = "none installed of: %s" % ", ".join(candidates) if candidates else "the profile stops all that keep the clock"
        return [item("time service", "failed", want="active", before="none", why=why)]
    return [_service(node, "time service", there[0], "started", seen[there[0]])]


def running_time_service() -> str:
    """Return the process name of a running time daemon, found in /proc; empty if there is none."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name = _command(pid)
        if name in ("chronyd", "ntpd", "systemd-timesyn", "ptp4l"):  # the kernel cuts names to 15 characters
            return name
    return ""


def _command(pid: str) -> str:
    try:
        return read_text("/proc/%s/comm" % pid).strip()
    except OSError:
        return ""  # the process ended while we looked


def limit(memlock: str) -> str:
    """Return a limit of locked memory in bytes or `infinity`, as systemd writes it, from KiB or `unlimited` (limits.conf(5))."""
    return str(int(memlock) * 1024) if memlock.isdigit() else "infinity"


def memlock(node: NodeAccess, wanted: str, root: str = "") -> list:
    """Set systemd's default limit of locked memory for services; return the setting result in a list, empty without systemd.

    The value is read from systemd, because the file alone is no proof: systemd may not have read it, or another file may override
    it. Without systemd only logins have limits.
    """
    if not wanted or not has_systemd(root):
        return []

    def read() -> str:
        return node.must("systemctl", "show", "--property=" + MEMLOCK).strip().partition("=")[2]

    return [settle(node, "memlock", limit(wanted), read, lambda: node.reload("systemd"), seen_later=True)]


def reloads(node: NodeAccess, system: dict, root: str = "") -> list:
    """Do each due reload, including those that an earlier run left, and return one setting result for each.

    A reload that fails, or that is due in check mode, gives a failed result.
    """
    names = dict.fromkeys([*node.reloads, *reload_marks.due_reloads(root)])
    if "systemd" in names:
        names.pop("units", None)  # it reads these again with all else
    return [row for name in names for row in _reloaded(node, name, system, root)]


def _reload_command(node: NodeAccess, name: str, system: dict, root: str) -> list:
    """Return the command for a reload; empty if nothing has to reload, as on a network-booted machine without an initramfs tool."""
    if name == "initramfs":
        command = system.get("initramfs") or []
        return command if command and node.has(command[0]) else []
    if not has_systemd(root):
        return []
    if name in ("systemd", "units"):
        return ["systemctl", "daemon-reexec" if name == "systemd" else "daemon-reload"]
    follower, verb = {
        "networkmanager": ("NetworkManager.service", "try-reload-or-restart"),
        "time": (next(iter(system.get("time_services") or []), ""), "try-restart"),
    }.get(name, ("", ""))
    # one that does not run reads its files when it starts
    return ["systemctl", verb, follower] if follower and units(node, [follower])[follower]["ActiveState"] != "inactive" else []


def _reloaded(node: NodeAccess, name: str, system: dict, root: str) -> list:
    label = RELOAD + name
    try:
        command = _reload_command(node, name, system, root)
        if command and node.check_mode:
            return [item(label, FAILED, want="done", before="owed", why=reload_marks.reason(name, root))]
        if command:
            node.must(*command)
    except CannotChange as error:
        with suppress(OSError):  # a file system that has gone read-only keeps the mark as it was
            reload_marks.mark(name, str(error), root)
        return [item(label, FAILED, want="done", why=str(error))]
    if not node.check_mode:
        reload_marks.clear(name, root)
    return [item(label, CHANGED, want="done", after="done")] if command else []
