"""Follows a run: watch events become the same news that the embedded engine tells; what is stuck is said in one sentence."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from steps.contract.exit import ExitCode
from workflows.engines.argo import watchdog
from workflows.engines.argo.home import Home, NoWorkflow, decoded
from workflows.engines.argo.objects import Node, Workflow, node_status
from workflows.engines.argo.streams import Gone, Pace, Quiet, State, Stream
from workflows.engines.local.result import News, NodeNews, NodeStatus, RunNews

Say = Callable[[str], None]
WORTH_SAYING = 2
"""Rounds that fail one after the other, half a second apart."""


@dataclass
class Digest:
    """What has been told of a run: pure bookkeeping of its states."""

    shown: dict[str, NodeStatus] = field(default_factory=dict)
    run: RunNews = field(default_factory=lambda: RunNews("", "", False, ""))

    def take(self, workflow: Workflow) -> Iterator[News]:
        """The news of one state: nodes in the order in which they started, those of one second as one follows on the other, then
        the run."""
        nodes = workflow.nodes()
        depth = _depths(nodes)
        for node in sorted(nodes.values(), key=lambda node: (node.started_at or "", depth[node.id], node.name)):
            now, before = node_status(node, nodes), self.shown.get(node.id)
            self.shown[node.id] = now
            if before is None or now != msgspec.structs.replace(before, children=now.children):
                yield NodeNews(now, before.phase if before else "")
        status = workflow.status
        run = RunNews(status.phase, status.message, workflow.spec.suspend, workflow.spec.shutdown)
        if run != self.run:
            self.run = run
            yield run


def _depths(nodes: Mapping[str, Node]) -> dict[str, int]:
    """How many nodes come before each, at the most: a node's children are what comes after it."""
    depth = dict.fromkeys(nodes, 0)
    before = Counter(child for node in nodes.values() for child in node.children if child in nodes)
    ready = [name for name in nodes if not before[name]]
    for name in ready:
        for child in nodes[name].children:
            if child in nodes:
                depth[child] = max(depth[child], depth[name] + 1)
                before[child] -= 1
                if not before[child]:
                    ready.append(child)
    return depth


def follow(
    home: Home, name: str, observe: Callable[[News], None], say: Say, *, pace: Pace | None = None, late: float = watchdog.LATE
) -> Workflow:
    """Tell news until the run ends; its last state. `say` gets sentences about what is stuck or out of reach.

    Raises NoWorkflow when it is deleted meanwhile, Refused when credentials stay refused, Unreadable.
    """
    digest, watcher, reach = Digest(), watchdog.Watchdog(home, late), Reach(say)
    latest: Workflow | None = None
    for seen in Stream(home, home.workflows(), name, pace or Pace()).states():
        if isinstance(seen, Gone):
            raise NoWorkflow(f"Workflow {name} is not in namespace {home.namespace} of the home cluster, or was deleted")
        if isinstance(seen, State):
            latest = decoded(seen.data)
            for news in digest.take(latest):
                observe(news)
            if latest.finished:
                return latest
        elif isinstance(seen, Quiet):
            reach.take(seen)
            if latest is not None and not seen.trouble:
                for sentence in watcher.look(latest):
                    say(sentence)
    raise AssertionError("a stream has no end")


@dataclass
class Reach:
    """Says once that home does not answer, and once that it does again; a watch that is cut and goes on at once is nothing."""

    say: Say
    failed: int = 0

    def take(self, quiet: Quiet) -> None:
        """A round is over."""
        before, self.failed = self.failed, self.failed + 1 if quiet.trouble else 0
        if self.failed == WORTH_SAYING:
            self.say(f"the home cluster cannot be watched now, the run itself goes on there: {quiet.trouble}")
        elif before >= WORTH_SAYING and not self.failed:
            self.say("the home cluster answers again")


def gates(workflow: Workflow) -> list[Node]:
    """Suspend nodes that wait for a person, the oldest first."""
    waiting = (node for node in workflow.nodes().values() if node.is_open_gate)
    return sorted(waiting, key=lambda node: (node.started_at or "", node.name))


def exit_code(phase: str) -> ExitCode:
    """As of the embedded engine: 0 Succeeded; 65 Failed (a task, a gate or an operator said no); 1 Error."""
    return {"Succeeded": ExitCode.OK, "Failed": ExitCode.GATE_FAILED}.get(phase, ExitCode.BUG)
