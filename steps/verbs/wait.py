"""Verb wait: poll one gate until it is decided. The record holds the last observation."""

from typing import Any

from msgspec import Struct

from steps.contract.exit import ExitCode
from steps.contract.verdict import Verdict
from steps.runtime import delivery_inputs, gating, reuse, trust, watching
from steps.runtime.context import Context, log_line
from steps.runtime.diagnose import diagnose
from steps.stages.shared.kube_reader import Scope


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of verb wait.

    `select` names the expected hosts. `stable_seconds`: a pass must have lasted so long, unless an earlier run's pass of the same
    task still holds and this run has changed nothing. `decides`: a verdict that is no pass ends the task with exit code 65 (a
    control-plane gate), else the verdict is data for the judge. `namespaces` are searched for causes if the verdict is no pass.
    `passed` are tasks of the stage: nodes that did not pass one of them are judged, but not waited for.
    """

    gate: str
    select: str = "all"
    stable_seconds: float = 0.0
    decides: bool = True
    namespaces: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()


def run(context: Context) -> ExitCode:
    """Wait for the gate's verdict, store it, and write it as the task's output."""
    arguments = context.arguments(Arguments)
    gate, probe = gating.find(arguments.gate), gating.probe(arguments.gate)
    nodes = context.expected_nodes(arguments.select)
    want = gate.expect(context.task.expectations, nodes, context.groups(nodes))

    lost = context.not_passed(arguments.passed) & set(nodes)
    commit, trusted = delivery_inputs.delivered_commit(context), trust.trusted_digests(context)
    latest: Any = None

    def look(now: float) -> tuple[Any, Verdict]:
        nonlocal latest
        scope = Scope(nodes=nodes, arguments=context.task.arguments, now=now, commit=commit, trusted=trusted)
        # an install Job's log is deleted with its pod, so that of an earlier observation is kept
        latest = seen = watching.keep_install_logs(probe(context.kube, scope), latest)
        verdict = watching.finalise(gate.decide(seen, want), lost)
        context.log_change(log_line(verdict))
        return seen, verdict

    stable_seconds = _stable_seconds(context, arguments, nodes)
    watched = watching.watch_until_decided(look, context.clock, context.task.deadline_seconds, stable_seconds)
    verdict = watched.verdict
    diagnosis = () if verdict.is_pass else diagnose(context.kube, arguments.namespaces, verdict)
    context.record(verdict, observation=watched.observation, diagnosis=diagnosis)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK if verdict.is_pass or not arguments.decides else ExitCode.GATE_FAILED


def _stable_seconds(context: Context, arguments: Arguments, nodes: tuple[str, ...]) -> float:
    """Return how long a pass must last; 0 if an earlier run's pass still holds, because nothing restarts after no change."""
    earlier = reuse.earlier(context) if arguments.stable_seconds else None
    is_unchanged = earlier is not None and not reuse.reason_to_repeat(context, earlier, nodes, arguments.select)
    return 0.0 if is_unchanged else arguments.stable_seconds
