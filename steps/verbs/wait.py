"""Verb wait: polls one gate until it is decided; the record holds the last observation."""

from typing import Any

from msgspec import Struct

from steps.contract.exit import ExitCode
from steps.contract.verdict import Verdict
from steps.probes.reader import Scope
from steps.verbs import delivered, gating, remembering, trust, watching
from steps.verbs.context import Context, told
from steps.verbs.diagnose import diagnose


class Arguments(Struct, frozen=True, kw_only=True):
    """`select` names the hosts that are expected; `decides` makes a non-pass end the task with 65 (a control-plane gate),
    else the verdict is data for the judge; `namespaces` are looked into when the verdict is no pass; `passed` are tasks of the
    stage: nodes that did not pass one of them are judged, but not waited for."""

    gate: str
    select: str = "all"
    stable_seconds: float = 0.0
    decides: bool = True
    namespaces: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()


def run(context: Context) -> ExitCode:
    """Wait for the gate's verdict, store it, output it."""
    wanted = context.arguments(Arguments)
    gate, probe = gating.find(wanted.gate), gating.probe(wanted.gate)
    nodes = context.expected_nodes(wanted.select)
    want = gate.expect(context.task.expectations, nodes)

    lost = context.not_passed(wanted.passed) & set(nodes)
    commit, trusted = delivered.commit(context), trust.given(context)
    latest: Any = None

    def look() -> tuple[Any, Verdict]:
        nonlocal latest
        scope = Scope(nodes=nodes, arguments=context.task.arguments, now=context.clock.now(), commit=commit, trusted=trusted)
        latest = seen = remembering.carried(probe(context.kube, scope), latest)
        verdict = watching.settled(gate.decide(seen, want), lost)
        context.noticed(told(verdict))
        return seen, verdict

    watched = watching.until_decided(look, context.clock, context.task.deadline_seconds, wanted.stable_seconds)
    verdict = watched.verdict
    found = () if verdict.is_pass else diagnose(context.kube, wanted.namespaces, verdict)
    context.record(verdict, observation=watched.observation, diagnosis=found)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK if verdict.is_pass or not wanted.decides else ExitCode.GATE_FAILED
