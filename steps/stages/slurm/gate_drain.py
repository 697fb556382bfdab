"""Judges a drain round trip: Slurm's drain shows in Kubernetes, a cordon drains in Slurm, and both sides come back."""

from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.slurm_states import DRAINED
from steps.stages.slurm.contract import DrainExpectation, DrainObservation, DrainStep

ORDER = ("before", "slurm_drain", "slurm_resume", "cordon", "uncordon")
WHAT = {
    "before": "before the check",
    "slurm_drain": "after scontrol update state=drain",
    "slurm_resume": "after scontrol update state=resume",
    "cordon": "after kubectl cordon",
    "uncordon": "after kubectl uncordon",
}
OUT = {"slurm_drain": (True, True), "cordon": (True, False)}
"""Steps after which the node must be out of service, in Slurm and in Kubernetes' view of Slurm."""


def judge(gate: str, seen: DrainObservation, want: DrainExpectation) -> Verdict:
    """Return the verdict on the steps in their order; a step that is missing is no pass."""
    steps: dict[str, DrainStep] = {step.name: step for step in seen.steps}
    wanted = ORDER if want.cordon else ORDER[:3]
    for name in wanted:
        step = steps.get(name)
        problem = _missing(seen, name) if step is None else _odd(seen, step)
        if problem is not None:
            return problem.verdict(gate, final=True)
    both = "a drain shows in Kubernetes" + (", a cordon drains in Slurm" if want.cordon else "")
    return passed(gate, f"{seen.node}: {both}, and the node came back")


def _missing(seen: DrainObservation, name: str) -> Finding:
    step = "see that Slurm's tools answer in the pod that the task names"
    return unknown(FailureClass.RUNTIME, f"nothing is known {WHAT[name]}: {seen.error or 'no step'}", "both sides' states", step)


def _odd(seen: DrainObservation, step: DrainStep) -> Finding | None:
    out, shown = OUT.get(step.name, (False, False))
    when = f"{seen.node or 'the node'} {WHAT[step.name]}"
    if not step.slurm or not step.kubernetes:
        side = "Slurm" if not step.slurm else "Kubernetes"
        return unknown(FailureClass.HEALTH, f"{when}: {side} shows no state", "a state", "read the operator's log, or the syncer's")
    if bool(DRAINED & set(step.slurm)) != out:
        state = f"{when}: Slurm has {'+'.join(step.slurm)}{f' ({step.reason})' if step.reason else ''}"
        next_step = "read the operator's log: it drains the Slurm node of a cordoned node, and undrains it"
        return fail(FailureClass.RUNTIME, state, "drained" if out else "not drained", next_step)
    drained = bool(DRAINED & set(step.kubernetes))
    if (shown and not drained) or (not out and drained):
        state = f"{when}: Kubernetes still shows {'+'.join(step.kubernetes)}"
        next_step = "read the operator's log, or the syncer's: it copies Slurm's states to the conditions of pods"
        return fail(FailureClass.RUNTIME, state, "drain" if shown else "no drain", next_step)
    return None
