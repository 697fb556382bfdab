"""Measure how much time the embedded engine adds to a step beyond the child process itself: `python tests/bench/engine.py`.

A chain of do-nothing steps (`true`), so nothing overlaps; a step costs the time from the end of the one before to its own end.
The child's own time is that of the same command started and awaited by itself.  Limit: p95 of 30 ms.
Also the machine alone: an event of a run with a fan-out over 313 shards (10,000 nodes in shards of 32).
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.manifest_parser import parse_plan
from workflows.engines.local.result import News, NodeNews
from workflows.engines.local.run_state import PodEnded, PodStarted, RunBegan, StartPod
from workflows.engines.local.state_machine import initial_state, step

STEPS = 200
LIMIT_MS = 30.0
SHARDS = 313
EVENT_LIMIT_MS = 5.0
API = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "bench"}}


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def workflow(tasks: list[dict[str, Any]], templates: list[dict[str, Any]]) -> dict[str, Any]:
    return {**API, "spec": {"entrypoint": "main", "templates": [{"name": "main", "dag": {"tasks": tasks}}, *templates]}}


def child_alone() -> float:
    """Milliseconds (median) of starting and awaiting `true`."""
    spent = []
    for _ in range(100):
        before = time.perf_counter()
        subprocess.run(["true"], check=True, stdin=subprocess.DEVNULL, start_new_session=True)
        spent.append((time.perf_counter() - before) * 1000)
    return statistics.median(spent)


def overheads() -> list[float]:
    """Milliseconds that each step of the chain took beyond the child alone."""
    ends: list[float] = []

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.node.type == "Pod" and news.node.phase == "Succeeded" and news.before != "Succeeded":
            ends.append(time.perf_counter())

    chain = [{"name": f"t{i}", "template": "t", **({"depends": f"t{i - 1}"} if i else {})} for i in range(STEPS)]
    manifest = workflow(chain, [{"name": "t", "container": {"image": "none", "command": ["true"]}}])
    with tempfile.TemporaryDirectory() as folder:
        LocalEngine(Path(folder) / "run", manifest, observer=observe).run()
    alone = child_alone()
    return [(after - before) * 1000 - alone for before, after in itertools.pairwise(ends)]


def machine_events() -> list[float]:
    """Milliseconds of each step of the pure machine over one stage with a fan-out."""
    shards = {"parameters": [{"name": "shards", "valueFrom": {"path": "/bringup/out/shards"}}]}
    play = {
        "name": "play",
        "template": "play",
        "depends": "open",
        "withParam": "{{tasks.open.outputs.parameters.shards}}",
        "arguments": {"parameters": [{"name": "shard", "value": "{{item}}"}]},
    }
    tasks = [{"name": "open", "template": "open"}, play, {"name": "judge", "template": "open", "depends": "play.Succeeded"}]
    inputs = {"parameters": [{"name": "shard"}]}
    templates = [
        {"name": "open", "container": {"image": "none", "command": ["true"]}, "outputs": shards},
        {
            "name": "play",
            "inputs": inputs,
            "retryStrategy": {"limit": 1},
            "container": {"image": "none", "command": ["true", "{{inputs.parameters.shard}}"]},
        },
    ]
    run = parse_plan(workflow(tasks, templates), {}, 16)
    spent: list[float] = []
    state, events = initial_state(), [RunBegan(at=0.0)]
    while events:
        before = time.perf_counter()
        state, actions = step(run, state, events.pop(0))
        spent.append((time.perf_counter() - before) * 1000)
        for action in actions:
            if isinstance(action, StartPod):
                parameters = (
                    {"shards": json.dumps(list(range(SHARDS)))} if action.capture is False and "(" not in action.node else {}
                )
                events += [
                    PodStarted(at=1.0, node=action.node),
                    PodEnded(at=2.0, node=action.node, exit_code=0, parameters=parameters),
                ]
    assert state.phase == "Succeeded"
    return spent


def report(what: str, value: float, limit: float) -> bool:
    print(f"{what}: {value:.2f} ms (limit {limit:g} ms) {'PASS' if value <= limit else 'SHORT'}")
    return value <= limit


def main() -> int:
    steps = overheads()
    print(f"overhead of a do-nothing step, p50: {statistics.median(steps):.2f} ms")
    events = machine_events()
    passed = [
        report("overhead of a do-nothing step, p95", p95(steps), LIMIT_MS),
        report(f"one event of the machine, fan-out of {SHARDS}, p95", p95(events), EVENT_LIMIT_MS),
    ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
