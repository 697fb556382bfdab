"""Options of a run as use cases take them: where a run is, how to start or rehearse one, and which pipeline it runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.contract.runs import approval
from steps.contract.runs.operation import BRINGUP, Operation
from steps.contract.runs.revision import SpecSource

if TYPE_CHECKING:
    from workflows.plan.model import Plan

LOCAL, ARGO = "local", "argo"


class UsageError(ValueError):
    """Error for options or arguments that have no meaning together; the command line adds the hint `COMMAND --help`."""


@dataclass(frozen=True)
class RunLocation:
    """Location of an existing run as a command line gives it. If all fields are empty, this machine's record of the run decides."""

    engine: str = ""
    home_kubeconfig: str = ""
    home_context: str = ""
    namespace: str = ""

    @property
    def is_named(self) -> bool:
        """Return True if the command line says that the run is on Argo."""
        return self.engine == ARGO or bool(self.home_kubeconfig or self.home_context or self.namespace)


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """Options of a command that starts a run: engine, home cluster, images, and if the command follows the run (`wait`)."""

    engine: str = LOCAL
    wait: bool = True
    junit: Path | None = None
    home_kubeconfig: str = ""
    home_context: str = ""
    namespace: str = ""
    image: str = ""
    version: str = ""
    builder = ""
    """The image of pods that build node images; empty for commands without such pods."""


@dataclass(frozen=True, kw_only=True)
class RehearsalRequest:
    """The options of a rehearsal; an empty option leaves the choice to the spec."""

    spec: str
    fault: Sequence[str] | None = None
    approve_as: str = approval.REHEARSAL
    key: str = ""
    hold: bool = False
    seed: int = 1
    kubeconfig: Path | None = None
    roles_off: str = ""
    speed: float | None = None
    nodes_at: str = ""
    only: Sequence[str] | None = None
    until: str = ""
    operation: str = ""
    hosts: Sequence[str] | None = None
    older: str = ""
    """RKE2 version that the simulated cluster has before an upgrade or a rollback."""
    engine: str = LOCAL
    home_kubeconfig: str = ""
    home_context: str = ""
    namespace: str = ""
    image: str = ""
    builder: str = ""
    version: str = ""

    def restart_command(self) -> str:
        """Return the command line that starts the same rehearsal again; options without a value are left out."""
        options: dict[str, Iterable[object]] = {
            "--fault": self.fault or (),
            "--only": self.only or (),
            "--until": [self.until],
            "--seed": [self.seed] * (self.seed != 1),
            "--approve-as": [self.approve_as] * (self.approve_as != approval.REHEARSAL),
            "--key": [self.key],
            "--kubeconfig": [self.kubeconfig or ""],
            "--roles-off": [self.roles_off],
            "--nodes-at": [self.nodes_at],
            "--speed": [] if self.speed is None else [self.speed],
            "--operation": [self.operation],
            "--hosts": self.hosts or (),
            "--from": [self.older],
        }
        words = [part for name, values in options.items() for value in values if str(value) for part in (name, str(value))]
        return shlex.join(["bringup", "rehearse", self.spec, *words, *(["--hold"] if self.hold else [])])


@dataclass(frozen=True)
class Wish:
    """A user's choices about one run that are not in the spec: earlier run to reuse, stages, operation."""

    reuse: str = "none"
    only: tuple[str, ...] = ()
    until: str = ""
    operation: Operation = BRINGUP
    again: bool = False
    """Publish even a version that was rolled back."""
    source: SpecSource | None = None
    """Commit and path that the spec was read from, if its folder is no Git work tree; None to ask Git."""
    supersede: bool = False
    """End unfinished runs of the same spec just before this run starts."""


@dataclass(frozen=True)
class Pipeline:
    """The functions of one pipeline, such as cluster bring-up; `manifests.PIPELINES` has its render function under `kind`.

    `read` finds and loads the spec that an argument names, `plan` plans it. `ended` maps a run's name and exit code to the
    command's exit code. A loaded spec of any pipeline has name, owner, revision, approvals, schedule and secrets. With `forks`
    the embedded engine forks steps from one process that has imported them, which pays for many short steps.
    """

    kind: str
    read: Callable[[str], tuple[Path, Any]]
    plan: Callable[[Path, Any, Wish], Plan]
    ended: Callable[[str, int], int] = lambda _, code: code
    forks: bool = False

    def plan_of(self, source: str, only: tuple[str, ...], until: str, operation: Operation = BRINGUP) -> Plan:
        """Return the plan of the spec that `source` names.

        Raises NoSpec, SpecErrors, PlanError; UsageError for options that do not apply.
        """
        if self.kind != "bringup" and (only or operation != BRINGUP):
            kind = "an image spec" if self.kind == "image" else f"the spec of a {self.kind}"
            raise UsageError(f"{source} is {kind}: --until narrows it; --only and --operation are for a cluster")
        path, loaded = self.read(source)
        return self.plan(path, loaded, Wish(only=only, until=until, operation=operation))
