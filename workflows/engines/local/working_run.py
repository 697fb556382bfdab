"""The mutable copy of a run's state during one step of the state machine; only here nodes are created, changed and connected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from workflows.engines.local.model import TemplateCall, TemplateModel, WorkflowPlan
from workflows.engines.local.run_state import (
    ERROR,
    FAILED,
    FULFILLED,
    PENDING,
    RUNNING,
    Action,
    CallOptions,
    Outputs,
    RunNode,
    RunState,
)

_SEPARATOR = re.compile(r"^(\[\d+\])?\.")


class TemplateExecutor(Protocol):
    """Type of a function that executes templates of one kind: it creates the template's node, or continues it."""

    def __call__(self, run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions, /) -> RunNode:
        """Create or continue the node `path` for a template, and return the node in its new state."""


class CallError(Exception):
    """Exception: a template could not be called; the text is the message for the caller's node."""


class WorkingRun:
    """The mutable state of a run within one step of the state machine.

    `changed` becomes true with every change of a node, and false at the start of a walk over the nodes.
    """

    def __init__(self, plan: WorkflowPlan, state: RunState, kinds: Mapping[str, TemplateExecutor]) -> None:
        self.plan = plan
        self.kinds = kinds
        self.before = state
        self.nodes: dict[str, RunNode] = dict(state.nodes)
        self.at = state.at
        self.phase = state.phase
        self.message = state.message
        self.outputs = dict(state.outputs)
        self.suspended = state.suspended
        self.shutdown = state.shutdown
        self.broken = state.broken
        self.queue = list(state.queue)
        self.live = state.live
        self.timers = dict(state.timers)
        self.locks = dict(state.locks)
        self.actions: list[Action] = []
        self.touched: dict[str, None] = {}
        self.changed = False
        self.moves = 0  # how often a node changed
        self.everything = plan.has_limits  # limits can free any node, so the whole tree is visited
        self.due: set[str] = set()
        self._due_next: set[str] = set()
        self.depth = 0
        self.failures = ""
        self.status = ""  # what `workflow.status` says once the entry is fulfilled
        self._active: dict[str, int] | None = None

    def state(self) -> RunState:
        """Return the state as a frozen `RunState`."""
        return RunState(
            self.nodes,
            self.at,
            self.phase,
            self.message,
            self.outputs,
            self.suspended,
            self.shutdown,
            self.broken,
            tuple(self.queue),
            self.live,
            self.timers,
            self.locks,
        )

    def begin_round(self) -> None:
        """Begin a walk over the nodes, which visits the nodes touched since the last walk and all nodes above them."""
        self.due, self._due_next = self._due_next, set()
        self.changed = False

    def touch(self, path: str) -> None:
        """Make the next walk visit this node and all nodes above it."""
        while path and path not in self._due_next:
            self._due_next.add(path)
            path = self.nodes[path].options.owner

    def is_due(self, path: str) -> bool:
        """Return True if the current walk must visit this open node."""
        return self.everything or path in self.due

    # --- nodes --------------------------------------------------------------------------------------------------------

    def put(self, node: RunNode) -> RunNode:
        """Store a node in its new state and return it."""
        before = self.nodes.get(node.path)
        if before == node:
            return node
        if self._active is not None and (before is None or before.phase != node.phase):
            self._count(before, -1)
            self._count(node, 1)
        self.nodes[node.path] = node
        self.touched[node.path] = None
        self.changed = True
        self.moves += 1
        self.touch(node.path)
        if node.phase in FULFILLED:
            self.timers.pop(node.path, None)
        return node

    def create(
        self,
        path: str,
        kind: str,
        phase: str,
        call: TemplateCall | None,
        options: CallOptions,
        message: str = "",
        template: TemplateModel | None = None,
    ) -> RunNode:
        """Create a node and return it; its display name is its path without the path of the enclosing node."""
        name = path
        if options.boundary in self.nodes:
            name = _SEPARATOR.sub("", path.removeprefix(options.boundary))
        node = RunNode(
            path,
            name,
            kind,
            phase,
            self.at,
            call.template if call else "",
            message,
            options.boundary,
            hooked=options.hooked,
            retried=options.retried,
            finished=self.at if phase in FULFILLED else None,
            on_exit=options.on_exit,
            template=template,
            call=call,
            options=options,
            inputs=tuple((item.name, item.value or "") for item in template.inputs) if template else (),
        )
        return self.put(node)

    def mark(self, path: str, phase: str, message: str | None = None, **changes: Any) -> RunNode:
        """Set the phase of a node, its message unless None, and other fields by keyword; return the node."""
        node = self.nodes[path]
        if phase in FULFILLED and node.finished is None:
            changes["finished"] = self.at
        return self.put(replace(node, phase=phase, message=node.message if message is None else message, **changes))

    def change(self, path: str, **changes: Any) -> RunNode:
        """Set fields of a node by keyword and return the node."""
        return self.put(replace(self.nodes[path], **changes))

    def fail_call(self, path: str, call: TemplateCall, options: CallOptions, sentence: str) -> CallError:
        """Mark the node as Error, or create it as a node of type Skipped if its call never began; return the exception to raise."""
        if path in self.nodes:
            self.mark(path, ERROR, sentence)
        else:
            self.create(path, "Skipped", ERROR, call, options, sentence)
        return CallError(sentence)

    def connect(self, parent: str, child: str) -> None:
        """Add `child` to the children of `parent` unless it is there already."""
        node = self.nodes[parent]
        if child not in node.children:
            self.put(replace(node, children=(*node.children, child)))

    def set_outputs(self, path: str, outputs: Outputs) -> RunNode:
        """Store a node's outputs, and export those with a global name to the workflow; return the node."""
        node = self.change(path, outputs=outputs)
        if node.template is not None:
            for declared in node.template.outputs:
                value = outputs.parameters.get(declared.name)
                if declared.global_name and value is not None:
                    self.outputs[declared.global_name] = value
        return node

    def attempts(self, node: RunNode) -> list[RunNode]:
        """Return the attempts of a Retry node in order, without exit handlers; empty for other nodes."""
        if node.type != "Retry":
            return []
        children = [self.nodes[path] for path in node.children if path in self.nodes]
        return [child for child in children if child.retried and not child.hooked]

    # --- limits -------------------------------------------------------------------------------------------------------

    def _count(self, node: RunNode | None, change: int) -> None:
        if node is None or self._active is None or node.phase not in (PENDING, RUNNING):
            return
        if node.type in ("Pod", "Steps", "DAG"):
            self._active[node.boundary] = self._active.get(node.boundary, 0) + change
        if node.type == "Pod":
            # a key that cannot be the path of a node
            self._active["\0pods"] = self._active.get("\0pods", 0) + change

    def has_room(self, boundary: str) -> bool:
        """Return True if the parallelism of the workflow and of the enclosing template allows another child to start."""
        if not self.plan.has_limits:
            return True
        if self._active is None:
            self._active = {}
            for node in self.nodes.values():
                self._count(node, 1)
        if self.plan.parallelism is not None and self._active.get("\0pods", 0) >= self.plan.parallelism:
            return False
        parent = self.nodes.get(boundary)
        limit = parent.template.parallelism if parent is not None and parent.template is not None else None
        return limit is None or self._active.get(boundary, 0) < limit

    def lock(self, names: tuple[str, ...], path: str) -> bool:
        """Take all these mutexes for the node `path` and return True, or none and return False if another open node holds one."""
        for name in names:
            holder = self.nodes.get(self.locks.get(name, ""))
            if holder is not None and holder.path != path and not holder.fulfilled:
                return False
        self.locks.update(dict.fromkeys(names, path))
        return True

    def must_not_run(self, on_exit: bool) -> bool:
        """Return True if the shutdown forbids this part of the workflow: Stop spares exit handlers, Terminate spares nothing."""
        return self.shutdown == "Terminate" or (self.shutdown == "Stop" and not on_exit)

    def past_deadline(self, on_exit: bool) -> bool:
        """Return True if the workflow's deadline has passed and applies to this part; it does not apply to exit handlers."""
        return self.plan.active_deadline is not None and not on_exit and self.at >= self.plan.active_deadline

    def globals(self) -> dict[str, str | None]:
        """Return the workflow-wide variables (`workflow.*`) with their current values."""
        scope: dict[str, str | None] = dict(self.plan.variables)
        scope["workflow.status"] = self.status or self.phase
        if self.failures:
            scope["workflow.failures"] = self.failures
        scope.update({f"workflow.outputs.parameters.{name}": value for name, value in self.outputs.items()})
        return scope

    def failed_nodes(self) -> list[RunNode]:
        """Return the nodes whose phase is Failed or Error, sorted by path."""
        return sorted((node for node in self.nodes.values() if node.phase in (FAILED, ERROR)), key=lambda node: node.path)
