"""Runs of a factory from an admin's machine: build it, tell where it is, and take it down."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from steps.clients.kube.client import Kube
from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.exit import ExitCode
from steps.contract.runs.operation import Operation, OperationKind
from steps.errors import StepError
from steps.report import factory_phases
from steps.report.timeline import stamp
from workflows.app.factories import registry_certificate, registry_push
from workflows.app.factories.factory_pipeline import FACTORY, read
from workflows.app.run_options import LOCAL, Pipeline, StartOptions, Wish
from workflows.app.runs import report_assembly, run_start
from workflows.app.runs.screen import Screen
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.result import read_status
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.spec import FactorySpec

KUBECONFIG = "kubeconfig"
NEWEST = "newest"
"""Name in place of a run: the newest run of this machine that built the factory, if the same cluster answers now."""
_KUBE_SYSTEM = "/api/v1/namespaces/kube-system"


class _LiveIdentity(Struct, frozen=True):
    uid: str = ""


class _LiveNamespace(Struct, frozen=True):
    metadata: _LiveIdentity = _LiveIdentity()


class NoFactoryRun(ValueError):
    """Error for a factory that no run of this machine has built."""


@dataclass(frozen=True, kw_only=True)
class FactoryStatus:
    """The newest run of a factory: its name, state and time, its stages, phases, and the kubeconfig that opens the factory."""

    run: str
    state: str
    began: str
    simulated: bool
    stages: tuple[tuple[str, str, str], ...]
    phases: tuple[str, ...]
    kubeconfig: str

    def values(self) -> dict[str, Any]:
        """Return the status as plain values for scripts."""
        stages = [{"stage": stage, "status": status, "reason": reason} for stage, status, reason in self.stages]
        about = {"run": self.run, "state": self.state, "began": self.began, "rehearsal": self.simulated}
        return {**about, "stages": stages, "phases": list(self.phases), "kubeconfig": self.kubeconfig or None}


def up(screen: Screen, source: str, options: StartOptions, wish: Wish) -> int:
    """Build a factory from its spec, or bring it up to the spec if it exists; return the exit code.

    Its builder images are pushed at the end. Raises NotPushed.
    """
    if wish.reuse == NEWEST:
        wish = replace(wish, reuse=(_proven_run(source) if options.engine == LOCAL else "") or Wish().reuse)
    path, spec = read(source)
    registry_push.require_archives(spec, path.parent)
    registry_certificate.require_accepted(spec, path.parent)
    code = run_start.start(screen, source, options, wish, FACTORY)
    if code == ExitCode.OK and options.engine == LOCAL and not wish.until:
        screen.lines(image.sentence for image in registry_push.push_images(spec, path.parent))
    return code


def _proven_run(source: str) -> str:
    """Return the newest run that built the factory, whose records hold for its cluster; empty if that cluster does not answer.

    The cluster is asked here, because a run refuses to reuse records about another one: a second machine may have rebuilt it.
    """
    folder = _newest_run(source, real=True)
    kubeconfig = folder.stored / "secrets" / KUBECONFIG if folder else None
    if folder is None or kubeconfig is None or not kubeconfig.exists():
        return ""
    known = run_records.target_uid(folder.name, Store(folder.home.store).read)
    try:
        live = Kube.from_file(kubeconfig, who="factory up").get(_KUBE_SYSTEM, _LiveNamespace)
    except StepError:
        return ""
    return folder.name if live is not None and known and live.metadata.uid == known else ""


def down(screen: Screen, source: str, options: StartOptions) -> int:
    """Remove RKE2 with everything in it from the machines of a factory; return the exit code."""
    wish = Wish(operation=Operation(kind=OperationKind.RESET))
    return run_start.start(screen, source, options, wish, Pipeline("bringup", read, _reset_plan))


def _reset_plan(_: Path, spec: FactorySpec, wish: Wish) -> Plan:
    return compile_plan(spec.cluster, operation=wish.operation)


def status(source: str, *, real: bool = False) -> FactoryStatus:
    """Return where a factory is, from the newest run here that built it, with `real` no rehearsal. Raises NoFactoryRun."""
    folder = _newest_run(source, real=real)
    if folder is None:
        raise NoFactoryRun(f"no run of this machine has built factory {read(source)[1].name}: bringup factory up {source}")
    return _status(folder)


def _newest_run(source: str, *, real: bool) -> RunFolder | None:
    """Return the newest run of this machine that built the factory of a spec, with `real` no rehearsal; None if there is none."""
    spec, home = read(source)[1], StateFolder.of_environment()
    return next((home.run(name) for name in reversed(home.runs()) if _builds(home, name, spec.name, real=real)), None)


def _builds(home: StateFolder, run: str, name: str, *, real: bool) -> bool:
    """Return True if a run built the factory of this name; the run of a removal has none of its stages."""
    data = Store(home.store).read(run_records.header_key(run))
    header = run_records.decode_header(data) if data is not None else None
    if header is None or header.cluster != name or (real and header.simulated):
        return False
    report = report_assembly.assemble(report_assembly.RunEvidence(home.run(run)))
    return any(stage.id.startswith(factory_phases.FACTORY) for stage in report.stages)


def _status(folder: RunFolder) -> FactoryStatus:
    engine = read_status(folder.engine, is_verified=False)
    report = report_assembly.assemble(report_assembly.RunEvidence(folder))
    kubeconfig = folder.stored / "secrets" / KUBECONFIG
    return FactoryStatus(
        run=folder.name,
        state=engine.phase if engine.alive or engine.finished else "interrupted",
        began=stamp(engine.began) if engine.began else "",
        simulated=report.simulated,
        stages=tuple((stage.id, stage.status, stage.reason) for stage in report.stages),
        phases=tuple(phase.sentence for phase in factory_phases.phases(report.stages, simulated=report.simulated)),
        kubeconfig=str(kubeconfig) if kubeconfig.exists() else "",
    )
