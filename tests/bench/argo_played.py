"""A run of a rendered pipeline without processes: the engine's state machine in virtual time, its status as Argo writes it."""

import heapq
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from steps.contract.exit import ExitCode
from steps.contract.runs import approval
from tests.argo_stand_in.workflow_status import workflow_status
from workflows.engines.argo.submission import shard_counts
from workflows.engines.local import state_machine
from workflows.engines.local.manifest_parser import parse_plan as parse
from workflows.engines.local.model import WorkflowPlan as EnginePlan
from workflows.engines.local.run_state import AnyEvent, Operator, PodEnded, PodStarted, RunBegan, RunState, StartPod, TimeCame
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle

SLOTS = 100_000
"""Pods at one time: Argo leaves that to the cluster."""

REQUEUE = 10.0
"""DEFAULT_REQUEUE_TIME: how often a controller looks at a Workflow whose pods change, in seconds."""

START = 0.05
"""Between two pod starts of one fan-out: 20 API calls a second."""


class Played:
    """One run. `attempts` is how often each task is tried; all but the last attempt end with 75."""

    def __init__(self, name: str, plan: Plan, bundle: Bundle, attempts: int = 1, seed: int = 4) -> None:
        self.name, self.bundle = name, bundle
        template = bundle.template
        manifest = {**bundle.workflow, "metadata": {**bundle.workflow["metadata"], "name": name}}
        self.plan: EnginePlan = parse(manifest, {template["metadata"]["name"]: template}, SLOTS)
        self.answer: dict[str, str] = dict.fromkeys(approval.PARAMETERS, "pass")
        self._lists = {key: json.dumps(list(range(count))) for key, count in shard_counts(plan.hosts).items()}
        self._attempts = attempts
        self._seed = seed
        self._tries: Counter[str] = Counter()

    def states(self) -> Iterator[RunState]:
        """The state after each REQUEUE seconds in which something changed, when it waits for a person, and at its end."""
        chance, order = random.Random(self._seed), itertools.count()
        due: list[tuple[float, int, AnyEvent]] = [(0.0, next(order), RunBegan(at=0.0))]
        state, shown = state_machine.initial_state(), 0.0
        while not state.finished:
            if not due:
                yield state
                due = [(state.at, next(order), self._by_itself(state))]
            at, _, event = heapq.heappop(due)
            if at > shown + REQUEUE:
                yield state
                shown = at
            state, actions = state_machine.step(self.plan, state, event)
            for number, start in enumerate(action for action in actions if isinstance(action, StartPod)):
                began = state.at + number * START
                ended = began + chance.uniform(30, 600)
                heapq.heappush(due, (began, next(order), PodStarted(at=began, node=start.node)))
                heapq.heappush(due, (ended, next(order), self._ended(start, ended)))
        yield state

    def _ended(self, start: StartPod, at: float) -> PodEnded:
        task = start.node.rpartition("(")[0]  # the number of the attempt
        self._tries[task] += 1
        if self._tries[task] < self._attempts:
            return PodEnded(at=at, node=start.node, exit_code=int(ExitCode.TEMPORARY))
        given = {one.name: self._lists.get(one.name, "pass") for one in start.template.outputs}
        return PodEnded(at=at, node=start.node, exit_code=0, parameters=given)

    def _by_itself(self, state: RunState) -> AnyEvent:
        """Return the next event while no pod runs: the answer to a waiting approval, or the end of a wait between two attempts."""
        gate = next((node for node in state.nodes.values() if node.type == "Suspend" and node.phase == "Running"), None)
        if gate is not None:
            return Operator(at=state.at, verb="approve", node=gate.path, parameters=self.answer, message="answered by ada")
        assert state.wake is not None, "nothing will happen any more"
        return TimeCame(at=state.wake)

    def status(self, state: RunState, began: float) -> dict[str, Any]:
        """`status` as a 4.1.2 controller writes it (fields of its CRD), its own copy of the template included."""
        shown = workflow_status(self.plan, state, began)
        shown["nodes"] = {key: self._as_written(node) for key, node in shown["nodes"].items()}
        done = sum(node["phase"] == "Succeeded" for node in shown["nodes"].values())
        more = {"progress": f"{done}/{len(shown['nodes'])}", "storedWorkflowTemplateSpec": self.bundle.template["spec"]}
        return {key: value for key, value in {**shown, **more}.items() if value is not None}

    def _as_written(self, node: dict[str, Any]) -> dict[str, Any]:
        """With what a controller knows of pods and the engine does not: the same for the same node in every state."""
        chance = random.Random(f"{self._seed} {node['id']}")
        used = {"cpu": chance.randint(1, 600), "memory": chance.randint(10, 9000)}
        pod = {"hostNodeName": f"cp-{chance.randint(1, 3):02d}.example.internal"} if node["type"] == "Pod" else {}
        over = {"resourcesDuration": used} | ({"taskResultSynced": True} if pod else {}) if node["finishedAt"] else {}
        return {**node, "progress": "1/1" if node["finishedAt"] else "0/1", **pod, **over}


def waits(state: RunState) -> str:
    """The open approval; empty when nobody is waited for."""
    return next((node.name for node in state.nodes.values() if node.type == "Suspend" and node.phase == "Running"), "")


def last(states: Iterator[RunState]) -> RunState:
    """The last of them."""
    *_, state = states
    return state
