"""Follow a run: turn watch events into the news that the embedded engine also reports, and report what is stuck."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from steps.contract.exit import ExitCode
from workflows.engines.argo import waits
from workflows.engines.argo.home import Home, NoWorkflow, decode_workflow
from workflows.engines.argo.resource_watch import ObjectGone, ObjectState, ResourceWatch, RoundEnded, WatchPace
from workflows.engines.argo.workflow_objects import Workflow, WorkflowNode, node_status
from workflows.engines.local.result import News, NodeNews, RunNews, RunNodeStatus

Say = Callable[[str], None]
WORTH_SAYING = 2
"""Failed rounds in a row, half a second apart, after which the outage is reported."""


@dataclass
class NewsFeed:
    """The news of a run already reported; computes the news of each further state (pure)."""

    shown: dict[str, RunNodeStatus] = field(default_factory=dict)
    run: RunNews = field(default_factory=lambda: RunNews("", "", False, ""))

    def take(self, workflow: Workflow) -> Iterator[News]:
        """Yield the news of one state: nodes in order of start (within one second: in order of the graph), then the run."""
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
    """Return the longest distance of each node from a root; `children` of a node are the nodes after it."""
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
    """Report news to `observe` until the run ends; return its last state. `say` gets sentences about what is stuck or unreachable.

    Raises NoWorkflow if the run is deleted meanwhile, Refused if credentials stay refused, UnreadableStatus.
    """
    digest, watcher, reach = NewsFeed(), waits.Watchdog(home, late), HomeReachability(say)
    latest: Workflow | None = None
    for seen in ResourceWatch(home, home.workflows(), name, pace or WatchPace()).states():
        if isinstance(seen, ObjectGone):
            raise NoWorkflow(f"Workflow {name} is not in namespace {home.namespace} of the home cluster, or was deleted")
        if isinstance(seen, ObjectState):
            latest = decode_workflow(seen.data)
            for news in digest.take(latest):
                observe(news)
            if latest.finished:
                return latest
        elif isinstance(seen, RoundEnded):
            reach.take(seen)
            if latest is not None and not seen.trouble:
                for sentence in watcher.look(latest):
                    say(sentence)
    raise AssertionError("a stream has no end")


@dataclass
class HomeReachability:
    """Reports once that the home cluster does not answer, and once that it answers again; a single cut watch is not reported."""

    say: Say
    failed: int = 0

    def take(self, quiet: RoundEnded) -> None:
        """Count the end of a round."""
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
    """Return the exit code for a phase, as the embedded engine does (see `RunResult.exit_code`)."""
    return {"Succeeded": ExitCode.OK, "Failed": ExitCode.GATE_FAILED}.get(phase, ExitCode.BUG)
