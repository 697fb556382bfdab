"""The embedded engine's driver with what can happen to pods of a cluster: one is deleted, a task result does not arrive."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path

from workflows.engines.local.driver import Driver
from workflows.engines.local.executor import Ended
from workflows.engines.local.journal import Journal
from workflows.engines.local.result import Observer
from workflows.engines.local.settings import Settings
from workflows.engines.local.state import AnyEvent, PodEnded
from workflows.rehearsal.argo_stand_in.status import POD_DELETED


class PodDriver(Driver):
    """`withhold` names templates whose first result stays away for that many seconds (the pod has ended, its node runs on)."""

    def __init__(
        self,
        run_dir: Path,
        journal: Journal,
        settings: Settings,
        environment: Mapping[str, str],
        observer: Observer,
        withhold: Mapping[str, float],
    ) -> None:
        super().__init__(run_dir, journal, settings, environment, observer)
        self._lock = threading.Lock()
        self._deleted: set[str] = set()
        self._lost: set[str] = set()
        self._withhold = dict(withhold)
        self._held: list[tuple[float, PodEnded]] = []
        self.ended: dict[str, float] = {}

    def lose(self, path: str) -> None:
        """The pod of this node was deleted; safe from other threads."""
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
        """The events whose news has reached the controller by now."""
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

    def _ended(self, ended: Ended) -> PodEnded:
        if ended.node in self._lost:
            self._lost.discard(ended.node)
            return PodEnded(at=self.now(), node=ended.node, exit_code=0, undelivered=POD_DELETED)
        return super()._ended(ended)
