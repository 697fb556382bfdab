"""Services, where systemd is process 1; elsewhere they are named as unavailable."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Optional

from ansible.module_utils import waiting
from ansible.module_utils.nodeprofile import owed
from ansible.module_utils.nodeprofile.item import CHANGED, FAILED, CannotChange, Item, Node, Unavailable, item, read_text, settle

STARTED = "active, enabled"
STOPPED = "not active, not enabled"
MASKED = "masked"
PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,ConditionResult,ConditionTimestamp,NeedDaemonReload"

MEMLOCK = "DefaultLimitMEMLOCK"
RELOAD = "reload "
INITRAMFS = RELOAD + "initramfs"
"""The item that says whether the next boot has an initramfs."""
BOOTING = ("initializing", "starting")
BOOT_SECONDS = 180
"""How long a machine that answers SSH may go on with its boot before it is read as it is: some unit may never end."""


def has_systemd(root: str = "") -> bool:
    """Whether systemd is process 1 of this machine."""
    return os.path.isdir(root + "/run/systemd/system")


def booted(node: Node, seconds: float = BOOT_SECONDS, pause: float = waiting.FIRST) -> None:
    """Wait until systemd has started what it starts at boot: SSH answers sooner, with no time service yet, and ACS still on."""
    for _ in waiting.rounds(seconds, pause):
        if node.run("systemctl", "is-system-running")[1].strip() not in BOOTING:
            break


def services(node: Node, wanted: dict, time_services: list, root: str = "") -> list:
    """Units by name, each started, stopped or masked, and one of the time services started. A unit that is not installed counts
    as stopped. All are read in one call, and changed with one reload: each takes systemd a fifth of a second."""
    try:
        seen = _current(node, sorted({*wanted, *time_services})) if has_systemd(root) else {}
        rows = [_service(node, "service " + name, name, state, seen.get(name)) for name, state in sorted(wanted.items())]
        if seen and time_services and any(row["status"] in (CHANGED, FAILED) for row in rows):
            seen = units(node, time_services)  # what was started or stopped just now may keep the clock
    except CannotChange as error:
        return [item("services", FAILED, want="what systemd says of them", why=str(error))]
    return rows + (_time_service(node, time_services, seen, wanted) if time_services else [])


def _current(node: Node, names: list) -> dict:
    """The units, as their files say by now: systemd would start one by what it read before a drop-in was written."""
    seen = units(node, names)
    if node.check_mode or not any(unit["NeedDaemonReload"] == "yes" for unit in seen.values()):
        return seen
    node.must("systemctl", "daemon-reload")
    return units(node, names)


def _service(node: Node, label: str, name: str, state: str, seen: Optional[dict]) -> Item:
    if seen is None:
        status = "unavailable" if state == "started" else "ok"
        return item(label, status, want=state, why="no init runs services here")
    want = {"started": STARTED, "stopped": STOPPED, "masked": MASKED}[state]
    return settle(node, label, want, lambda: _state(name, want, seen), lambda: _change(node, name, state), seen_later=True)


def units(node: Node, names: list) -> dict:
    """What systemd says of units, by name, in one call."""
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


def _change(node: Node, name: str, state: str) -> None:
    verb = {"started": "enable", "stopped": "disable", "masked": "mask"}[state]
    node.reload("units")  # what fails may have changed links to unit files before
    node.must("systemctl", verb, "--now", "--no-reload", name)


def _time_service(node: Node, candidates: list, seen: dict, wanted: dict) -> list:
    """One of the candidates keeps the clock, and will after a boot; the first that is installed is started if none does. None that
    must be stopped."""
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
    """Name of a time daemon that runs, found without an init; empty if none."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name = _command(pid)
        if name in ("chronyd", "ntpd", "systemd-timesyn", "ptp4l"):
            return name
    return ""


def _command(pid: str) -> str:
    try:
        return read_text("/proc/%s/comm" % pid).strip()
    except OSError:
        return ""  # the process ended while we looked


def limit(memlock: str) -> str:
    """A limit of locked memory, in KiB as limits.conf(5) has it, as systemd does: in bytes."""
    return str(int(memlock) * 1024) if memlock.isdigit() else "infinity"


def memlock(node: Node, wanted: str, root: str = "") -> list:
    """The limit that systemd gives the services which say none themselves. The file says so, and systemd may not have read it, or
    another one that says otherwise. What the kernel grants is not seen here; without systemd, logins alone have limits."""
    if not wanted or not has_systemd(root):
        return []

    def read() -> str:
        return node.must("systemctl", "show", "--property=" + MEMLOCK).strip().partition("=")[2]

    return [settle(node, "memlock", limit(wanted), read, lambda: node.reload("systemd"), seen_later=True)]


def reloads(node: Node, system: dict, root: str = "") -> list:
    """Let what reads changed files learn of them, also of those that an earlier run changed: an item for each, failed where that
    cannot be done, or is still to be done and nothing may be changed."""
    names = dict.fromkeys([*node.reloads, *owed.names(root)])
    if "systemd" in names:
        names.pop("units", None)  # it reads these again with all else
    return [row for name in names for row in _reloaded(node, name, system, root)]


def _reload_command(node: Node, name: str, system: dict, root: str) -> list:
    """What does a reload; none where nothing has to learn. A machine that boots over the network has no tool for an initramfs, and
    none of its own."""
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


def _reloaded(node: Node, name: str, system: dict, root: str) -> list:
    label = RELOAD + name
    try:
        command = _reload_command(node, name, system, root)
        if command and node.check_mode:
            return [item(label, FAILED, want="done", before="owed", why=owed.why(name, root))]
        if command:
            node.must(*command)
    except CannotChange as error:
        with suppress(OSError):  # a file system that has gone read-only keeps the mark as it was
            owed.mark(name, str(error), root)
        return [item(label, FAILED, want="done", why=str(error))]
    if not node.check_mode:
        owed.paid(name, root)
    return [item(label, CHANGED, want="done", after="done")] if command else []
