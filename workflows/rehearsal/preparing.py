"""What a rehearsal of some stages finds in place: the stages before them, brought up healthy by the plan's own tasks."""

import shutil
from pathlib import Path

from workflows.engines import inputs, launch
from workflows.engines.folders import Home, RunFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal import handing
from workflows.rehearsal.processes import SimulatedCluster
from workflows.spec import ClusterSpec
from workflows.stages import ORDER


class Gap(ValueError):
    """Stages between the chosen ones are left out: nothing could bring them up in the middle of the rehearsal."""

    hint = "name them with --only as well, or rehearse the chosen stages one by one"


class NotPrepared(RuntimeError):
    """The stages before the chosen ones did not come up."""

    exit_code = 65
    hint = "rehearse them first: bringup rehearse SPEC --until STAGE"


def ground(spec: ClusterSpec, plan: Plan) -> Plan | None:
    """The plan of the stages that stand before a narrowed plan, without approvals; None where there are none. Raises Gap."""
    chosen = [stage.id for stage in plan.stages]
    left_out = [str(stage) for stage in plan.open_task.arguments.get("left_out", ())]
    between = [stage for stage in left_out if ORDER.index(stage) > ORDER.index(chosen[0])]
    if between:
        raise Gap(f"a rehearsal of {', '.join(chosen)} alone would lack what lies between: {', '.join(between)}")
    return compile_plan(spec.model_copy(update={"approvals": ()}), only=left_out) if left_out else None


def prepare(folder: RunFolder, before: Plan, cluster: SimulatedCluster) -> None:
    """Bring those stages up in the cluster, apart from the run's own store, and hand their secrets on. Raises NotPrepared.

    They run under the run's name, so that the target's lease is the run's own. Once they stand, nothing of that run is left.
    """
    from workflows import bringup  # both with Hera: few rehearsals have stages before them
    from workflows.render.bundle import render

    place = folder.home.root / "clusters" / folder.name / "prepared"
    apart = Home(place).run(folder.name)
    inputs.write(apart, before, render(before, bringup.build), Path("/"), {}, simulated=True)
    handing.secrets(before, apart.inputs / "secrets")
    result = launch.start(apart, cluster.environment, None)
    if result.exit_code:
        stages = ", ".join(stage.id for stage in before.stages)
        said = _headline(apart) or result.message or result.phase
        raise NotPrepared(f"the stages before ({stages}) did not come up: {said} (see {apart.stored})")
    made = apart.stored / "secrets"
    if made.exists():
        shutil.copytree(made, folder.inputs / "secrets", dirs_exist_ok=True)
    handing.delivered(apart.stored, folder.stored)
    shutil.rmtree(place)


def _headline(folder: RunFolder) -> str:
    """What the report of a run says first; empty where none was written."""
    report = folder.stored / "report" / "report.txt"
    return report.read_text().partition("\n")[0] if report.exists() else ""
