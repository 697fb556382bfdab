"""What every verb has in hand: its task, its environment, and clients made when first used."""

import functools
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from steps import __version__
from steps.clients.clock import Clock
from steps.clients.clock import of as clock_of
from steps.clients.environment import Environment
from steps.clients.fleet import Fleet
from steps.clients.redact import Redactor
from steps.clients.store import Store
from steps.contract import quarantine
from steps.contract.canonical import canonical
from steps.contract.evidence import Diagnosis, Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import Verdict, failed, inconclusive
from steps.errors import BadTask, StepError, Temporary

if TYPE_CHECKING:
    from steps.clients.kube import Kube

T = TypeVar("T")
KUBECONFIG = "kubeconfig"


class Context:
    """One attempt of one task. Clients are lazy: a verb pays only for what it uses."""

    def __init__(self, task: Task, environment: Environment, shard: int = 0, inputs: Mapping[str, str] | None = None) -> None:
        self.task = task
        self.environment = environment
        self.shard = shard
        self.inputs = dict(inputs or {})
        self.store = Store(environment.store)
        self.fleet = Fleet(environment.fleet)
        self._started = time.time()

    @functools.cached_property
    def clock(self) -> Clock:
        """The target's clock."""
        return clock_of(self.environment)

    @functools.cached_property
    def kube(self) -> "Kube":
        """The target cluster, through the kubeconfig that this run wrote or that the spec names."""
        from steps.clients.kube import Kube

        return Kube.from_file(self.kubeconfig())

    def kubeconfig(self) -> Path:
        """Path of the target's kubeconfig: the run's own if the rke2 stage wrote one, else the one given as a secret."""
        written = self.run_secrets / KUBECONFIG
        return written if written.exists() else self.environment.secrets / KUBECONFIG

    @property
    def run_secrets(self) -> Path:
        """Where secrets that were made at run time lie (0600); never part of evidence or digests."""
        return self.environment.store / f"runs/{self.environment.run}/secrets"

    def keep_secret(self, name: str, text: str) -> None:
        """Keep a secret of this run; it is redacted from everything stored from now on."""
        self.store.replace(f"runs/{self.environment.run}/secrets/{name}", text.encode(), mode=0o600)
        self.__dict__.pop("redactor", None)

    def arguments(self, kind: type[T]) -> T:
        """The task's arguments as the verb's own type. Raises BadTask naming the field."""
        try:
            return msgspec.convert(self.task.arguments, kind)
        except msgspec.ValidationError as error:
            raise BadTask(f"arguments of task {self.task.stage}.{self.task.name}: {error}") from error

    def quarantined(self, without: str = "") -> dict[str, str]:
        """Nodes set aside in this run, with their reasons; those that stage `without` set aside are left out."""
        prefix, left_out = f"runs/{self.environment.run}/quarantine", quarantine.key(self.environment.run, without)
        entries = (self.store.read(key) for key in self.store.keys(prefix) if key != left_out)
        return {entry.node: entry.reason for data in entries if data for entry in quarantine.decode(data)}

    def expected_nodes(self, select: str) -> tuple[str, ...]:
        """Names of the nodes that a selector takes and nobody has set aside, in plan order."""
        aside = self.quarantined()
        return tuple(host.name for host in self.fleet.hosts(select) if host.name not in aside)

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
        """Store what this attempt did, without secrets, and return the stored record."""
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
            changes=tuple(changes),
            reused=reused,
            error=error,
            tools=_tools(self.task.verb),
            diagnosis=tuple(diagnosis),
        )
        return self.store.write_evidence(record, lambda numbered: self.redactor.data(canonical(numbered)))

    def record_error(self, error: StepError) -> None:
        """Store what ended this attempt as its verdict, so that the judge's sentence is about the cause."""
        gate = str(self.task.arguments.get("gate") or f"{self.task.stage}/{self.task.name}")
        seen, expected, next_step = str(error), "the task to come to its verdict", error.hint or "read the task's log"
        if isinstance(error, Temporary):
            kind = error.failure_class
            verdict = inconclusive(gate, seen=seen, expected=expected, next_step=next_step, failure_class=kind)
        else:
            verdict = failed(gate, error.failure_class, seen=seen, expected=expected, next_step=next_step, final=True)
        self.record(verdict, error=str(error))

    @functools.cached_property
    def redactor(self) -> Redactor:
        """Knows the run's secrets."""
        return Redactor([self.environment.secrets, self.run_secrets])

    def output(self, name: str, value: str) -> None:
        """Write an output parameter of this attempt."""
        self.environment.out.mkdir(parents=True, exist_ok=True)
        (self.environment.out / name).write_text(value)


def _tools(verb: Verb) -> dict[str, str]:
    """Versions of what this verb uses; asking for Ansible's takes as long as importing half of a client."""
    if verb is not Verb.PLAY:
        return {"bringup": __version__}
    import importlib.metadata

    return {"bringup": __version__, "ansible-core": importlib.metadata.version("ansible-core")}
