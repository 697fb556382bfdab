"""Properties of the pure machine over random DAGs, outcomes, limits and kill points."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, seed, settings
from hypothesis import strategies as st

from workflows.engines.local.manifest_parser import parse_plan as make_plan
from workflows.engines.local.model import WorkflowPlan
from workflows.engines.local.run_state import (
    Action,
    AnyEvent,
    EndPod,
    EngineReturned,
    Operator,
    PodEnded,
    PodStarted,
    RunBegan,
    RunState,
    StartPod,
    TimeCame,
)
from workflows.engines.local.state_machine import initial_state, step
from workflows.render.grammar.findings import refused
from workflows.render.grammar.lint import lint

SEED = 20261121  # printed by hypothesis with a failing example
RESULTS = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted")
API = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "wf"}}


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    """A DAG of up to seven tasks: random conditions on earlier ones, fan-outs, retries, conditions, nesting, limits."""
    tasks: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, 7))):
        task: dict[str, Any] = {"name": f"t{index}", "template": draw(st.sampled_from(["pod", "again", "nested"]))}
        parents = draw(st.lists(st.integers(0, index - 1), unique=True, max_size=3)) if index else []
        terms = [f"t{parent}" + draw(st.sampled_from(["", *(f".{result}" for result in RESULTS)])) for parent in parents]
        if terms:
            task["depends"] = draw(st.sampled_from([" && ", " || "])).join(terms)
        if draw(st.booleans()):
            task["withItems"] = draw(st.lists(st.integers(0, 3), max_size=3)) or ["only"]
        if draw(st.integers(0, 4)) == 0:
            task["when"] = draw(st.sampled_from(["1 == 1", "1 == 2"]))
        tasks.append(task)
    main: dict[str, Any] = {"name": "main", "dag": {"tasks": draw(st.permutations(tasks)), "failFast": draw(st.booleans())}}
    if draw(st.booleans()):
        main["parallelism"] = draw(st.integers(1, 3))
    pod = {"container": {"image": "none", "command": ["true"]}}
    templates = [
        main,
        {"name": "pod", **pod},
        {"name": "again", "retryStrategy": {"limit": draw(st.integers(0, 2))}, **pod},
        {
            "name": "nested",
            "dag": {"tasks": [{"name": "in", "template": "pod"}, {"name": "out", "template": "again", "depends": "in"}]},
        },
        {"name": "bye", **pod},
    ]
    spec = {"entrypoint": "main", "onExit": "bye", "templates": templates}
    if draw(st.booleans()):
        spec["parallelism"] = draw(st.integers(1, 3))
    return {**API, "spec": spec}


@dataclass
class World:
    """Scripted processes: what a pod ends with depends on its name alone, who ends next on the random order."""

    plan: WorkflowPlan
    order: random.Random
    outcomes: int
    state: RunState
    running: list[str]
    log: list[tuple[AnyEvent, tuple[Action, ...]]]
    clock: float = 0.0
    watch: Callable[[RunState, tuple[Action, ...]], None] | None = None

    def happen(self, event: AnyEvent) -> None:
        self.state, actions = step(self.plan, self.state, event)
        self.log.append((event, actions))
        if self.watch is not None:
            self.watch(self.state, actions)
        starts = [action.node for action in actions if isinstance(action, StartPod)]
        for node in starts:
            self.running.append(node)
            self.happen(PodStarted(at=self.clock, node=node))
        for action in actions:
            if isinstance(action, EndPod) and action.node in self.running:
                self.finish(action.node)

    def finish(self, node: str) -> None:
        self.running.remove(node)
        code = random.Random(f"{self.outcomes} {node}").choice([0, 0, 0, 1, 75])
        self.happen(PodEnded(at=self.clock, node=node, exit_code=code))

    def go(self, most: int = 10_000) -> None:
        for _ in range(most):
            if self.state.finished:
                return
            self.clock += 1.0
            if self.running:
                self.finish(self.order.choice(self.running))
            else:
                assert self.state.wake is not None, "nothing runs, nothing is due, and the workflow is not finished"
                self.happen(TimeCame(at=max(self.clock, self.state.wake)))


def world(manifest: dict[str, Any], slots: int, outcomes: int, order: int) -> World:
    assert not refused(lint(manifest))
    return World(make_plan(manifest, {}, slots), random.Random(order), outcomes, initial_state(), [], [])


def phases(state: RunState) -> dict[str, str]:
    return {path: node.phase for path, node in state.nodes.items()}


RUNS = {"manifest": manifests(), "slots": st.integers(1, 4), "outcomes": st.integers(0, 10**6), "order": st.integers(0, 10**6)}


@seed(SEED)
@settings(max_examples=150, deadline=None)
@given(**RUNS)
def test_every_run_ends_and_replays_to_the_same(manifest: dict[str, Any], slots: int, outcomes: int, order: int) -> None:
    first = world(manifest, slots, outcomes, order)
    first.happen(RunBegan(at=0.0))
    first.go()
    assert first.state.finished
    assert first.state.live == 0
    assert not first.state.queue
    assert all(node.fulfilled for node in first.state.nodes.values())
    state = initial_state()
    for event, actions in first.log:
        state, again = step(first.plan, state, event)
        assert again == actions
    assert state == first.state


@seed(SEED)
@settings(max_examples=150, deadline=None)
@given(**RUNS)
def test_nothing_starts_early_and_limits_hold(manifest: dict[str, Any], slots: int, outcomes: int, order: int) -> None:
    run = world(manifest, slots, outcomes, order)
    main = manifest["spec"]["templates"][0]
    parents = {task["name"]: run.plan.templates["", "main"].shape.dependencies[task["name"]] for task in main["dag"]["tasks"]}

    def check(state: RunState, actions: tuple[Action, ...]) -> None:
        assert state.live <= slots
        assert state.live <= manifest["spec"].get("parallelism", slots)
        children = [node for node in state.nodes.values() if node.boundary == "wf" and node.type in ("Pod", "DAG")]
        assert sum(not node.fulfilled for node in children) <= main.get("parallelism", len(children))
        for action in actions:
            if isinstance(action, StartPod) and action.node != "wf.onExit":
                task = action.node.removeprefix("wf.").split("(")[0].split(".")[0]
                assert all(state.nodes[f"wf.{parent}"].fulfilled for parent in parents[task])

    run.watch = check
    run.happen(RunBegan(at=0.0))
    run.go()


@seed(SEED)
@settings(max_examples=150, deadline=None)
@given(**RUNS, killed_after=st.integers(0, 40), order_after=st.integers(0, 10**6))
def test_a_run_that_was_killed_ends_like_one_that_was_not(
    manifest: dict[str, Any], slots: int, outcomes: int, order: int, killed_after: int, order_after: int
) -> None:
    whole = world(manifest, slots, outcomes, order)
    whole.happen(RunBegan(at=0.0))
    whole.go()
    resumed = world(manifest, slots, outcomes, order_after)
    for event, _ in whole.log[:killed_after]:
        resumed.state, _ = step(resumed.plan, resumed.state, event)
        resumed.clock = event.at
    resumed.happen(EngineReturned(at=resumed.clock) if killed_after else RunBegan(at=0.0))
    resumed.go()
    assert phases(resumed.state) == phases(whole.state)
    assert (resumed.state.phase, resumed.state.message) == (whole.state.phase, whole.state.message)


@seed(SEED)
@settings(max_examples=100, deadline=None)
@given(**RUNS, stopped_after=st.integers(1, 20), verb=st.sampled_from(["stop", "terminate"]))
def test_after_a_stop_only_the_exit_handler_starts(
    manifest: dict[str, Any], slots: int, outcomes: int, order: int, stopped_after: int, verb: str
) -> None:
    run = world(manifest, slots, outcomes, order)
    run.happen(RunBegan(at=0.0))
    run.go(stopped_after)
    if run.state.finished:
        return
    before = run.state
    seen = len(run.log)
    run.happen(Operator(at=run.clock, verb=verb))
    run.go()
    assert run.state.finished
    started = [action.node for _, actions in run.log[seen:] for action in actions if isinstance(action, StartPod)]
    assert started in ([], ["wf.onExit"] if verb == "stop" and "wf.onExit" not in before.nodes else [])


def test_ready_tasks_start_in_manifest_order() -> None:
    names = ["c", "a", "b", "z"]
    tasks = [{"name": name, "template": "pod", **({"depends": "b"} if name == "c" else {})} for name in names]
    templates = [{"name": "main", "dag": {"tasks": tasks}}, {"name": "pod", "container": {"image": "none", "command": ["true"]}}]
    plan = make_plan({**API, "spec": {"entrypoint": "main", "templates": templates}}, {}, 8)
    _, actions = step(plan, initial_state(), RunBegan(at=0.0))
    assert [action.node for action in actions if isinstance(action, StartPod)] == ["wf.a", "wf.b", "wf.z"]


RICH: dict[str, Any] = {
    **API,
    "spec": {
        "entrypoint": "main",
        "onExit": "bye",
        "arguments": {"parameters": [{"name": "w", "value": "1"}]},
        "templates": [
            {
                "name": "main",
                "dag": {
                    "tasks": [
                        {
                            "name": "a",
                            "template": "pod",
                            "arguments": {"parameters": [{"name": "v", "value": "{{workflow.parameters.w}}"}]},
                        },
                        {
                            "name": "b",
                            "template": "pod",
                            "depends": "a.Succeeded",
                            "when": "{{tasks.a.status}} == Succeeded",
                            "withParam": "[1, 2]",
                            "arguments": {"parameters": [{"name": "v", "value": "{{item}} {{= tasks.a.status }}"}]},
                        },
                        {"name": "gate", "template": "gate", "depends": "b || a"},
                        {"name": "s", "template": "steps", "depends": "gate"},
                    ]
                },
            },
            {
                "name": "steps",
                "steps": [
                    [{"name": "x", "template": "bye"}, {"name": "y", "template": "bye", "withSequence": {"count": "2"}}],
                    [{"name": "z", "template": "bye", "when": "{{steps.x.exitCode}} == 0", "continueOn": {"failed": True}}],
                ],
            },
            {
                "name": "pod",
                "inputs": {"parameters": [{"name": "v"}]},
                "outputs": {"parameters": [{"name": "o", "valueFrom": {"path": "/bringup/out/o", "default": "d"}}]},
                "retryStrategy": {"limit": 1, "backoff": {"duration": "1s", "factor": 2, "maxDuration": "1m"}},
                "container": {"image": "none", "command": ["sh"], "args": ["{{inputs.parameters.v}} {{retries}}"]},
            },
            {
                "name": "gate",
                "suspend": {"duration": "10m"},
                "outputs": {"parameters": [{"name": "d", "valueFrom": {"supplied": {}, "default": "hold"}}]},
            },
            {"name": "bye", "timeout": "5m", "container": {"image": "none", "command": ["true"], "args": ["{{node.name}}"]}},
        ],
    },
}
STRANGE = [
    None, "", "x", 0, 3, True, [], {}, "{{item}}", "{{workflow.status}}", "{{= 1 + 1 }}", "{{tasks.a.outputs.parameters.o}}",
    "1 == 2", "1 == 1", "5s", "a", "b", "pod", "gate", "steps", "main", "bye", ["a"], {"name": "a"}, "[1,2]", "[]", "null",
    '{"a":1}', "Failed", "a.Failed", {"duration": "1s"},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into nested dicts and lists."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in below for found in places(item, (*path, key)))]


@seed(SEED)
@settings(max_examples=400, deadline=None)
@given(data=st.data(), slots=st.integers(1, 3), outcomes=st.integers(0, 10**6))
def test_whatever_the_linter_lets_pass_runs_to_an_end(data: st.DataObject, slots: int, outcomes: int) -> None:
    """One or two strange values anywhere in a rich manifest: refused, or executed; the machine never trips."""
    manifest = copy.deepcopy(RICH)
    for _ in range(data.draw(st.integers(1, 2))):
        spot = data.draw(st.sampled_from(places(manifest)[1:]))
        inner: Any = manifest
        for key in spot[:-1]:
            inner = inner[key]
        inner[spot[-1]] = copy.deepcopy(data.draw(st.sampled_from(STRANGE)))
    if refused(lint(manifest)):
        return
    run = world(manifest, slots, outcomes, 0)
    run.happen(RunBegan(at=0.0))
    if run.state.suspended:
        run.happen(Operator(at=0.0, verb="resume"))
    run.go()
    assert run.state.finished


def dag_of(tasks: list[dict[str, Any]], *more: dict[str, Any]) -> dict[str, Any]:
    pod = {"name": "pod", "container": {"image": "none", "command": ["true"]}}
    return {**API, "spec": {"entrypoint": "main", "templates": [{"name": "main", "dag": {"tasks": tasks}}, pod, *more]}}


def test_a_task_that_stands_before_its_parent_is_still_omitted() -> None:
    """Found by the properties: the fan-out ends the sweep, the omitted task before it must not be forgotten."""
    tasks = [{"name": "late", "template": "pod", "depends": "fan"}, {"name": "fan", "template": "pod", "withItems": ["only"]}]
    plan = make_plan(dag_of(tasks), {}, 1)
    state, _ = step(plan, initial_state(), RunBegan(at=0.0))
    state, _ = step(plan, state, PodEnded(at=1.0, node="wf.fan(0:only)", exit_code=1))
    assert phases(state) == {"wf": "Failed", "wf.fan": "Failed", "wf.fan(0:only)": "Failed", "wf.late": "Omitted"}


def test_a_backoff_that_is_over_when_another_pod_ends_is_not_forgotten() -> None:
    """Found by the properties: the end of one pod and the end of another's wait may come in the same event."""
    again = {
        "name": "again",
        "retryStrategy": {"limit": 1, "backoff": {"duration": "1"}},
        "container": {"image": "none", "command": ["true"]},
    }
    plan = make_plan(dag_of([{"name": "a", "template": "again"}, {"name": "b", "template": "pod"}], again), {}, 2)
    state, _ = step(plan, initial_state(), RunBegan(at=0.0))
    state, _ = step(plan, state, PodEnded(at=1.0, node="wf.a(0)", exit_code=1))
    assert state.wake == 2.0
    state, actions = step(plan, state, PodEnded(at=2.0, node="wf.b", exit_code=0))
    assert [action.node for action in actions if isinstance(action, StartPod)] == ["wf.a(1)"]
