"""A simulated Argo CD: roots bring Applications from Git, Applications bring charts, each with the status of the real one."""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

from steps.contract.canonical import digest
from workflows.rehearsal.simulator import argo_cd_install, argo_cd_target
from workflows.rehearsal.simulator.argo_cd_source import Repositories
from workflows.rehearsal.simulator.argo_cd_target import Target
from workflows.rehearsal.simulator.charts import ChartError
from workflows.rehearsal.simulator.clock import parse, stamp
from workflows.rehearsal.simulator.cluster import contains
from workflows.rehearsal.simulator.kinds import (
    APP_PROJECTS,
    APPLICATIONS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    STATEFUL_SETS,
    Obj,
    Ref,
    ref,
)
from workflows.rehearsal.simulator.role import Changed
from workflows.rehearsal.simulator.world import World

_TIMES = frozenset({"startedAt", "finishedAt", "lastTransitionTime", "reconciledAt"})
RETRY_SECONDS = 60.0
"""Between two tries of what failed; the real one's back-off grows from 10 s to 3 minutes."""


class _Failed(NamedTuple):
    """What the last of so many tries of one spec came to; `due`: it is tried again."""

    spec: str
    target: Target
    tries: int
    due: bool = False


class ArgoCd:
    """Plays the application controller with its repo server: Git is the rehearsal's own repositories, a chart is what a Helm
    install of it brings in the rehearsal. Kustomize overlays are not played, live objects are not compared field by field.
    """

    name = "argo_cd"
    kinds = (APPLICATIONS, APP_PROJECTS, CONFIG_MAPS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, NODES)

    def __init__(self) -> None:
        self._repositories: Repositories | None = None
        self._failures: dict[Ref, _Failed] = {}

    def reconcile(self, world: World, changed: Changed) -> None:
        """Look at every Application: there are a dozen."""
        if self._repositories is None:
            self._repositories = Repositories(world.git_root)
        if world.fleet.argo_cd is not None and world.objects(NODES):
            argo_cd_install.site(world, world.fleet.argo_cd)
        if changed.everything:
            for at in tuple(self._failures):
                self._again(world, at)
        if not world.served(APPLICATIONS) or world.fault("argo_cd_stands_still"):
            return
        _overwrite_config(world)
        for app in world.objects(APPLICATIONS):
            if argo_cd_install.controller_runs(world, app["metadata"]["namespace"]):
                self._look(world, app)

    def _look(self, world: World, app: Obj) -> None:
        at, target = ref(app), self._target(world, app)
        status = _status(world, app, target)
        if not _shows(app, status):
            key = f"argo_cd/{at.name}/status/{digest(_timeless(status))}"
            world.later(key, 1, 4, functools.partial(self._write, world, at))
        elif target.act is not None and _phase(app) == "Running":
            key = f"argo_cd/{at.name}/sync/{digest([target.revisions, app['spec']])}"
            world.later(key, 3, 12, functools.partial(self._sync, world, at))

    def _target(self, world: World, app: Obj) -> Target:
        """The target, or what its last try came to, until it is tried again."""
        known = self._failures.get(ref(app))
        if known is not None and known.spec == digest(app["spec"]) and not known.due:
            return known.target
        assert self._repositories is not None
        return argo_cd_target.of(world, self._repositories, app)

    def _write(self, world: World, at: Ref) -> None:
        app = world.find(APPLICATIONS, at.name, at.namespace)
        if app is not None:
            status = _status(world, app, self._target(world, app))
            world.patch(APPLICATIONS, at, {"status": status | {"reconciledAt": _now(world)}})

    def _sync(self, world: World, at: Ref) -> None:
        app = world.find(APPLICATIONS, at.name, at.namespace)
        target = self._target(world, app) if app is not None else Target()
        if app is None or target.act is None:
            return
        try:
            target.act()
        except ChartError as error:
            spec, before = digest(app["spec"]), self._failures.get(at)
            tries = before.tries if before is not None and before.spec == spec else 0
            self._failures[at] = _Failed(spec, argo_cd_target.failure(error), tries + 1)
            world.later(f"argo_cd/{at.name}/again", RETRY_SECONDS, RETRY_SECONDS, functools.partial(self._again, world, at))
        else:
            self._failures.pop(at, None)
        world.touch(APPLICATIONS, at)

    def _again(self, world: World, at: Ref) -> None:
        """Try again what failed, but a sync that used up its Application's retries."""
        known, app = self._failures.get(at), world.find(APPLICATIONS, at.name, at.namespace)
        if known is None or app is None:
            return
        given_up = known.target.failed is not None and known.spec == digest(app["spec"]) and 0 <= _retries(app) < known.tries
        if not given_up and not known.due:
            self._failures[at] = known._replace(due=True)
            world.touch(APPLICATIONS, at)


def _now(world: World) -> str:
    """By the API server's clock, to which `reconciledAt` is compared: virtual time may be behind the wall's."""
    return stamp(max(world.now, time.time()))


def _retries(app: Obj) -> int:
    """How often a sync that failed is tried again; below 0 without end. The real default is not at all."""
    return int(((app["spec"].get("syncPolicy") or {}).get("retry") or {}).get("limit", 0))


def _phase(app: Obj) -> str:
    return str(((app.get("status") or {}).get("operationState") or {}).get("phase") or "")


def _status(world: World, app: Obj, target: Target) -> Obj:
    """What the controller would write now. `reconciledAt` is left out; a time is set when what it is about changes."""
    before = app.get("status") or {}
    compared = {"comparedTo": {key: app["spec"][key] for key in ("source", "sources", "destination") if key in app["spec"]}}
    if target.conditions:
        known = {(one["type"], one["message"]): one["lastTransitionTime"] for one in before.get("conditions") or ()}
        conditions = [
            {"type": kind, "message": text, "lastTransitionTime": known.get((kind, text)) or _now(world)}
            for kind, text in target.conditions
        ]
        health = (before.get("health") or {}).get("status") or "Healthy"  # nothing to look at is healthy, as in the real one
        return {"sync": {"status": "Unknown", **compared}, "health": {"status": health}, "conditions": conditions}
    shown = {"revisions": list(target.revisions)} if len(target.revisions) > 1 else {"revision": "".join(target.revisions)}
    return {
        "sync": {"status": "Synced" if target.synced else "OutOfSync", **compared, **shown},
        "health": {"status": target.health},
        "conditions": [],
        "resources": list(target.resources),
        "operationState": _operation(world, before.get("operationState") or {}, target, shown),
    }


def _operation(world: World, before: Obj, target: Target, shown: Obj) -> Obj:
    """The last sync: none is started where nothing differs, whatever the revision."""
    if target.failed is not None:
        text, blamed = target.failed
        return _ended(world, before, "Failed", text, {**shown, "resources": [blamed]})
    if target.synced or target.waiting == "drift":
        if before.get("phase") == "Succeeded":
            return before
        resources = [
            {key: value for key, value in one.items() if key != "status"} | {"status": "Synced"} for one in target.resources
        ]
        return _ended(world, before, "Succeeded", "successfully synced (all tasks run)", {**shown, "resources": resources})
    started = before.get("startedAt") if before.get("phase") == "Running" else None
    message = target.waiting or "waiting for completion of hooks"
    return {"phase": "Running", "message": message, "startedAt": started or _now(world), "finishedAt": None, "syncResult": None}


def _ended(world: World, before: Obj, phase: str, message: str, result: Obj) -> Obj:
    same = before.get("phase") == phase and before.get("message") == message
    return {
        "phase": phase,
        "message": message,
        "startedAt": before.get("startedAt") or _now(world),
        "finishedAt": before["finishedAt"] if same else _now(world),
        "syncResult": result,
    }


def _shows(app: Obj, status: Obj) -> bool:
    """Whether the Application's status says all this already, after its last change."""
    seen = app.get("status") or {}
    looked = parse(seen["reconciledAt"]) if "reconciledAt" in seen else 0.0
    return contains(_timeless(seen), _timeless(status)) and looked + 1 >= _changed(app)


def _timeless(value: Any) -> Any:
    """Without times, by which two statuses that say the same may differ."""
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in _TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def _changed(app: Obj) -> float:
    """When somebody else last wrote the spec."""
    entries = app["metadata"].get("managedFields") or ()
    times = [parse(one["time"]) for one in entries if "f:spec" in (one.get("fieldsV1") or {}) and "f:status" not in one["fieldsV1"]]
    return max(times, default=0.0)


def _overwrite_config(world: World) -> None:
    """The fault of a foreign owner: our keys of argocd-cm are gone as soon as they are there."""
    if world.fault("argocd_cm_overwritten"):
        for config in world.objects(CONFIG_MAPS):
            if config["metadata"]["name"] == argo_cd_install.CONFIG and (ours := _customizations(config)):
                world.patch(CONFIG_MAPS, config, {"data": dict.fromkeys(ours)})


def _customizations(config: Obj) -> list[str]:
    return [key for key in config.get("data") or {} if key.startswith("resource.customizations.")]


ROLES = (ArgoCd,)
