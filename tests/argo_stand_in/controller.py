"""The controller loop: watches Workflows and pods of one namespace, starts runs, makes them wait for locks, runs foreign pods."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from steps.clients.kube.api import ApiError
from steps.errors import Refused, Temporary
from tests.argo_stand_in.errands import ERRAND, Errands
from tests.argo_stand_in.workflow_run import Behaviour, WorkflowRun
from workflows.engines.argo.cancellation import TERMINATE
from workflows.engines.argo.home import Home, NoWorkflow
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.argo.resource_watch import ObjectGone, ObjectState, ResourceWatch, WatchPace
from workflows.engines.argo.workflow_objects import UNFINISHED, WORKFLOW_LABEL, stamp

Object = dict[str, Any]
PACE = WatchPace(round=1.0, first=0.1, most=1.0, credentials=600.0)
"""Short watch rounds, so that a stand-in notices soon that it must end."""


class StandIn:
    """A stand-in that runs until `stop`. `folder` keeps the files of its runs, `store` is the folder that pods see as the run
    store.
    """

    def __init__(self, address: HomeAddress, folder: Path, store: Path, behaviour: Behaviour | None = None) -> None:
        self._address, self._folder, self._store, self._behaviour = address, folder, store, behaviour or Behaviour()
        self._home = Home(address)
        self._runs: dict[str, WorkflowRun] = {}
        self._holders: dict[str, str] = {}
        self._waiting: dict[str, Object] = {}
        self._ending = threading.Event()
        self._errands = Errands(address, folder, store, self._behaviour)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._workflows, self._pods)]

    def start(self) -> "StandIn":
        """Start watching."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End every run and stop watching."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        for run in self._runs.values():
            run.end()
        self._errands.end()

    def _workflows(self) -> None:
        for seen in ResourceWatch(self._home, self._home.workflows(), pace=PACE).states():
            if self._ending.is_set():
                return
            if isinstance(seen, ObjectState):
                self._take(msgspec.json.decode(seen.data))
            elif isinstance(seen, ObjectGone) and seen.data:
                self._release(msgspec.json.decode(seen.data)["metadata"]["name"])
            with contextlib.suppress(Temporary, Refused):  # the server is away: the next round tries again
                self._start_waiting()

    def _take(self, workflow: Object) -> None:
        name = workflow["metadata"]["name"]
        if name in self._runs:
            self._runs[name].on_change(workflow)
        elif (workflow.get("status") or {}).get("phase", "") in UNFINISHED:
            self._waiting[name] = workflow

    def _start_waiting(self) -> None:
        """Start the waiting Workflows whose locks are free, the oldest first."""
        for name in [name for name, run in self._runs.items() if run.done.is_set()]:
            self._release(name, ended=True)
        for name, workflow in sorted(self._waiting.items(), key=lambda item: (item[1]["metadata"]["creationTimestamp"], item[0])):
            template = self._template(workflow)
            locks = _mutexes(workflow, template)
            held_lock = next((lock for lock in locks if self._holders.get(lock, name) != name), "")
            if held_lock:
                self._keep_waiting(workflow, held_lock)
                continue
            # before it is taken off the list: this asks the API, and what fails is tried again
            run = WorkflowRun(self._address, workflow, template, self._folder, self._store, self._behaviour)
            self._holders.update(dict.fromkeys(locks, name))
            del self._waiting[name]
            self._runs[name] = run
            run.start()

    def _release(self, name: str, *, ended: bool = False) -> None:
        self._waiting.pop(name, None)
        self._holders = {lock: holder for lock, holder in self._holders.items() if holder != name}
        if not ended and name in self._runs:
            self._runs[name].on_change({})

    def _template(self, workflow: Object) -> Object | None:
        ref = workflow["spec"].get("workflowTemplateRef")
        return self._home.template(ref["name"]) if ref else None

    def _keep_waiting(self, workflow: Object, lock: str) -> None:
        """Show a waiting run as pending, or end it if it is terminated. A run that is only stopped waits on, as on Argo."""
        name = workflow["metadata"]["name"]
        if workflow["spec"].get("shutdown") != TERMINATE:
            self._show_pending(workflow, lock)
            return
        patch = {"status": {"phase": "Failed", "message": f"Stopped with strategy '{TERMINATE}'", "finishedAt": stamp(time.time())}}
        with contextlib.suppress(NoWorkflow, ApiError):
            self._home.ask(lambda kube: kube.merge(self._home.workflows(name), patch))
        del self._waiting[name]

    def _show_pending(self, workflow: Object, lock: str) -> None:
        """Show the status that Argo shows of a run that waits for a workflow-level mutex."""
        full = f"{self._address.namespace}/Mutex/{lock}"
        message = f"Waiting for {full} lock. Lock status: 0/1"
        if (workflow.get("status") or {}).get("message") == message:
            return
        holder = f"{self._address.namespace}/{self._holders[lock]}"
        locks = {"mutex": {"waiting": [{"holder": holder, "mutex": full}]}}
        patch = {"status": {"phase": "Pending", "message": message, "synchronization": locks}}
        with contextlib.suppress(NoWorkflow, ApiError):
            path = self._home.workflows(workflow["metadata"]["name"])
            self._waiting[workflow["metadata"]["name"]] = self._home.ask(lambda kube: kube.merge(path, patch))

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _pods(self) -> None:
        home, leaving = Home(self._address), dict[str, Object]()
        for seen in ResourceWatch(home, home.core("pods"), pace=PACE).states():
            if self._ending.is_set():
                return
            if isinstance(seen, ObjectState):
                self._pod(msgspec.json.decode(seen.data), leaving)
            elif isinstance(seen, ObjectGone) and seen.data:
                meta = msgspec.json.decode(seen.data)["metadata"]
                leaving.pop(meta["uid"], None)
                self._gone(meta)
            with contextlib.suppress(Temporary, Refused):
                for pod in leaving.values():
                    self._behaviour.place.remove(home, pod)

    def _pod(self, pod: Object, leaving: dict[str, Object]) -> None:
        if self._behaviour.place.holds(pod) and "deletionTimestamp" in pod["metadata"]:
            leaving[pod["metadata"]["uid"]] = pod
        elif self._behaviour.errands and ERRAND in (pod["metadata"].get("labels") or {}):
            self._errands.take(pod)

    def _gone(self, meta: Object) -> None:
        run = self._runs.get((meta.get("labels") or {}).get(WORKFLOW_LABEL, ""))
        if run is not None:
            run.on_pod_deleted(meta["name"])


def _mutexes(workflow: Object, template: Object | None) -> list[str]:
    spec = {**(template["spec"] if template else {}), **workflow["spec"]}
    return [mutex["name"] for mutex in (spec.get("synchronization") or {}).get("mutexes") or ()]


@contextlib.contextmanager
def running_stand_in(address: HomeAddress, folder: Path, store: Path, behaviour: Behaviour | None = None) -> Iterator[StandIn]:
    """Run a stand-in while the context lasts."""
    running = StandIn(address, folder, store, behaviour).start()
    try:
        yield running
    finally:
        running.stop()
