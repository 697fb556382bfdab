"""Drains and resumes one Slurm node, then cordons and uncordons its Kubernetes node, and looks at both sides after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.clock import Clock
from steps.clients.kube.api import ApiError
from steps.errors import NotUnderstood, Unreachable
from steps.runtime import gating
from steps.stages.shared.kube_reader import Scope
from steps.stages.shared.slurm_states import DRAINED
from steps.stages.slurm import reader
from steps.stages.slurm.contract import DrainObservation, DrainStep, NodesObservation, SlurmNode

if TYPE_CHECKING:
    from steps.clients.kube.client import Kube

NODES_GATE = "slurm/nodes"
"""Gate whose probe reads how Kubernetes shows Slurm's nodes."""
COMMAND_SECONDS = 60.0


class DrainPlan(Struct, frozen=True, kw_only=True):
    """Place of Slurm's tools (`container` of `pod`), the script that uses them, and if a cordon must reach Slurm too."""

    namespace: str
    pod: str
    container: str
    script: str
    cordon: bool = True


class DrainTask(Protocol):
    """The part of a running task that the round trip needs: the client of the target, and its clock."""

    @property
    def kube(self) -> Kube:
        """Return the client of the target."""

    @property
    def clock(self) -> Clock:
        """Return the target's clock."""


class _ToolError(Exception):
    """Raised if Slurm's tools cannot be used, or refuse a step."""


class RoundTrip:
    """One node on its way out of service and back, by both sides."""

    def __init__(self, task: DrainTask, plan: DrainPlan, arguments: dict[str, Any], node: str) -> None:
        """Prepare for a Kubernetes node; `arguments` are those of the task, by which the probe finds Slurm."""
        self._task, self._plan, self._node = task, plan, node
        self._arguments = arguments
        self._name = ""
        self._steps: list[DrainStep] = []

    def run(self) -> DrainObservation:
        """Go through all steps and return what both sides showed; the node is back in service in any case."""
        error = ""
        try:
            self._go()
        except (ApiError, Unreachable, NotUnderstood, _ToolError) as problem:
            error = str(problem)[:500]
        return DrainObservation(node=self._node, steps=tuple(self._steps), error=error)

    def _go(self) -> None:
        self._name = self._kubernetes()[0]
        if not self._name:
            raise _ToolError(f"no slurmd pod on {self._node}")
        self._note("before", self._slurm("show"))
        with self._undone(lambda: self._slurm("resume")):
            self._note("slurm_drain", self._slurm("drain"), slurm=True, kubernetes=True)
        self._note("slurm_resume", self._slurm("show"), slurm=False, kubernetes=False)
        if not self._plan.cordon:
            return
        with self._undone(lambda: self._cordon(False)):
            self._cordon(True)
            self._note("cordon", self._slurm("show"), slurm=True)
        self._note("uncordon", self._slurm("show"), slurm=False, kubernetes=False)

    @contextmanager
    def _undone(self, undo: Callable[[], object]) -> Iterator[None]:
        try:
            yield
        finally:
            undo()

    def _note(self, name: Any, node: SlurmNode, *, slurm: bool | None = None, kubernetes: bool | None = None) -> None:
        """Record what both sides show, once they show a drain or none as given (None: anything), or after a while."""
        deadline = self._task.clock.now() + timeouts.DRAIN_SHOWN
        while True:
            shown = self._kubernetes()[1]
            reached = _shows(node.states, slurm) and _shows(shown, kubernetes)
            if reached or self._task.clock.now() >= deadline:
                break
            self._task.clock.pause(timeouts.POLL_FIRST, deadline)
            node = self._slurm("show")
        self._steps.append(DrainStep(name=name, slurm=node.states, kubernetes=shown, reason=node.reason))

    def _slurm(self, action: str) -> SlurmNode:
        plan = self._plan
        words = ("env", "CHECK=slurm-drain", f"NODE={self._name}", f"ACTION={action}", "/bin/sh", "-c", plan.script)
        output = self._task.kube.execute(plan.namespace, plan.pod, plan.container, words, COMMAND_SECONDS)
        nodes = reader.records(output.stdout)
        if output.code or not nodes:
            raise _ToolError(f"scontrol {action} {self._name} ended with {output.code}: {(output.stderr or output.stdout)[-300:]}")
        return nodes[0]

    def _kubernetes(self) -> tuple[str, tuple[str, ...]]:
        """Return the name of the Slurm node, and its states as the conditions of its pod show them."""
        seen: NodesObservation = gating.probe(NODES_GATE)(self._task.kube, Scope(nodes=(self._node,), arguments=self._arguments))
        pod = next((pod for pod in seen.pods if pod.node == self._node), None)
        return (pod.name, pod.states) if pod else ("", ())

    def _cordon(self, cordoned: bool) -> None:
        self._task.kube.merge(f"/api/v1/nodes/{self._node}", {"spec": {"unschedulable": True if cordoned else None}})


def _shows(states: tuple[str, ...], drained: bool | None) -> bool:
    """Return True if states have a drain or none, as `drained` says (None: anything)."""
    return drained is None or drained == bool(DRAINED & set(states))


def as_output(observation: DrainObservation) -> dict[str, Any]:
    """Return an observation as plain data, which the probe gets as an argument."""
    plain: dict[str, Any] = msgspec.to_builtins(observation)
    return plain
