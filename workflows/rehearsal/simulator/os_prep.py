"""OS preparation: what the playbook os_prep makes of a simulated machine, and what the machine then shows."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from steps.contract.play import PlayRequest
from workflows.rehearsal.simulator.plays import Outcome, Status, play
from workflows.rehearsal.simulator.world import World

PROFILE = Path(__file__).parents[3] / "playbooks/roles/os_prep/defaults/main.yml"
CHANGE, READ, ASSERT = (
    "os_prep : Bring the node to its profile",
    "os_prep : Read the profile and the facts again",
    "os_prep : Fail the node whose items could not be changed",
)
MODULE = "node_profile"
CHANGE_SECONDS, READ_SECONDS = 45.0, 4.0
UNREACHABLE = "Failed to connect to the host via ssh: ssh: connect to host {} port 22: No route to host"
SKEW = 37.0
FREE_MIB, SMALL_MIB = 1_600_000, 9_000


@play("os_prep")
def os_prep(world: World, request: PlayRequest) -> Iterable[Outcome]:
    """Bring hosts to the profile; those that were changed are read again, as the role does."""
    hosts = [host for host in request.hosts if host.name in world.fleet]
    away = {host.name for host in hosts if world.fault("hosts_unreachable", host.name)}
    fresh = {host.name for host in hosts if "os_prep" not in world.hosts[host.name] and host.name not in away}
    for host in hosts:
        if host.name in away:
            said = {"unreachable": True, "msg": UNREACHABLE.format(host.address)}
            yield Outcome(host=host.name, task=CHANGE, status=Status.UNREACHABLE, seconds=10, action=MODULE, result=said)
        elif host.name in fresh:
            result = {"items": _items(world, host.name, changed=True)}
            yield Outcome(host=host.name, task=CHANGE, status=Status.CHANGED, seconds=CHANGE_SECONDS, action=MODULE, result=result)
        else:
            yield Outcome(host=host.name, task=CHANGE, seconds=READ_SECONDS, action=MODULE, result=_shown(world, host.name, 0.0))
    for name in sorted(fresh):
        yield Outcome(host=name, task=READ, seconds=READ_SECONDS, action=MODULE, result=_shown(world, name, CHANGE_SECONDS))
    for name in sorted({host.name for host in hosts} - away):
        failing = [f"{item['name']}: {item['why']}" for item in _items(world, name, changed=False) if item["status"] == "failed"]
        if failing:
            said = {"msg": "; ".join(failing)}
            yield Outcome(host=name, task=ASSERT, status=Status.FAILED, action="ansible.builtin.assert", result=said)
    if not request.check:
        for name in fresh:
            world.hosts[name]["os_prep"] = {"since": world.now}
        world.wake()


def _shown(world: World, name: str, after: float) -> dict[str, Any]:
    """The module's result with its observation, read `after` seconds from now: half-way through its task."""
    skew = SKEW if world.fault("clock_skew", name) else 0.0
    facts = _facts(world, name, world.now + after + READ_SECONDS / 2 + skew)
    return {"observation": {"items": _items(world, name, changed=False), "facts": facts}}


@functools.cache
def _profile() -> dict[str, Any]:
    """The role's own defaults, so that a rehearsal shows the items which the role really has."""
    loaded: dict[str, Any] = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))
    return loaded


def _items(world: World, name: str, *, changed: bool) -> list[dict[str, str]]:
    """Every item of the profile; while it is being changed, those that a bare machine lacks say so."""
    profile = _profile()
    good = {"status": "ok"}
    new = {"status": "changed"} if changed else good
    lines = [
        ("root", "uid 0", good),
        ("hostname", name, good),
        ("hosts", "1 line", new),
        *((f"module {entry['name']}", "loaded", new) for entry in profile["os_prep_modules"]),
        *((f"module {entry}", "not loaded", good) for entry in profile["os_prep_blacklist"]),
        *((f"sysctl {key}", str(value), new) for key, value in sorted(profile["os_prep_sysctls"].items())),
        ("swap now", "off", new),
        ("swap /etc/fstab", "not listed", new),
        *((f"directory {entry['path']}", entry["mode"], new) for entry in profile["os_prep_directories"]),
        *((f"service {entry['name']}", entry["state"], new) for entry in profile["os_prep_services"]),
        ("time service", "active", good),
    ]
    items = [{"name": label, "want": want, "after": want, **state} for label, want, state in lines]
    items += [_disk(world, name, entry) for entry in profile["os_prep_disks"]]
    return [_disturbed(world, name, item) for item in items]


def _disk(world: World, name: str, entry: dict[str, Any]) -> dict[str, str]:
    free = SMALL_MIB if world.fault("disk_full", name) else FREE_MIB
    item = {"name": f"disk {entry['path']}", "want": f">= {entry['free_mib']} MiB free", "after": f"{free} MiB free"}
    if free >= entry["free_mib"]:
        return item | {"status": "ok"}
    return item | {"status": "failed", "before": item["after"], "why": "No space left for what is to come"}


def _disturbed(world: World, name: str, item: dict[str, str]) -> dict[str, str]:
    if item["name"] == "module nouveau" and world.fault("nouveau_loaded", name):
        return item | {"status": "failed", "before": "loaded", "after": "loaded", "why": "modprobe --remove: module is in use"}
    return item


def _facts(world: World, name: str, epoch: float) -> dict[str, Any]:
    """The facts of `steps.contract.stages.os_prep.Facts`."""
    host, hardware = world.host(name), world.hardware(name)
    machine = hashlib.sha256(name.encode()).hexdigest()
    facts: dict[str, Any] = {
        "os_id": hardware.os_id,
        "os_version": hardware.os_version,
        "kernel": hardware.kernel,
        "architecture": "x86_64",
        "python": "3.12.3",
        "init": "systemd",
        "hostname": name,
        "machine_id": machine[:32],
        "boot_id": f"{machine[:8]}-{machine[8:12]}-4{machine[12:15]}-8{machine[15:18]}-{machine[18:30]}",
        "product": hardware.machine,
        "cpus": hardware.cpus,
        "memory_mib": hardware.memory_gib * 1024,
        "memlock": "unlimited",
        "gpus": host.gpus,
        "nvswitches": hardware.nvswitches if host.gpus else 0,
        "nouveau_loaded": world.fault("nouveau_loaded", name) is not None,
        "clock": {"epoch": epoch, "service": "chrony.service", "synchronized": True, "offset_seconds": 0.0003},
        "disks": [{"path": "/var/lib/rancher", "free_mib": FREE_MIB, "total_mib": 1_800_000}],
    }
    if world.fault("disk_full", name):
        facts["disks"][0]["free_mib"] = SMALL_MIB
    driver = hardware.driver if hardware.driver_on_host or world.fault("host_driver_conflict", name) else ""
    return facts | (_driver(driver, facts["nvswitches"]) if driver and host.gpus else {})


def _driver(version: str, nvswitches: int) -> dict[str, Any]:
    """A driver of the host, with its fabric manager where NVSwitches need one."""
    manager = {"fabric_manager": version, "fabric_manager_active": True, "fabric_states": ["Completed"]} if nvswitches else {}
    return {"nvidia_driver": version, **manager}
