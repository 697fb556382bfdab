"""Context of a task: everything that a verb works with, such as the task, its environment, the store and the clients."""

import functools
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from steps import __version__
from steps.clients import termination_message
from steps.clients.ansible.play_journal import PlayEvents, PlayJournal
from steps.clients.clock import Clock, clock_of
from steps.clients.environment import Environment
from steps.clients.fleet_folder import Fleet
from steps.clients.output_log import Log
from steps.clients.redact import Redactor
from steps.clients.store import AlreadyWritten, Store
from steps.contract import plain_text
from steps.contract.canonical import canonical
from steps.contract.fleet import LEAF
from steps.contract.host_play import PlayEvent
from steps.contract.runs import last_word, log_keys, quarantine
from steps.contract.runs.evidence import Diagnosis, Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Status, Verdict
from steps.errors import BadTask
from steps.report import checklists

if TYPE_CHECKING:
    from steps.clients.kube.client import Kube

T = TypeVar("T")
KUBECONFIG = "kubeconfig"
MOST_ROWS = 50
"""Largest number of nodes that a log names for one verdict; the record has all of them."""


class Context:
    """An attempt of one task, which a verb works with. Clients are created on first use. `log` is the process's, if it has one."""

    def __init__(
        self, task: Task, environment: Environment, shard: int = 0, inputs: Mapping[str, str] | None = None, log: Log | None = None
    ) -> None:
        self.task = task
        self.environment = environment
        self.shard = shard
        self.inputs = dict(inputs or {})
        self.store = Store(environment.store)
        self.fleet = Fleet(environment.fleet)
        self.events = PlayEvents()
        self.log = log or Log(Redactor([environment.secrets, self.run_secrets]))
        here = (environment.run, task.stage, task.name, shard)
        self._journal = PlayJournal(self.store, log_keys.events_folder(*here), self.log)
        self._started = time.time()
        self._attempt = 1
        self._changes: list[str] = []
        self._noticed = ""
        self._log_is_kept = False

    def say(self, text: str) -> None:
        """Write a line about the current work to the log of this attempt."""
        self.log.say(text)

    def log_change(self, text: str) -> None:
        """Write a line to the log unless it equals the last one written here, so that repeated observations do not fill the log."""
        if text != self._noticed:
            self._noticed = text
            self.say(text)

    def did(self, change: str) -> None:
        """Log a change that was just made to the target. The record lists it even if this attempt fails later."""
        self._changes.append(change)
        self.log.say(change)

    @property
    def changed(self) -> bool:
        """Return True if this attempt has changed anything: an entry of `did` does not begin with `unchanged`."""
        return any(not change.startswith("unchanged ") for change in self._changes)

    def hear(self, event: PlayEvent) -> None:
        """Keep an event of a play for the log and for the store.

        A journal on disk keeps it at once, in case the step is killed.
        """
        self.events.take(event)
        self._journal.note(event)

    def keep_log(self) -> None:
        """Store the log so far and the events of plays; only the first call writes. Raises StoreBusy if it cannot write."""
        if self._log_is_kept:
            return
        here = (self.environment.run, self.task.stage, self.task.name, self.shard)
        if events := self.log.redactor.text(self.events.text()):
            self.say(f"what each host did, task by task: {log_keys.events_folder(*here)}")
        attempt, data = self._attempt, self.log.text().encode()
        # an attempt that was killed before its record may have left a log with this number
        while True:
            key = log_keys.key(*here, attempt)
            try:
                self.store.write(key, data)
            except AlreadyWritten:
                attempt += 1
            else:
                break
        self._log_is_kept = True
        self.log.write(log_keys.kept_line(key))
        if events:
            self.store.write(log_keys.events_key(*here, attempt), events.encode())
        # last: should the step be killed before, the next one stores the events from the journal
        self._journal.remove()

    @property
    def own_gate(self) -> str:
        """Return the gate id `STAGE/TASK`, for a verdict that the task makes itself, without a gate."""
        return f"{self.task.stage}/{self.task.name}"

    @functools.cached_property
    def clock(self) -> Clock:
        """Return the target's clock: real time, or simulated time in a rehearsal."""
        return clock_of(self.environment)

    @functools.cached_property
    def kube(self) -> "Kube":
        """Return the client of the target cluster, by the kubeconfig that this run wrote or that the spec names."""
        from steps.clients.kube.client import Kube

        return Kube.from_file(self.kubeconfig(), f"{self.task.stage}.{self.task.name}")

    def kubeconfig(self) -> Path:
        """Return the path of the target's kubeconfig: the run's own if the rke2 stage wrote one, else the one given as a secret."""
        written = self.run_secrets / KUBECONFIG
        return written if written.exists() else self.environment.secrets / KUBECONFIG

    @property
    def run_secrets(self) -> Path:
        """Return the folder of secrets made at run time (mode 0600), which are never part of evidence or digests."""
        return self.environment.store / f"runs/{self.environment.run}/secrets"

    def keep_secret(self, name: str, text: str) -> None:
        """Store a secret of this run; from now on it is redacted from everything stored."""
        self.store.replace(f"runs/{self.environment.run}/secrets/{name}", text.encode(), mode=0o600)
        self.say(f"kept the secret {name} of this run")

    def arguments(self, kind: type[T]) -> T:
        """Return the task's arguments as the verb's own type. Raises BadTask naming the field."""
        try:
            return msgspec.convert(self.task.arguments, kind)
        except msgspec.ValidationError as error:
            raise BadTask(f"arguments of task {self.task.stage}.{self.task.name}: {error}") from error

    def quarantined(self) -> frozenset[str]:
        """Return the names of the nodes that stages of this run have quarantined."""
        entries = quarantine.entries(self.store.keys(quarantine.folder(self.environment.run)), self.store.read)
        return frozenset(entry.node for entry in entries)

    def expected_nodes(self, select: str) -> tuple[str, ...]:
        """Return the names of the nodes that a selector takes, without quarantined ones, in plan order."""
        aside = self.quarantined()
        return tuple(host.name for host in self.fleet.hosts(select) if host.name not in aside)

    def groups(self, nodes: Iterable[str]) -> dict[str, str]:
        """Return node → host group of some nodes, if the task's expectations differ between groups; else an empty dict."""
        if not any(self.task.expectations.get(key) for key in ("pools", "partitions")):
            return {}
        chosen = set(nodes)
        return {host.name: host.group for host in self.fleet.hosts() if host.name in chosen}

    def leaves(self, select: str) -> dict[str, str]:
        """Return host → leaf switch of the hosts that a selector takes, quarantined ones too; hosts without a leaf are left out."""
        return {host.name: leaf for host in self.fleet.hosts(select) if (leaf := host.variables.get(LEAF))}

    def not_passed(self, tasks: Iterable[str]) -> set[str]:
        """Return the names of the nodes whose verdict is no pass in any record of the given tasks of this stage."""
        run, stage = self.environment.run, self.task.stage
        verdicts = (record.verdict for name in tasks for record in self.store.records(run, stage, name))
        return {row.node for verdict in verdicts if verdict for row in verdict.nodes if row.status is not Status.PASS}

    def record(
        self,
        verdict: Verdict | None = None,
        *,
        observation: Any = None,
        changes: Iterable[str] = (),
        reused: str = "",
        error: str = "",
        diagnosis: Iterable[Diagnosis] = (),
    ) -> Evidence:
        """Store the record of this attempt, without secrets, and return it. Its changes begin with those given to `did`."""
        logged = set(self._changes)
        for change in changes:
            # a verb may pass changes that it has logged by `did` already
            if change not in logged:
                self.did(change)
        findings = (*diagnosis, *_linked(verdict))
        record = Evidence(
            run=self.environment.run,
            stage=self.task.stage,
            task=self.task.name,
            verb=self.task.verb.value,
            shard=self.shard,
            attempt=1,
            input_digest=self.task.input_digest,
            engine=self.environment.engine,
            started=self._started,
            finished=time.time(),
            verdict=verdict,
            observation=observation,
            changes=tuple(self._changes),
            reused=reused,
            error=plain_text.line(error),
            tools=_tools(self.task.verb),
            diagnosis=findings,
        )
        stored = self.store.write_evidence(record, lambda numbered: self.log.redactor.data(canonical(numbered)))
        self._attempt = stored.attempt
        if stored.verdict is not None:
            self.log_change(log_line(stored.verdict))
        for line in _about(stored):
            self.say(line)
        termination_message.leave(self.environment.out, last_word.render_last_word(stored, self.log.redactor.text))
        return stored

    def output(self, name: str, value: str) -> None:
        """Write an output parameter of this attempt as file `name` in the folder `out`, where the engine reads it."""
        self.environment.out.mkdir(parents=True, exist_ok=True)
        (self.environment.out / name).write_text(value)


def _linked(verdict: Verdict | None) -> tuple[Diagnosis, ...]:
    """Return a reference to the checklist of the verdict's failure class, for a verdict that stops a stage; else nothing."""
    if verdict is None or verdict.status in (Status.PASS, Status.SKIPPED):
        return ()
    return (checklists.link(verdict.failure_class or FailureClass.RUNTIME),)


def log_line(verdict: Verdict) -> str:
    """Return a verdict as one line of a log."""
    kind = f" ({verdict.failure_class.value})" if verdict.failure_class and not verdict.is_pass else ""
    return f"{verdict.gate} {verdict.status.value}{kind}: {verdict.reason}"


def _about(record: Evidence) -> Iterator[str]:
    """Yield further log lines about a stored record: the nodes that did not pass, and the findings that were collected."""
    nodes = record.verdict.nodes if record.verdict is not None else ()
    bad = [row for row in nodes if row.status not in (Status.PASS, Status.SKIPPED)]
    yield from (f"  {row.status.value} {row.sentence}" for row in bad[:MOST_ROWS])
    if len(bad) > MOST_ROWS:
        yield f"  and {len(bad) - MOST_ROWS} more nodes"
    for finding in record.diagnosis:
        yield (
            f"  checklist: {finding.content}"
            if finding.what == checklists.LINK
            else f"  collected {finding.what}: {finding.source}"
        )
    if record.reused:
        yield f"reused what run {record.reused} proved"
    yield f"recorded as attempt {record.attempt}"


def _tools(verb: Verb) -> dict[str, str]:
    """Return name → version of the tools that this verb uses."""
    # reading Ansible's version takes half as long as importing a client, so only plays do it
    if verb is not Verb.PLAY:
        return {"bringup": __version__}
    import importlib.metadata

    return {"bringup": __version__, "ansible-core": importlib.metadata.version("ansible-core")}
