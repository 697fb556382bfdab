"""Gate of factory_pipelines: exactly the released templates are installed, unchanged, and schedules start them."""

from collections.abc import Iterator

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.factory_pipelines.contract import ControlExpectation, ControlObservation, InstalledSchedule
from steps.stages.shared.finding import Finding, fail, unknown

CONTROL = "factory_pipelines/control"
AGAIN = "bringup factory up installs it again"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check that each project has exactly its released templates, each unchanged, and that each schedule starts its template."""
    finding = next(_problems(seen, want), None)
    if finding is not None:
        return finding.verdict(CONTROL)
    schedules = f", {count(len(want.schedules), 'schedule')}" if want.schedules else ""
    return passed(CONTROL, f"{count(len(want.templates), 'released template')} installed{schedules}")


def _problems(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    if not want.templates:
        yield unknown(FailureClass.INPUT, "no released template was asked for", "one", "name a file in pipelines of the spec")
    digests = {template.name: template.digest for template in seen.templates}
    for name, released in want.templates.items():
        if name not in digests:
            yield unknown(FailureClass.DEPENDENCY, f"there is no WorkflowTemplate {name}", "it", AGAIN)
        elif digests[name] != released:
            step = f"kubectl get workflowtemplate {name.partition('/')[2]} -o yaml; find out who changed it: {AGAIN}"
            yield fail(FailureClass.COMPARISON, f"WorkflowTemplate {name} is not as it was released", released[:19], step)
    if strangers := sorted(set(digests) - set(want.templates)):
        step = "delete it, or release it in pipelines of the spec: whatever is installed can be submitted"
        yield fail(FailureClass.PERMISSION, f"WorkflowTemplate {strangers[0]} was not released", "released templates alone", step)
    crons = {schedule.name: schedule for schedule in seen.schedules}
    for wanted in want.schedules:
        yield from _schedule(crons.get(wanted.name), wanted)


def _schedule(seen: InstalledSchedule | None, want: InstalledSchedule) -> Iterator[Finding]:
    if seen is None:
        yield unknown(FailureClass.DEPENDENCY, f"there is no CronWorkflow {want.name}", "it", AGAIN)
        return
    if (seen.cron, seen.template) != (want.cron, want.template):
        state = f"CronWorkflow {want.name} starts {seen.template or 'nothing'} at {', '.join(seen.cron) or 'no time'}"
        yield fail(FailureClass.COMPARISON, state, f"{want.template} at {', '.join(want.cron)}", AGAIN)
    if seen.problem:
        step = f"kubectl -n {want.name.partition('/')[0]} describe cronworkflow {want.name.partition('/')[2]}"
        yield fail(FailureClass.RUNTIME, f"CronWorkflow {want.name} cannot start: {seen.problem}", "a schedule that starts", step)
