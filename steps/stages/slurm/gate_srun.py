"""Judges the output of sinfo and srun in the check pod, node by node: idle in sinfo, srun hostname, srun --gres."""

from collections.abc import Mapping, Set

from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes
from steps.stages.shared import gate_checks
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.slurm import gate_states
from steps.stages.slurm.contract import FunctionalExpectation, SlurmNode, Srun


def jobs(gate: str, srun: Srun, node_of: Mapping[str, str], want: FunctionalExpectation) -> Verdict:
    """Return the verdict on every expected node; `node_of` maps Slurm nodes to Kubernetes nodes."""
    names = {node: name for name, node in node_of.items()}
    states = {state.name: state for state in reversed(srun.nodes)}
    reached = frozenset(srun.hosts)
    rows = [_job(node, names.get(node), srun, want, states, reached) for node in want.nodes]
    verdict = gate_checks.conclude(of_nodes(gate, rows, what=f"ran a job with {want.gpus} GPUs" if want.gpus else "ran a job"))
    finding = (_exits(srun, want) or _accounting(srun, want)) if verdict.is_pass else None
    return finding.verdict(gate) if finding else verdict


def _exits(srun: Srun, want: FunctionalExpectation) -> Finding | None:
    """Return an inconclusive finding if a command failed, or its exit code is unknown, although every node answered; else None.

    srun can print all hosts and fail afterwards.
    """
    names = ("sinfo", "hosts", *(("gpus",) if _has_gpus(want) else ()))
    odd = [name for name in names if srun.exits.get(name) != 0]
    if not odd:
        return None
    codes = ", ".join(f"{name} with {srun.exits.get(name, 'an unknown code')}" for name in odd)
    seen = f"every node answered, but the check's commands ended otherwise: {codes}"
    return unknown(FailureClass.RUNTIME, seen, "exit code 0", "read the check pod's log in the record")


def _has_gpus(want: FunctionalExpectation) -> bool:
    return bool(want.gpus or any(want.others.values()))


def _accounting(srun: Srun, want: FunctionalExpectation) -> Finding | None:
    """Return a finding unless the accounting daemon answered, and knows a cluster whose controller has registered there."""
    if not want.accounting or (srun.clusters and srun.exits.get("accounting") == 0):
        return None
    step = "read the log of slurmdbd (its database, the password in Secret slurm-accounting), then that of slurmctld"
    if "accounting" not in srun.exits:
        return unknown(FailureClass.HEALTH, "nothing tells whether accounting works", "an answer of sacctmgr", step)
    cause = srun.errors[0].cause if srun.errors else f"sacctmgr ended with {srun.exits['accounting']}"
    seen = cause if srun.exits["accounting"] else "slurmdbd answers and knows no cluster whose slurmctld has registered"
    return fail(FailureClass.DEPENDENCY, f"jobs run, and accounting does not work: {seen}", "a cluster with its controller", step)


def unknown_nodes(srun: Srun) -> Finding | None:
    """Return a failure if sinfo listed no node at all, else None."""
    if srun.nodes:
        return None
    failure_class, seen = FailureClass.DEPENDENCY, f"sinfo told of no node (exit codes {srun.exits})"
    if srun.errors:
        failure_class, seen = srun.errors[0].failure_class, srun.errors[0].cause
    step = "check slurmctld, and the key in Secret slurm-auth-slurm"
    return fail(failure_class, seen, "a state of each node", step, final=True)


def _job(
    node: str,
    name: str | None,
    srun: Srun,
    want: FunctionalExpectation,
    states: Mapping[str, SlurmNode],
    reached: Set[str],
) -> NodeVerdict:
    known = states.get(name or "")
    if name is None:
        seen = "which Slurm node runs here is not known"
        finding: Finding | None = unknown(FailureClass.HEALTH, seen, "a pod that runs slurmd", "see gate slurm/nodes")
    elif known is None:
        finding = fail(FailureClass.HEALTH, f"Slurm knows no node {name}", "a state in sinfo", "read slurmd's log on the node")
    else:
        gpus = want.others.get(node, want.gpus)
        finding = (
            gate_states.problem(known, gpus)
            or _busy(known, reached)
            or _reached(name, srun, reached)
            or _saw(name, srun, gpus, kernels=want.kernels)
        )
    return node_verdict(node, finding, f"job ran on {name}")


def _busy(known: SlurmNode, reached: Set[str]) -> Finding | None:
    """Return a finding if the check left a node out, because it asks idle nodes alone and other jobs have this one."""
    if known.name in reached or known.states == ("idle",):
        return None
    seen = f"the node is {'+'.join(known.states)}, so other jobs have it, and the check, which takes idle nodes, ran none here"
    step = f"squeue -w {known.name} shows the jobs: wait for their end, then resume the run"
    return unknown(FailureClass.DEPENDENCY, seen, "an idle node, or a job of the check on it", step)


def _reached(name: str, srun: Srun, reached: Set[str]) -> Finding | None:
    if name in reached:
        return None
    error = next((candidate for candidate in srun.errors if candidate.host == name), srun.errors[0] if srun.errors else None)
    cause = error.cause if error else f"exit code {srun.exits.get('hosts', 'unknown')}"
    seen = f"srun over all nodes did not come back from here: {cause}"
    step = f"srun -w {name} hostname, and read slurmd's log on the node"
    return fail(error.failure_class if error else FailureClass.RUNTIME, seen, "its host name", step)


def _saw(name: str, srun: Srun, gpus: int, *, kernels: bool) -> Finding | None:
    if not gpus:
        return None
    if srun.gpus.get(name, 0) == gpus:
        return _kernels(name, srun, gpus) if kernels else None
    gres, failure_class = f"--gres=gpu:{gpus}", FailureClass.HARDWARE if srun.gpus.get(name) else FailureClass.RUNTIME
    seen = f"a job with {gres} saw {f'{srun.gpus[name]} GPUs' if name in srun.gpus else 'nothing'}"
    return fail(failure_class, seen, f"{gpus} GPUs", f"srun -w {name} {gres} nvidia-smi -L")


def _kernels(name: str, srun: Srun, gpus: int) -> Finding | None:
    """Return a finding unless the job ran a CUDA kernel on each of its GPUs: `nvidia-smi` lists devices that no program can use."""
    expected, passed = f"a CUDA kernel on each of {gpus} GPUs", srun.passed.get(name)
    if passed == gpus:
        return None
    if passed is None:
        step = "run the check again with its own script"
        return unknown(FailureClass.RUNTIME, "the job does not say whether a CUDA kernel ran", expected, step)
    why = f": {srun.failed[name]}" if name in srun.failed else ""
    step = "compare libcuda and the devices in the slurmd pod with gpu_operator/functional, and cgroup.conf (ConstrainDevices)"
    return fail(FailureClass.RUNTIME, f"a job ran a CUDA kernel on {passed} of {gpus} GPUs{why}", expected, step)
