"""Rebuild a factory: refuse what must not happen, save what Git lacks, reinstall or empty the machines, and build it again."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from steps.clients.kube.client import Kube
from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from steps.errors import StepError
from workflows.app.factories import (
    build_drain,
    factory_pipeline,
    factory_runs,
    foreign_processes,
    registry_certificate,
    registry_push,
    reinstallation,
    unplanned_contents,
)
from workflows.app.factories.rebuild_refusals import Overrides, Refusal, refusals, volumes_at_risk
from workflows.app.factories.unplanned_contents import UnplannedContents
from workflows.app.run_options import StartOptions, Wish
from workflows.app.runs.screen import Screen
from workflows.spec import FactorySpec

SAVED = {
    "workflows": "/apis/argoproj.io/v1alpha1/workflows",
    "workflowtemplates": "/apis/argoproj.io/v1alpha1/workflowtemplates",
    "cronworkflows": "/apis/argoproj.io/v1alpha1/cronworkflows",
    "configmaps": "/api/v1/configmaps",
    "pods": "/api/v1/pods",
    "events": "/api/v1/events",
}
"""File name → collection of what is saved before a factory is removed. Secrets are not among them."""
UNPLANNED = "only-in-cluster"
"""File of the objects that the spec does not bring, of any kind but Secrets."""


class RebuildRefused(ValueError):
    """Error for a rebuild that must not happen now; the message has every reason."""

    exit_code = ExitCode.GATE_FAILED
    hint = ""


@dataclass(frozen=True, kw_only=True)
class PreparedRebuild:
    """A checked rebuild: the spec, its path, and the kubeconfig of the live factory; None if no run of this machine built it.

    `until` is the last stage that is built; empty: all. `overrides` are an admin's decisions.
    """

    path: Path
    spec: FactorySpec
    kubeconfig: Path | None
    until: str = ""
    overrides: Overrides = field(default_factory=Overrides)

    @property
    def question(self) -> str:
        """Return what the rebuild does, as the question to a person."""
        machines = count(len(self.spec.cluster.machines), "machine")
        how = "reinstalls" if self.spec.rebuild.reinstall else "takes RKE2, the registry and all builds off"
        return f"rebuild {how} {machines} of factory {self.spec.name}, and builds it again"


def prepare(screen: Screen, source: str, overrides: Overrides, until: str = "") -> PreparedRebuild:
    """Check if a factory may be rebuilt now, and print the reasons that an admin overrides; `until` is the last stage.

    Builds that run are no reason if a rebuild waits for them (`rebuild.drain`). Raises RebuildRefused, and PlanError for an unknown
    stage.
    """
    path, spec = factory_pipeline.read(source)
    # a spec that cannot be built again must not end what there is
    factory_pipeline.plan_of(path, spec, until)
    registry_push.require_archives(spec, path.parent)
    registry_certificate.require_accepted(spec, path.parent)
    kubeconfig = _kubeconfig(source)
    prepared = PreparedRebuild(path=path, spec=spec, kubeconfig=kubeconfig, until=until, overrides=overrides)
    reasons = refusals(spec, path.parent, kubeconfig)
    is_drained = bool(spec.rebuild.drain) and not overrides.reason
    require_overridden(screen, prepared, [reason for reason in reasons if not (is_drained and reason.ends)])
    return prepared


def require_idle(screen: Screen, prepared: PreparedRebuild) -> None:
    """Ask the machines who works on them. Raises RebuildRefused for a slurmd and for processes of users, which no reason overrides.

    A machine that does not answer is a reason too, unless an admin has one to go on: it may be broken. So is one with RKE2 if no
    run of this machine built the factory, because its builds would end unseen.
    """
    outcomes = foreign_processes.look(prepared.spec.cluster, prepared.path.absolute().parent)
    reasons = [reason for outcome in outcomes for reason in foreign_processes.refusals_of(outcome)]
    if prepared.kubeconfig is None:
        reasons += foreign_processes.unknown_builds(outcomes)
    require_overridden(screen, prepared, reasons)


def require_overridden(screen: Screen, prepared: PreparedRebuild, reasons: Sequence[Refusal]) -> None:
    """Print every reason that the admin overrides, before anything is removed. Raises RebuildRefused if any other remains."""
    overrides = prepared.overrides
    if remaining := [reason for reason in reasons if not overrides.covers(reason)]:
        raise RebuildRefused(_sentences(prepared.spec, remaining))
    screen.lines(f"overridden: {reason.problem}" for reason in reasons)


def drain(screen: Screen, prepared: PreparedRebuild) -> None:
    """Wait until no build of the live factory runs, as long as its spec says; its schedules start none meanwhile.

    With a reason of an admin nothing is waited for. Builds may have filled volumes since `prepare` looked at them, so their bytes
    are judged again. Raises RebuildRefused if builds still run or volumes hold bytes.
    """
    if prepared.kubeconfig is None:
        return
    recheck = partial(_require_safe_volumes, screen, prepared)
    if prepared.spec.rebuild.drain is None or prepared.overrides.reason:
        recheck()
        return
    seconds = prepared.spec.rebuild.drain.total_seconds()
    running = build_drain.drain(prepared.kubeconfig, seconds, lambda line: screen.lines([line]), confirm=recheck)
    if running:
        problem = f"{count(len(running), 'build')} still run after {seconds:.0f} s: {', '.join(running[:5])}"
        fix = 'give rebuild.drain more time, or add --force "REASON", which ends them'
        raise RebuildRefused(_sentences(prepared.spec, [Refusal(problem=problem, fix=fix)]))


def _require_safe_volumes(screen: Screen, prepared: PreparedRebuild) -> None:
    # an admin who gives volumes up is not asked again, least of all a factory that may be dead
    if prepared.kubeconfig is not None and not prepared.overrides.lose_volumes:
        kube = Kube.from_file(prepared.kubeconfig, who="factory rebuild")
        require_overridden(screen, prepared, list(volumes_at_risk(prepared.spec, kube)))


def _sentences(spec: FactorySpec, reasons: Sequence[Refusal]) -> str:
    lines = [f"factory {spec.name} is not rebuilt, and nothing was changed:"]
    return "\n".join([*lines, *(f"  {reason.problem}: {reason.fix}" for reason in reasons)])


def _kubeconfig(source: str) -> Path | None:
    """Return the kubeconfig of the newest real run that built the factory; None if there is none on this machine."""
    try:
        status = factory_runs.status(source, real=True)
    except factory_runs.NoFactoryRun:
        return None
    return Path(status.kubeconfig) if status.kubeconfig else None


def contents_of(prepared: PreparedRebuild) -> UnplannedContents:
    """Return what only the live factory has, and its rebuild loses."""
    return unplanned_contents.read(prepared.path, prepared.spec, prepared.kubeconfig)


def rebuild(screen: Screen, prepared: PreparedRebuild, options: StartOptions, contents: UnplannedContents | None = None) -> int:
    """Save diagnostics, reinstall or empty the machines, and build the factory; return the exit code. Raises NotReinstalled.

    `contents` are those of the live factory if they were read before.
    """
    spec, source = prepared.spec, str(prepared.path)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    screen.lines(save_diagnostics(prepared, stamp, contents or contents_of(prepared)))
    began = time.monotonic()
    if spec.rebuild.reinstall:
        folder = prepared.path.absolute().parent
        reinstallation.reinstall(spec, lambda: foreign_processes.look(spec.cluster, folder))
        screen.lines([f"reinstalled {count(len(spec.cluster.machines), 'machine')} in {time.monotonic() - began:.0f} s of 30 min"])
    elif code := factory_runs.down(screen, source, options):
        return code
    return factory_runs.up(screen, source, options, Wish(until=prepared.until))


def save_diagnostics(prepared: PreparedRebuild, stamp: str, contents: UnplannedContents) -> list[str]:
    """Write what the live factory holds to a new folder, and return sentences: the folder, and `contents` that are lost.

    A factory that does not answer loses its diagnostics, which is said; it may be the reason for the rebuild.
    """
    spec, kubeconfig = prepared.spec, prepared.kubeconfig
    if kubeconfig is None:
        return ["no run of this machine has built this factory, so nothing of it is saved"]
    folder, kube = Path(spec.rebuild.diagnostics) / f"{spec.name}-{stamp}", Kube.from_file(kubeconfig, who="factory rebuild")
    folder.mkdir(parents=True, mode=0o700)
    lines = [f"diagnostics {folder}", *contents.sentences, *(f"not compared: {line}" for line in contents.uncompared)]
    unplanned = [item.content for item in contents.objects if item.content]
    (folder / f"{UNPLANNED}.json").write_text(json.dumps(unplanned, indent=1, sort_keys=True))
    for name, path in SAVED.items():
        try:
            objects = kube.list(path, dict[str, Any]) or ()
        except StepError as error:
            return [*lines, f"not everything is saved: {error}"]
        (folder / f"{name}.json").write_text(json.dumps(list(objects), indent=1, sort_keys=True))
    return lines
