"""The stand-in itself: watches Workflows and pods of one namespace, starts runs, has them wait for locks, runs errands."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from steps.clients.kube.api import ApiError
from steps.errors import Refused, Temporary
from workflows.engines.argo.home import Home, NoWorkflow, Where
from workflows.engines.argo.objects import UNFINISHED, WORKFLOW_LABEL, stamp
from workflows.engines.argo.stop import TERMINATE
from workflows.engines.argo.streams import Gone, Pace, State, Stream
from workflows.rehearsal.argo_stand_in.errands import ERRAND, Errands
from workflows.rehearsal.argo_stand_in.play import Play, Ways

Object = dict[str, Any]
PACE = Pace(round=1.0, first=0.1, most=1.0, credentials=600.0)
"""Short rounds: a stand-in that is told to end must notice."""


class StandIn:
    """Runs until `stop`. `folder` keeps what runs need, `store` is what their pods see as the run store."""

    def __init__(self, where: Where, folder: Path, store: Path, ways: Ways | None = None) -> None:
        self._where, self._folder, self._store, self._ways = where, folder, store, ways or Ways()
        self._home = Home(where)
        self._plays: dict[str, Play] = {}
        self._holders: dict[str, str] = {}
        self._waiting: dict[str, Object] = {}
        self._ending = threading.Event()
        self._errands = Errands(where, folder, store, self._ways)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._workflows, self._pods)]

    def start(self) -> "StandIn":
        """Begin to watch."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End every run and stop watching."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        for play in self._plays.values():
            play.end()
        self._errands.end()

    def _workflows(self) -> None:
        for seen in Stream(self._home, self._home.workflows(), pace=PACE).states():
            if self._ending.is_set():
                return
            if isinstance(seen, State):
                self._take(msgspec.json.decode(seen.data))
            elif isinstance(seen, Gone) and seen.data:
                self._release(msgspec.json.decode(seen.data)["metadata"]["name"])
            with contextlib.suppress(Temporary, Refused):  # the server is away: the next round tries again
                self._go_on()

    def _take(self, found: Object) -> None:
        name = found["metadata"]["name"]
        if name in self._plays:
            self._plays[name].seen(found)
        elif (found.get("status") or {}).get("phase", "") in UNFINISHED:
            self._waiting[name] = found

    def _go_on(self) -> None:
        """Start what waits and has its locks, the oldest first."""
        for name in [name for name, play in self._plays.items() if play.done.is_set()]:
            self._release(name, ended=True)
        for name, found in sorted(self._waiting.items(), key=lambda item: (item[1]["metadata"]["creationTimestamp"], item[0])):
            template = self._template(found)
            locks = _mutexes(found, template)
            held = next((lock for lock in locks if self._holders.get(lock, name) != name), "")
            if held:
                self._kept_waiting(found, held)
                continue
            # before it is taken off the list: this asks the API, and what fails is tried again
            play = Play(self._where, found, template, self._folder, self._store, self._ways)
            self._holders.update(dict.fromkeys(locks, name))
            del self._waiting[name]
            self._plays[name] = play
            play.start()

    def _release(self, name: str, *, ended: bool = False) -> None:
        self._waiting.pop(name, None)
        self._holders = {lock: holder for lock, holder in self._holders.items() if holder != name}
        if not ended and name in self._plays:
            self._plays[name].seen({})

    def _template(self, found: Object) -> Object | None:
        ref = found["spec"].get("workflowTemplateRef")
        return self._home.template(ref["name"]) if ref else None

    def _kept_waiting(self, found: Object, lock: str) -> None:
        """A run that waits ends where it is to be terminated; one that is to stop waits on, as on Argo."""
        name = found["metadata"]["name"]
        if found["spec"].get("shutdown") != TERMINATE:
            self._pending(found, lock)
            return
        patch = {"status": {"phase": "Failed", "message": f"Stopped with strategy '{TERMINATE}'", "finishedAt": stamp(time.time())}}
        with contextlib.suppress(NoWorkflow, ApiError):
            self._home.ask(lambda kube: kube.merge(self._home.workflows(name), patch))
        del self._waiting[name]

    def _pending(self, found: Object, lock: str) -> None:
        """What Argo shows of a run that waits for a workflow-level mutex."""
        full = f"{self._where.namespace}/Mutex/{lock}"
        message = f"Waiting for {full} lock. Lock status: 0/1"
        if (found.get("status") or {}).get("message") == message:
            return
        holder = f"{self._where.namespace}/{self._holders[lock]}"
        locks = {"mutex": {"waiting": [{"holder": holder, "mutex": full}]}}
        patch = {"status": {"phase": "Pending", "message": message, "synchronization": locks}}
        with contextlib.suppress(NoWorkflow, ApiError):
            path = self._home.workflows(found["metadata"]["name"])
            self._waiting[found["metadata"]["name"]] = self._home.ask(lambda kube: kube.merge(path, patch))

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _pods(self) -> None:
        home, leaving = Home(self._where), dict[str, Object]()
        for seen in Stream(home, home.core("pods"), pace=PACE).states():
            if self._ending.is_set():
                return
            if isinstance(seen, State):
                self._pod(msgspec.json.decode(seen.data), leaving)
            elif isinstance(seen, Gone) and seen.data:
                meta = msgspec.json.decode(seen.data)["metadata"]
                leaving.pop(meta["uid"], None)
                self._gone(meta)
            with contextlib.suppress(Temporary, Refused):
                for pod in leaving.values():
                    self._ways.place.remove(home, pod)

    def _pod(self, pod: Object, leaving: dict[str, Object]) -> None:
        if self._ways.place.holds(pod) and "deletionTimestamp" in pod["metadata"]:
            leaving[pod["metadata"]["uid"]] = pod
        elif self._ways.errands and ERRAND in (pod["metadata"].get("labels") or {}):
            self._errands.take(pod)

    def _gone(self, meta: Object) -> None:
        play = self._plays.get((meta.get("labels") or {}).get(WORKFLOW_LABEL, ""))
        if play is not None:
            play.pod_gone(meta["name"])


def _mutexes(found: Object, template: Object | None) -> list[str]:
    spec = {**(template["spec"] if template else {}), **found["spec"]}
    return [one["name"] for one in (spec.get("synchronization") or {}).get("mutexes") or ()]


@contextlib.contextmanager
def standing_in(where: Where, folder: Path, store: Path, ways: Ways | None = None) -> Iterator[StandIn]:
    """A stand-in while the context lasts."""
    running = StandIn(where, folder, store, ways).start()
    try:
        yield running
    finally:
        running.stop()
