"""A rendered Workflow on the embedded engine's state machine, in simulated time: stand-in builds that only last and end.

No process is started. It shows in which order builds start, how many run at a time, and how long the machine takes for an event.
"""

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workflows.engines.local.manifest_parser import parse_plan
from workflows.engines.local.run_state import AnyEvent, PodEnded, PodStarted, RunBegan, RunNode, RunState, StartPod, TimeCame
from workflows.engines.local.state_machine import initial_state, step
from workflows.render.bundle import Bundle

Outcome = Callable[[int, int], int]
"""Type of a function that returns the exit code of a build from its shard and the number of its attempt, which begins with 0."""


@dataclass
class SimulatedBuilds:
    """The course of a run: names of graph tasks in the order of their starts, most builds at a time, and seconds by two clocks."""

    state: RunState = field(default_factory=initial_state)
    started: list[str] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    most: int = 0
    clock: float = 0.0
    event_seconds: list[float] = field(default_factory=list)

    def phases(self) -> dict[str, str]:
        """Return the phase of each task of the graph, and of the tasks of the stage, by name."""
        nodes = sorted(self.state.nodes.values(), key=lambda node: len(node.path))
        return {node.name: node.phase for node in nodes if not node.retried and node.type != "DAG"}


def simulate(
    made: Bundle, seconds: Mapping[int, float], outcome: Outcome = lambda shard, attempt: 0, slots: int = 1000
) -> SimulatedBuilds:
    """Run a rendered Workflow to its end. `seconds` has the time of each shard's build; all other tasks take none."""
    manifest = {**made.workflow, "metadata": {**made.workflow["metadata"], "name": "wf"}}
    plan = parse_plan(manifest, {made.template["metadata"]["name"]: made.template}, slots)
    course, ends = SimulatedBuilds(), list[tuple[float, int, str, int]]()

    def happen(event: AnyEvent) -> None:
        before = time.process_time()
        course.state, actions = step(plan, course.state, event)
        course.event_seconds.append(time.process_time() - before)
        for action in actions:
            if isinstance(action, StartPod):
                node = course.state.nodes[action.node]
                shard, attempt = _shard(node), int(node.path.rpartition("(")[2].rstrip(")")) if node.path.endswith(")") else 0
                code = 0 if shard is None else outcome(shard, attempt)
                if shard is not None:
                    course.started.append(course.state.nodes[node.options.owner].name if node.retried else node.name)
                    course.running.add(node.path)
                    course.most = max(course.most, len(course.running))
                lasting = 0.0 if shard is None else seconds.get(shard, 0.0)
                heapq.heappush(ends, (course.clock + lasting, len(course.event_seconds), node.path, code))
                happen(PodStarted(at=course.clock, node=node.path))

    happen(RunBegan(at=0.0))
    while not course.state.finished:
        wake = course.state.wake
        if ends and (wake is None or ends[0][0] <= wake):
            course.clock, _, path, code = heapq.heappop(ends)
            course.running.discard(path)
            happen(PodEnded(at=course.clock, node=path, exit_code=code, parameters=_outputs(path)))
        else:
            assert wake is not None, "nothing runs, nothing is due, and the workflow has not ended"
            course.clock = max(course.clock, wake)
            happen(TimeCame(at=course.clock))
    return course


def _shard(node: RunNode) -> int | None:
    values = dict(node.inputs)
    return int(values["shard"]) if "shard" in values else None


def _outputs(path: str) -> dict[str, Any]:
    return {"shards": "[]", "agents": "[]"} if ".open" in path else {"verdict": "pass"}
