"""Judges the output of sinfo and srun in the check pod, node by node: idle in sinfo, srun hostname, srun --gres."""

from collections.abc import Mapping

from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, inconclusive, of_nodes
from steps.stages.shared import gate_checks
from steps.stages.shared.causes import RUNTIME_REASONS
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.slurm import gate_states
from steps.stages.slurm.contract import FunctionalExpectation, FunctionalObservation, Srun


def jobs(gate: str, srun: Srun, node_of: Mapping[str, str], want: FunctionalExpectation) -> Verdict:
    """Return the verdict on every expected node; `node_of` maps Slurm nodes to Kubernetes nodes."""
    names = {node: name for name, node in node_of.items()}
    rows = [_job(node, names.get(node), srun, want) for node in want.nodes]
    verdict = gate_checks.conclude(of_nodes(gate, rows, what=f"ran a job with {want.gpus} GPUs" if want.gpus else "ran a job"))
    return (_exits(gate, srun, want) or verdict) if verdict.is_pass else verdict


def _exits(gate: str, srun: Srun, want: FunctionalExpectation) -> Verdict | None:
    """Return inconclusive if a command failed or its exit code is unknown although every node answered: some output was lost."""
    # srun can print all hosts and fail afterwards
    odd = [name for name in ("sinfo", "hosts", *(("gpus",) if want.gpus else ())) if srun.exits.get(name) != 0]
    if not odd:
        return None
    codes = ", ".join(f"{name} with {srun.exits.get(name, 'an unknown code')}" for name in odd)
    return inconclusive(
        gate,
        seen=f"every node answered, but the check's commands ended otherwise: {codes}",
        expected="exit code 0",
        next_step="read the check pod's log in the record",
        failure_class=FailureClass.RUNTIME,
    )


def unknown_nodes(gate: str, srun: Srun) -> Verdict | None:
    """Return a failed verdict if sinfo listed no node at all."""
    if srun.nodes:
        return None
    first = srun.errors[0] if srun.errors else None
    return failed(
        gate,
        first.failure_class if first else FailureClass.DEPENDENCY,
        seen=first.cause if first else f"sinfo told of no node (exit codes {srun.exits})",
        expected="a state of each node",
        next_step="check slurmctld, and the key in Secret slurm-auth-slurm",
        final=True,
    )


def no_report(gate: str, seen: FunctionalObservation) -> Verdict:
    """Return the verdict for a check pod that has left no report."""
    pod = seen.pods[0] if seen.pods else None
    over = pod is not None and (pod.ended or pod.reason in RUNTIME_REASONS)
    state = f"pod {pod.name} is {pod.phase} {pod.reason} {pod.message}".strip() if pod else "the check has no pod yet"
    if over:
        return failed(
            gate,
            FailureClass.RUNTIME,
            seen=f"{state}, without a report",
            expected="what sinfo and srun say",
            next_step="read the check pod's log in the record",
            final=True,
        )
    return inconclusive(gate, seen=state, expected="what sinfo and srun say", next_step="wait for the check pod")


def _job(node: str, name: str | None, srun: Srun, want: FunctionalExpectation) -> NodeVerdict:
    known = next((node_state for node_state in srun.nodes if node_state.name == name), None)
    if name is None:
        finding: Finding | None = unknown(
            FailureClass.HEALTH, "which Slurm node runs here is not known", "a pod that runs slurmd", "see gate slurm/nodes"
        )
    elif known is None:
        finding = fail(FailureClass.HEALTH, f"Slurm knows no node {name}", "a state in sinfo", "read slurmd's log on the node")
    else:
        finding = gate_states.problem(known, want.gpus) or _reached(name, srun) or _saw(name, srun, want)
    return finding.of_node(node) if finding else NodeVerdict(node=node, status=Status.PASS, seen=f"job ran on {name}")


def _reached(name: str, srun: Srun) -> Finding | None:
    if name in srun.hosts:
        return None
    error = next((candidate for candidate in srun.errors if candidate.host == name), srun.errors[0] if srun.errors else None)
    cause = error.cause if error else f"exit code {srun.exits.get('hosts', 'unknown')}"
    return fail(
        error.failure_class if error else FailureClass.RUNTIME,
        f"srun over all nodes did not come back from here: {cause}",
        "its host name",
        f"srun -w {name} hostname, and read slurmd's log on the node",
    )


def _saw(name: str, srun: Srun, want: FunctionalExpectation) -> Finding | None:
    if not want.gpus or srun.gpus.get(name, 0) == want.gpus:
        return None
    seen = f"{srun.gpus[name]} GPUs" if name in srun.gpus else "nothing"
    return fail(
        FailureClass.HARDWARE if srun.gpus.get(name) else FailureClass.RUNTIME,
        f"a job with --gres=gpu:{want.gpus} saw {seen}",
        f"{want.gpus} GPUs",
        f"srun -w {name} --gres=gpu:{want.gpus} nvidia-smi -L",
    )
