"""Run a manifest in a run directory, or resume it, and drive the run to its end on this machine."""

from __future__ import annotations

import dataclasses
import os
import secrets
import signal
import string
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from steps.contract.canonical import UNREADABLE_JSON
from workflows.engines.local import process_control
from workflows.engines.local.errors import JournalForeignError, ManifestRefusedError, RunDirectoryError
from workflows.engines.local.executor import Executor, PodEnd, StartProcess, start_process
from workflows.engines.local.inbox import POLL, Inbox
from workflows.engines.local.journal import Journal, PodProcess
from workflows.engines.local.manifest_parser import parse_plan
from workflows.engines.local.result import Observer, ProcessNews, RecordNews, RunResult, news_of, node_status
from workflows.engines.local.run_settings import RunPaths, RunSettings, default_environment
from workflows.engines.local.run_state import (
    Answer,
    AnyEvent,
    EndPod,
    EngineReturned,
    NodeChanged,
    Operator,
    PodEnded,
    PodStarted,
    RunBegan,
    RunChanged,
    RunState,
    StartPod,
    TimeCame,
)
from workflows.engines.local.state_machine import initial_state, step
from workflows.render.grammar.findings import LintFinding, refused
from workflows.render.grammar.lint import lint

TimePassing = Callable[[float], float]
"""Type of a function that lets a number of seconds pass in a simulated world and returns how many passed."""
SLICE = 2.0
"""Longest wait in seconds that passes in one go in a simulated world; signals and operators are served in between."""


class Driver:
    """Drives one run, in one thread: it feeds events to the state machine, and records and carries out the resulting actions.

    If only time is waited for, `passing` lets the simulated world's time pass, so that a back-off takes only as long as the
    simulation needs for it. Without `passing` the driver really waits.
    """

    def __init__(
        self,
        run_dir: Path,
        journal: Journal,
        settings: RunSettings,
        environment: Mapping[str, str] | None,
        observer: Observer | None,
        passing: TimePassing | None = None,
        start: StartProcess = start_process,
    ) -> None:
        self.run_dir = run_dir
        self.journal = journal
        self.settings = settings
        self.plan = parse_plan(settings.manifest, settings.templates, settings.parallelism)
        self.state: RunState = initial_state()
        self.observer = observer
        self.passing = passing
        self.start = start
        self.environment = default_environment() if environment is None else dict(environment)
        self.began = float(journal.meta["began"])
        self.zero = time.monotonic()
        self.signals = 0
        self.stop_sent = 0
        self.answered: dict[str, str] = {}
        self.executor: Executor
        self.inbox: Inbox

    def now(self) -> float:
        """Return the seconds since the run's start by the monotonic clock, which changes of the wall clock do not affect."""
        return time.monotonic() - self.zero

    # --- begin and end ------------------------------------------------------------------------------------------------

    def take_over(self) -> RunResult:
        """Replay the journal, end the processes that the previous engine left behind, and drive the run to its end."""
        for event in self.journal.events():
            self.state, actions = step(self.plan, self.state, event)
            self.answered |= {action.ticket: action.error for action in actions if isinstance(action, Answer) and action.ticket}
        clock = self.journal.last_clock()
        if self.state.finished:
            return RunResult(self.run_dir, self.plan, self.state, 0)
        self._end_orphans()
        if clock is None:
            return self.drive([RunBegan(at=0.0)])
        # the run's clock also counts the time in which no engine was alive
        self.zero = time.monotonic() - self.state.at - clock.since()
        return self.drive([EngineReturned(at=self.now())])

    def _end_orphans(self) -> None:
        processes = (process for process in self.journal.processes() if process.start)
        recorded = {process.pid for process in processes if process.start == process_control.start_time(process.pid)}
        # a process that was started but not yet recorded is found by its mark alone
        alive = recorded | set(process_control.find_marked_processes(self.settings.token))
        while alive:  # a process that is asked to end may start another one first
            process_control.end_all(sorted(alive), self.settings.grace)
            alive = set(process_control.find_marked_processes(self.settings.token))

    def drive(self, events: list[AnyEvent]) -> RunResult:
        """Handle these first events and then all others until the workflow ends; return the finished run."""
        paths = self.settings.run_paths()
        with ExitStack() as stack:
            try:
                paths.make()
                self.inbox = Inbox(self.run_dir)
                self.executor = Executor(
                    self.run_dir, paths, self.environment, self.settings.token, self.settings.grace, self.start
                )
            except OSError as err:
                raise RunDirectoryError(f"cannot write in {err.filename}: {err.strerror}") from err
            stack.callback(self.executor.close)
            stack.enter_context(process_control.Subreaper())
            stack.enter_context(self._signals())
            while True:
                while events:
                    events = self._happen(events)
                if self.state.finished:
                    return RunResult(self.run_dir, self.plan, self.state, self.executor.most)
                events = self._wait()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM stop the run inside a `with` block. It does nothing outside the main thread, as Python demands."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

        def note(_number: int, _frame: FrameType | None) -> None:
            self.signals += 1

        handlers = [(number, signal.signal(number, note)) for number in (signal.SIGINT, signal.SIGTERM)]
        # Python restarts `select` after a signal (PEP 475); a readable pipe ends it
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.executor.watch(reader)
        self.reader = reader
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers:
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)

    # --- one turn -----------------------------------------------------------------------------------------------------

    def _happen(self, events: list[AnyEvent], started: tuple[PodProcess, ...] = ()) -> list[AnyEvent]:
        """Feed events to the state machine, write them to the journal, then carry out the resulting actions.

        Returns the events that this causes at once: pods that started or could not be started.
        """
        doing: list[StartPod | EndPod | Answer] = []
        news: list[tuple[NodeChanged | RunChanged, RunState]] = []
        for event in events:
            before = self.state
            self.state, actions = step(self.plan, self.state, event)
            for action in actions:
                if isinstance(action, (NodeChanged, RunChanged)):
                    news.append((action, before))
                else:
                    doing.append(action)
        self._record(events, started, [action for action, _ in news])
        if self.observer is not None:
            for item in (news_of(action, before, self.began) for action, before in news):
                if item is not None:
                    self.observer(item)
        # last: whatever a kill -9 prevents here, the next engine makes up for from the journal
        return self._do(doing)

    def _record(self, events: list[AnyEvent], started: tuple[PodProcess, ...], changes: list[NodeChanged | RunChanged]) -> None:
        nodes: dict[str, str] = {}
        meta: dict[str, str] = {}
        for action in changes:
            if isinstance(action, NodeChanged):
                nodes[action.node.path] = msgspec.json.encode(node_status(action.node, self.began)).decode()
            else:
                meta = {"phase": action.phase, "message": action.message, "shutdown": action.shutdown}
                meta["suspended"] = "true" if action.suspended else "false"
        seq = self.journal.append(events, started, nodes, meta)
        if self.observer is not None:
            self.observer(RecordNews(seq))

    def _do(self, actions: list[StartPod | EndPod | Answer]) -> list[AnyEvent]:
        started: list[PodProcess] = []
        events: list[AnyEvent] = []
        for action in actions:
            if isinstance(action, EndPod):
                self.executor.end(action.node)
            elif isinstance(action, Answer):
                if action.ticket:
                    self.inbox.answer(action.ticket, action.error)
            else:
                outcome = self.executor.start(action)
                events.append(PodStarted(at=self.now(), node=action.node))
                if isinstance(outcome, PodEnd):
                    events.append(self._ended(outcome))
                else:
                    started.append(outcome)
                    if self.observer is not None:
                        self.observer(ProcessNews(outcome.node, outcome.pid))
        return self._happen(events, tuple(started)) if events else []

    def _ended(self, ended: PodEnd) -> PodEnded:
        return PodEnded(at=self.now(), **dataclasses.asdict(ended))

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self) -> list[AnyEvent]:
        """Wait until a pod ends, a timer is due, an operator acts, or a signal arrives; return the resulting events."""
        # the inbox is a folder, so it must be polled
        due = [0.0 if self._can_pass else POLL]
        if self.state.wake is not None:
            due.append(self.state.wake - self.now())
        if self.executor.wake is not None:
            due.append(self.executor.wake - time.monotonic())
        events: list[AnyEvent] = [self._ended(ended) for ended in self.executor.poll(max(0.0, min(due)))]
        events += self._asked()
        events += self._signalled()
        if not events and self.state.wake is not None:
            if self._can_pass:
                self._pass(min(SLICE, self.state.wake - self.now()))
            if self.state.wake <= self.now():
                events.append(TimeCame(at=self.now()))
        return events

    @property
    def _can_pass(self) -> bool:
        return self.passing is not None and self.state.waits_for_time

    def _pass(self, seconds: float) -> None:
        """Let up to `seconds` pass in the simulated world; advance the run's clock by as much, less the real time that took."""
        time_before = self.now()
        if self.passing is not None and seconds > 0:
            passed = self.passing(seconds)
            self.zero -= max(0.0, time_before + passed - self.now())

    def _asked(self) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        for ticket, request in self.inbox.look():
            if isinstance(request, str):
                self.inbox.answer(ticket, request)
            elif ticket in self.answered:  # the previous engine did this and died before it could reply
                self.inbox.answer(ticket, self.answered[ticket])
            else:
                events.append(Operator(at=self.now(), ticket=ticket, **msgspec.structs.asdict(request)))
        return events

    def _signalled(self) -> list[AnyEvent]:
        """Return events for new signals: the first stops the run (exit handlers run), the second terminates it.

        From the third on, processes are killed without the rest of their grace period.
        """
        if self.signals == self.stop_sent:
            return []
        os.read(self.reader, 64)
        self.stop_sent = self.signals
        if self.signals > 2:
            self.executor.hurry()
        verb = "stop" if self.signals == 1 else "terminate"
        return [Operator(at=self.now(), verb=verb, message="cancelled by signal")]


GRACE = 10.0  # seconds between SIGTERM and SIGKILL


class LocalEngine:
    """One run of a manifest in a run directory.

    `environment` is the base environment of every step (None: `default_environment`). `paths` are the run's folders (None: below
    the run directory). `parallelism` is how many steps run at the same time. `observer` gets the news of the run. `passing` lets
    simulated time pass. Raises ManifestRefusedError if Argo and the local engine do not both support the manifest.
    """

    def __init__(
        self,
        run_dir: Path,
        manifest: Mapping[str, Any],
        templates: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
        paths: RunPaths | None = None,
        parallelism: int = 8,
        observer: Observer | None = None,
        grace: float = GRACE,
        passing: TimePassing | None = None,
        start: StartProcess = start_process,
    ) -> None:
        findings = lint(manifest, templates)
        if refused(findings):
            raise ManifestRefusedError(refused(findings))
        if manifest.get("kind") != "Workflow":
            sentence = "only a Workflow can be run; put its WorkflowTemplate into the same file, or beside it"
            raise ManifestRefusedError([LintFinding("kind", sentence)])
        if parallelism < 1:
            raise ValueError("parallelism must be at least 1")
        self.run_dir = run_dir.absolute()
        named = _named(manifest)
        run_paths = paths or RunPaths.below(self.run_dir)
        folders = (str(run_paths.tasks), str(run_paths.fleet), str(run_paths.secrets), str(run_paths.store))
        documents = {name: dict(document) for name, document in (templates or {}).items()}
        self._settings = RunSettings(named, documents, folders, run_paths.private_tmp, parallelism, grace, secrets.token_hex(16))
        self._notes = [str(finding) for finding in findings]
        self._environment = environment
        self._observer = observer
        self._passing = passing
        self._start = start

    def run(self) -> RunResult:
        """Start the run, drive it to its end and return it. Raises RunDirectoryError, RunBusyError, StorageError."""
        plan = parse_plan(self._settings.manifest, self._settings.templates, self._settings.parallelism)
        meta = {
            "settings": msgspec.json.encode(self._settings).decode(),
            "name": plan.name,
            "began": str(time.time()),
            "notes": msgspec.json.encode(self._notes).decode(),
        }
        with Journal.create(self.run_dir, meta) as journal:
            driver = Driver(self.run_dir, journal, self._settings, self._environment, self._observer, self._passing, self._start)
            return driver.drive([RunBegan(at=0.0)])

    @classmethod
    def resume(cls, run_dir: Path, environment: Mapping[str, str] | None = None, observer: Observer | None = None) -> RunResult:
        """Drive a run whose engine has died to its end: kill its processes, and start unfinished tasks again.

        A finished run is returned unchanged. Raises RunDirectoryError, RunBusyError, JournalForeignError, StorageError.
        """
        run_dir = run_dir.absolute()
        with Journal.open(run_dir) as journal:
            try:
                settings = msgspec.json.decode(journal.meta["settings"], type=RunSettings)
            except (KeyError, *UNREADABLE_JSON) as err:
                raise JournalForeignError(f"{journal.path} has settings that this engine did not write: {err}") from err
            return Driver(run_dir, journal, settings, environment, observer).take_over()


def _named(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest with a name; a `generateName` gets five random characters, as the API server would add."""
    meta = dict(manifest.get("metadata") or {})
    if not meta.get("name"):
        letters = string.ascii_lowercase + string.digits
        meta["name"] = str(meta.pop("generateName")) + "".join(secrets.choice(letters) for _ in range(5))
    return {**manifest, "metadata": meta}
