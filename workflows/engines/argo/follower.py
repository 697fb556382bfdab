"""Follow a run on Argo: turn watch events into the news that the local engine also reports, and show the status of each stage."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from steps.contract import run_records, stage_contracts
from steps.contract.exit import ExitCode
from steps.contract.runs import approval, last_word
from workflows.engines.argo import waits
from workflows.engines.argo.home import Home, NoWorkflow, decode_workflow
from workflows.engines.argo.resource_watch import ObjectGone, ObjectState, ResourceWatch, RoundEnded, WatchPace
from workflows.engines.argo.workflow_objects import Workflow, WorkflowNode, node_status
from workflows.engines.local.result import News, NodeNews, RunNews, RunNodeStatus
from workflows.render import names

Say = Callable[[str], None]
WORTH_SAYING = 2
"""Number of failed rounds in a row, half a second apart, after which an outage is reported."""


@dataclass
class NewsFeed:
    """Converter of successive states of a Workflow to news; it remembers what it has reported and does no I/O."""

    shown: dict[str, RunNodeStatus] = field(default_factory=dict)
    run: RunNews = field(default_factory=lambda: RunNews("", "", False, ""))

    def take(self, workflow: Workflow) -> Iterator[News]:
        """Yield the news since the last state: changed nodes in order of start, then a change of the run.

        Nodes that started within one second are in the order of the graph.
        """
        nodes = workflow.nodes()
        depth = _depths(nodes)
        for node in sorted(nodes.values(), key=lambda node: (node.started_at or "", depth[node.id], node.name)):
            status_now, previous = node_status(node, nodes), self.shown.get(node.id)
            self.shown[node.id] = status_now
            if previous is None or status_now != msgspec.structs.replace(previous, children=status_now.children):
                yield NodeNews(status_now, previous.phase if previous else "")
        status = workflow.status
        run = RunNews(status.phase, status.message, workflow.spec.suspend, workflow.spec.shutdown)
        if run != self.run:
            self.run = run
            yield run


def _depths(nodes: Mapping[str, WorkflowNode]) -> dict[str, int]:
    """Return node id → number of edges on the longest path from a root; `children` of a node are the nodes after it."""
    depth = dict.fromkeys(nodes, 0)
    open_parents = Counter(child for node in nodes.values() for child in node.children if child in nodes)
    ready = [name for name in nodes if not open_parents[name]]
    for name in ready:
        for child in nodes[name].children:
            if child in nodes:
                depth[child] = max(depth[child], depth[name] + 1)
                open_parents[child] -= 1
                if not open_parents[child]:
                    ready.append(child)
    return depth


def follow(
    home: Home, name: str, observe: Callable[[News], None], say: Say, *, pace: WatchPace | None = None, late: float = waits.LATE
) -> Workflow:
    """Report news to `observe` until the run ends, and return its final state.

    `say` gets sentences about what is stuck or unreachable. Raises NoWorkflow if the run is deleted meanwhile, Refused if
    credentials stay refused, UnreadableStatus.
    """
    digest, watcher, reach = NewsFeed(), waits.Watchdog(home, late), HomeReachability(say)
    latest: Workflow | None = None
    for event in ResourceWatch(home, home.workflows(), name, pace or WatchPace()).states():
        if isinstance(event, ObjectGone):
            raise NoWorkflow(f"Workflow {name} is not in namespace {home.namespace} of the home cluster, or was deleted")
        if isinstance(event, ObjectState):
            latest = decode_workflow(event.data)
            for news in digest.take(latest):
                observe(news)
            if latest.finished:
                return latest
        elif isinstance(event, RoundEnded):
            reach.take(event)
            if latest is not None and not event.trouble:
                for sentence in watcher.look(latest):
                    say(sentence)
    raise AssertionError("a stream has no end")


@dataclass
class HomeReachability:
    """Reporter of outages: says once that the home cluster does not answer, and once that it answers again.

    A single interrupted watch is not reported.
    """

    say: Say
    failed: int = 0

    def take(self, quiet: RoundEnded) -> None:
        """Count a finished round of watching as failed or good, and report an outage or its end."""
        failed_before, self.failed = self.failed, self.failed + 1 if quiet.trouble else 0
        if self.failed == WORTH_SAYING:
            self.say(f"the home cluster cannot be watched at the moment, but the run continues there: {quiet.trouble}")
        elif failed_before >= WORTH_SAYING and not self.failed:
            self.say("the home cluster answers again")


def open_gates(workflow: Workflow) -> list[WorkflowNode]:
    """Return the suspend nodes that wait for a person, the oldest first."""
    waiting = (node for node in workflow.nodes().values() if node.is_open_gate)
    return sorted(waiting, key=lambda node: (node.started_at or "", node.name))


def exit_code(phase: str) -> ExitCode:
    """Return the command line's exit code for a run's final phase, equal to that of the local engine (`RunResult.exit_code`)."""
    return {"Succeeded": ExitCode.OK, "Failed": ExitCode.GATE_FAILED}.get(phase, ExitCode.BUG)


JUDGE, VERDICT = "judge", "verdict"
NOT_RUN, TO_COME, UNTOLD, SKIPPED = "not run", "to come", "inconclusive", "skipped"
_BAD = ("fail", UNTOLD)
_FAILED = ("Failed", "Error")


def stages(ids: Iterable[str], nodes: Iterable[RunNodeStatus], run: str) -> list[dict[str, str]]:
    """Return one row per stage in running order (stage, status, reason), as `bringup status` prints them.

    If the task `open` failed, a row for it comes first.
    """
    by_template: dict[str, list[RunNodeStatus]] = {}
    for node in nodes:
        by_template.setdefault(node.template, []).append(node)
    opening = _opening(by_template.get(names.template(run_records.STAGE, run_records.OPEN), ()), run)
    stage_ids = tuple(ids)
    rows = [_stage(stage, by_template, run, opened=not opening) for stage in stage_ids]
    for shortcut in stage_contracts.declared_shortcuts(stage_ids):
        deciding = by_template.get(names.template(shortcut.stage, shortcut.task), ())
        if any(node.outputs.get(shortcut.output) == shortcut.done for node in deciding):
            rows = [_row(row["stage"], SKIPPED, shortcut.reason) if row["status"] == NOT_RUN else row for row in rows]
    return [*opening, *rows]


def _opening(nodes: Sequence[RunNodeStatus], run: str) -> list[dict[str, str]]:
    """Return a row for the task `open` in a list if the task failed for good (no further attempt follows); else an empty list."""
    pods = [node for node in nodes if node.type == "Pod"]
    whole = [node for node in nodes if node.type == "Retry"] or pods
    if not any(node.phase in _FAILED for node in whole):
        return []
    message = _last(pods or whole).message
    word = last_word.of_node(message)
    untold = f"{message}; why: bringup logs {run_records.STAGE}.{run_records.OPEN} --run {run}".removeprefix("; ")
    return [_row(run_records.OPEN, *((word.status, word.reason) if word else (UNTOLD, untold)))]


def _last(nodes: Iterable[RunNodeStatus]) -> RunNodeStatus:
    return max(nodes, key=lambda node: (node.started, node.path))


def _stage(stage: str, nodes: Mapping[str, list[RunNodeStatus]], run: str, *, opened: bool) -> dict[str, str]:
    judged = [node for node in nodes.get(names.template(stage, JUDGE), ()) if node.type == "Pod" and node.finished]
    whole = nodes.get(names.dashed(stage), [])
    if judged:
        last = _last(judged)
        status, word = last.outputs.get(VERDICT) or UNTOLD, last_word.of_node(last.message)
        # a pod that left no last word leaves at least the command that shows the reason
        reason = word.reason if word else f"{last.message}; why: bringup report {run}".removeprefix("; ")
        return _row(stage, status, reason if status in _BAD else "")
    if any(node.phase == "Running" for node in whole):
        return _row(stage, "running", "")
    ended = [node for node in whole if node.finished is not None]
    if refusal := _refused_approval(stage, nodes):
        return _row(stage, NOT_RUN, refusal)
    if ended and not opened:
        return _row(stage, NOT_RUN, f"{run_records.OPEN} did not pass")
    return _row(stage, NOT_RUN, ended[-1].message) if ended else _row(stage, TO_COME, "")


def _refused_approval(stage: str, nodes: Mapping[str, list[RunNodeStatus]]) -> str:
    """Return why the answer to the approval before a stage was refused, or "" if it was not."""
    confirmed = [node for node in nodes.get(names.template(stage, approval.CONFIRM), ()) if node.type == "Pod" and node.finished]
    if not confirmed or (last := _last(confirmed)).phase not in _FAILED:
        return ""
    word = last_word.of_node(last.message)
    return f"its approval was refused: {word.reason if word else last.message or last.phase}"


def ended_rows(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of `stages` for a run that has ended: a stage that was still to come is shown as not run."""
    return [_row(row["stage"], NOT_RUN, row["reason"]) if row["status"] == TO_COME else row for row in rows]


def with_reasons(rows: Iterable[dict[str, str]], stored: Mapping[str, tuple[str, str]]) -> list[dict[str, str]]:
    """Return the rows with the full reasons from the store; `stored` maps a stage to the status and reason of its verdict.

    A stored verdict that contradicts the row's status belongs to an earlier attempt and is not used.
    """
    return [_explained(row, stored.get(row["stage"])) for row in rows]


def _explained(row: dict[str, str], stored: tuple[str, str] | None) -> dict[str, str]:
    if row["status"] in ("running", TO_COME):
        return row
    if stored is not None and (row["status"] == stored[0] or (row["status"] in (NOT_RUN, UNTOLD) and stored[0] in _BAD)):
        return _row(row["stage"], *stored)
    return row


def _row(stage: str, status: str, reason: str) -> dict[str, str]:
    return {"stage": stage, "status": status, "reason": reason}
