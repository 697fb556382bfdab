"""Services, where systemd is process 1; elsewhere they are named as unavailable."""

from __future__ import annotations

import os

from ansible.module_utils.nodeprofile.item import Item, Node, Unavailable, item, read_text, settle

STARTED = "active, enabled"
STOPPED = "not active, not enabled"
MASKED = "masked"


def has_systemd() -> bool:
    """Whether systemd is process 1 of this machine."""
    return os.path.isdir("/run/systemd/system")


def services(node: Node, wanted: list) -> list:
    """Units: `name`, `state` started, stopped or masked. A unit that is not installed counts as stopped."""
    return [_service(node, entry["name"], entry["state"]) for entry in wanted]


def _service(node: Node, name: str, state: str) -> Item:
    label = "service " + name
    if not has_systemd():
        if state != "started":
            return item(label, "ok", want=state, why="no init runs services here")
        return item(label, "unavailable", want=state, why="no init runs services here")
    want = {"started": STARTED, "stopped": STOPPED, "masked": MASKED}[state]
    return settle(node, label, want, lambda: _state(node, name, want), lambda: _change(node, name, state))


def unit(node: Node, name: str) -> dict:
    """What systemd says of a unit."""
    output = node.must(
        "systemctl", "show", "--property=LoadState,ActiveState,UnitFileState,ConditionResult,ConditionTimestamp", name
    )
    return dict(line.partition("=")[::2] for line in output.splitlines())


def _state(node: Node, name: str, want: str) -> str:
    seen = unit(node, name)
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
    seen = {name: unit(node, name) for name in candidates}
    active = [name for name in candidates if seen[name]["ActiveState"] == "active"]
    there = [name for name in candidates if seen[name]["LoadState"] == "loaded"]
    if active:
        return [item("time service", "ok", want="active", after=active[0])]
    if not there:
        return [item("time service", "failed", want="active", before="none", why="none installed of: %s" % ", ".join(candidates))]
    return [
        settle(node, "time service", STARTED, lambda: _state(node, there[0], STARTED), lambda: _change(node, there[0], "started"))
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
