"""What the commands that start or continue a run share: prepare it, show it, conclude it."""

from collections.abc import Sequence

from steps.clients.store import Store
from workflows import bringup
from workflows.cli import compiling, live, output
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, RunResult
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle
from workflows.spec import ClusterSpec


def prepare(spec: ClusterSpec, only: Sequence[str], until: str) -> tuple[Plan, Bundle]:
    """Plan, render and lint a bring-up."""
    plan = compile_plan(spec, only=only, until=until)
    return plan, compiling.rendered(plan, bringup.build)


def shown(plan: Plan, folder: RunFolder) -> live.View:
    """The live view of a run that is about to start."""
    console = output.console()
    console.print(f"run {folder.name}: {len(plan.hosts)} hosts, {len(plan.stages)} stages, plan {plan.digest[:19]}", markup=False)
    return live.View(live.Progress(plan, folder.name, Store(folder.home.store)), console)


def plain_observer(news: News) -> None:
    """Watches nothing: a resumed run is shown by its report."""


def conclude(folder: RunFolder, result: RunResult) -> int:
    """Print the acceptance report and where it lies; the exit code of the run."""
    report = folder.stored / "report" / "report.txt"
    output.lines(
        ["", report.read_text().rstrip() if report.exists() else f"no report was written: {result.phase} {result.message}"]
    )
    output.lines(["", f"report   {folder.stored / 'report' / 'report.html'}", f"evidence {folder.stored}"])
    return result.exit_code
