"""Run exit handlers of tasks, steps and the workflow, and the other life-cycle hooks of the workflow."""

from __future__ import annotations

from collections.abc import Callable

from workflows.engines.local.calls import execute, pod_name
from workflows.engines.local.model import LOCAL, Hook
from workflows.engines.local.run_state import CallOptions, RunNode
from workflows.engines.local.scopes import MutableScope, add_node
from workflows.engines.local.substitution import LENIENT, SubstitutionError, boolean, substitute
from workflows.engines.local.working_run import CallError, WorkingRun
from workflows.render.grammar.gotext import json_text, quote


def hooks_open(run: WorkingRun, node: RunNode) -> bool:
    """Return True if an exit handler or hook below the node has not ended."""
    return any(run.nodes[path].hooked and not run.nodes[path].fulfilled for path in node.children if path in run.nodes)


def exit_hook_runs(
    run: WorkingRun, node: RunNode, hook: Hook, scope: str, word: str, name: str, make_scope: Callable[[], MutableScope]
) -> bool:
    """Start or continue the exit handler of a completed node; return True while it has not ended."""
    if run.shutdown == "Terminate":  # exit handlers run after `argo stop`, not after `argo terminate`
        return False
    path = f"{node.path}.onExit"
    handler = run.nodes.get(path)
    if handler is not None and handler.fulfilled:
        return False
    options = CallOptions(node.boundary, node.boundary, on_exit=True, hooked=True)
    try:
        variables = {**run.globals(), **make_scope()}
        add_node(run, variables, word, name, node)
        if handler is None and hook.expression and not boolean(hook.expression, variables):
            return False
        handler = execute(run, path, hook.call, scope, substitute(hook.arguments, variables, LENIENT), options)
    except (SubstitutionError, CallError) as err:
        if path not in run.nodes:
            run.fail_call(path, hook.call, options, str(err))
        handler = run.nodes[path]
    if handler is not None:
        run.connect(node.path, path)
    return handler is None or not handler.fulfilled


def workflow_hooks_run(run: WorkingRun, entry: str) -> bool:
    """Start or continue the workflow's hooks whose expression holds; return True while one of them has not ended.

    Raises CallError if an expression cannot be evaluated.
    """
    waiting = False
    for name in sorted(run.plan.hooks):
        hook = run.plan.hooks[name]
        path = f"{run.plan.name}.hooks.{name}"
        if path not in run.nodes:
            try:
                if not boolean(hook.expression, run.globals()):
                    continue
            except SubstitutionError as err:
                raise CallError(str(err)) from None
        handler = execute(run, path, hook.call, LOCAL, hook.arguments, CallOptions(hooked=True))
        if handler is not None:
            run.connect(entry, path)
        waiting = waiting or handler is None or not handler.fulfilled
    return waiting


def workflow_exit_runs(run: WorkingRun, hook: Hook) -> RunNode | None:
    """Start or continue the exit handler of the workflow and return its node; None if a limit keeps it from starting."""
    path = f"{run.plan.name}.onExit"
    return execute(run, path, hook.call, LOCAL, hook.arguments, CallOptions(on_exit=True, hooked=True))


def failures(run: WorkingRun) -> str:
    """Return the value of `workflow.failures`: a JSON list of the failed nodes, or `null`, as a quoted string."""
    rows = [
        {
            "displayName": node.name,
            "message": node.message,
            "templateName": node.template_name,
            "phase": node.phase,
            "podName": pod_name(run.plan, node.path, node.template_name),
        }
        for node in run.failed_nodes()
    ]
    return quote(json_text(rows, sort=False) if rows else "null")
