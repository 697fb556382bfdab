"""Services, where systemd is process 1; elsewhere they are named as unavailable."""

from __future__ import annotations

import os
from typing import Optional

from ansible.module_utils.nodeprofile.item import CHANGED, FAILED, CannotChange, Item, Node, Unavailable, item, read_text, settle

STARTED = "active, enabled"
STOPPED = "not active, not enabled"
MASKED = "masked"
PROPERTIES = "LoadState,ActiveState,UnitFileState,ConditionResult,ConditionTimestamp"


def has_systemd() -> bool:
    """Whether systemd is process 1 of this machine."""
    return os.path.isdir("/run/systemd/system")


def services(node: Node, wanted: dict) -> list:
    """Units by name, each started, stopped or masked. A unit that is not installed counts as stopped."""
    seen = units(node, sorted(wanted)) if has_systemd() else {}
    return [_service(node, name, state, seen.get(name)) for name, state in sorted(wanted.items())]


def _service(node: Node, name: str, state: str, first: Optional[dict]) -> Item:
    label = "service " + name
    if not has_systemd():
        if state != "started":
            return item(label, "ok", want=state, why="no init runs services here")
        return item(label, "unavailable", want=state, why="no init runs services here")
    want = {"started": STARTED, "stopped": STOPPED, "masked": MASKED}[state]
    readings = [first] if first else []  # all units were read at once; a second reading asks again
    return settle(
        node,
        label,
        want,
        lambda: _state(name, want, readings.pop() if readings else unit(node, name)),
        lambda: _change(node, name, state),
    )


def units(node: Node, names: list) -> dict:
    """What systemd says of units, by name, in one call."""
    if not names:
        return {}
    output = node.must("systemctl", "show", "--property=" + PROPERTIES, *names)
    blocks = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in output.split("\n\n")]
    return dict(zip(names, blocks))


def unit(node: Node, name: str) -> dict:
    """What systemd says of a unit."""
    return dict(units(node, [name])[name])


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
    commands = {
        "started": [("systemctl", "enable", name), ("systemctl", "start", name)],
        "stopped": [("systemctl", "disable", "--now", name)],
        "masked": [("systemctl", "mask", "--now", name)],
    }
    for command in commands[state]:
        node.must(*command)


def time_service(node: Node, candidates: list) -> list:
    """One of the candidates keeps the clock; the first that is installed is started if none does."""
    if not candidates:
        return []
    if not has_systemd():
        running = running_time_service()
        status = "ok" if running else "unavailable"
        return [item("time service", status, want="active", after=running, why="" if running else "no init runs services here")]
    seen = units(node, candidates)
    active = [name for name in candidates if seen[name]["ActiveState"] == "active"]
    there = [name for name in candidates if seen[name]["LoadState"] == "loaded"]
    if active:
        return [item("time service", "ok", want="active", after=active[0])]
    if not there:
        return [item("time service", "failed", want="active", before="none", why="none installed of: %s" % ", ".join(candidates))]
    return [
        settle(
            node,
            "time service",
            STARTED,
            lambda: _state(there[0], STARTED, unit(node, there[0])),
            lambda: _change(node, there[0], "started"),
        )
    ]


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


def reloads(node: Node, system: dict) -> list:
    """Let what reads changed files learn of them: an item for each, failed where that cannot be done."""
    if node.check_mode:
        return []
    commands = {
        "initramfs": system.get("initramfs") or [],
        "systemd": ["systemctl", "daemon-reexec"] if has_systemd() else [],
        "networkmanager": ["systemctl", "reload", "NetworkManager"] if has_systemd() else [],
        "time": ["systemctl", "try-restart", *(system.get("time_services") or [])[:1]] if has_systemd() else [],
    }
    # a machine that boots over the network has no tool for an initramfs, and none of its own
    return [_reloaded(node, name, commands[name]) for name in node.reloads if commands[name] and node.has(commands[name][0])]


def _reloaded(node: Node, name: str, command: list) -> Item:
    label = "reload " + name
    try:
        node.must(*command)
    except CannotChange as error:
        return item(label, FAILED, want="done", why=str(error))
    return item(label, CHANGED, want="done", after="done")
