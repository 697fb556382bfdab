"""The embedded engine's driver with two faults of cluster pods: a pod is deleted, or a task result arrives late."""

import atexit
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tests.argo_stand_in.workflow_status import POD_DELETED
from workflows.engines.local.executor import PodEnd, start_process
from workflows.engines.local.journal import Journal
from workflows.engines.local.local_engine import Driver
from workflows.engines.local.result import Observer
from workflows.engines.local.run_settings import RunSettings
from workflows.engines.local.run_state import AnyEvent, PodEnded
from workflows.rehearsal.step_forks import StepForks

_FORKS = StepForks(Path(os.devnull))
"""The fork server of all runs in this process, which ends with it."""
FRESH_STEPS = "ARGO_STAND_IN_FRESH_STEPS"
"""Variable that has steps started anew, for tests that find a step by its environment: a forked one shows its server's."""
atexit.register(_FORKS.close)


class PodDriver(Driver):
    """An engine driver whose pods can be lost.

    `withhold` maps template names to the seconds by which the first result of the template arrives late. The pod has then ended,
    but its node still runs.
    """

    def __init__(
        self,
        run_dir: Path,
        journal: Journal,
        settings: RunSettings,
        environment: Mapping[str, str],
        observer: Observer,
        withhold: Mapping[str, float],
    ) -> None:
        super().__init__(
            run_dir, journal, settings, environment, observer, start=start_process if FRESH_STEPS in os.environ else _FORKS.start
        )
        self._lock = threading.Lock()
        self._deleted: set[str] = set()
        self._lost: set[str] = set()
        self._withhold = dict(withhold)
        self._held: list[tuple[float, PodEnded]] = []
        self.ended: dict[str, float] = {}

    def lose(self, path: str) -> None:
        """Report the pod of a node as deleted. May be called from any thread."""
        with self._lock:
            self._deleted.add(path)

    def _wait(self) -> list[AnyEvent]:
        with self._lock:
            deleted, self._deleted = self._deleted, set()
        for path in deleted:
            self._lost.add(path)
            self.executor.end(path)
        return self._arrived(super()._wait())

    def _arrived(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """Return the events that have reached the controller by now."""
        now, passed = time.monotonic(), []
        for event in events:
            template = self.state.nodes[event.node].template_name if isinstance(event, PodEnded) else ""
            if isinstance(event, PodEnded) and template in self._withhold:
                self.ended[event.node] = time.time()
                self._held.append((now + self._withhold.pop(template), event))
            else:
                passed.append(event)
        due = [event for at, event in self._held if at <= now]
        self._held = [(at, event) for at, event in self._held if at > now]
        return [*passed, *due]

    def _ended(self, ended: PodEnd) -> PodEnded:
        if ended.node in self._lost:
            self._lost.discard(ended.node)
            return PodEnded(at=self.now(), node=ended.node, exit_code=0, undelivered=POD_DELETED)
        return super()._ended(ended)
