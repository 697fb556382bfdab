"""Gates of validation: the MPI operator, NCCL inside each node, DCGM on each node, NCCL over all nodes, and workloads.

See `steps/docs/facts/acceptance.md`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from steps.contract.measurements import Measurement, versions
from steps.contract.node_tests.nccl import NcclLog, NcclWant
from steps.contract.plain_text import count
from steps.contract.verdict import CauseRank, FailureClass, NodeVerdict, Status, ToolError, Verdict, by_cause, of_nodes, passed
from steps.stages.shared import gate_checks
from steps.stages.shared.causes import HELM, RUNTIME_REASONS, Cause, classify
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.shared.gate_charts import missing_crd
from steps.stages.validation import fleet_baseline, gate_collectives, gate_localise, gate_nccl, gate_node, gate_workloads
from steps.stages.validation.contract import (
    BenchmarkPod,
    BenchmarksExpectation,
    BenchmarksObservation,
    ControlExpectation,
    ControlObservation,
    DcgmExpectation,
    DcgmObservation,
    DcgmPod,
    FunctionalExpectation,
    FunctionalObservation,
    IntraExpectation,
    IntraObservation,
    LocaliseExpectation,
    LocaliseObservation,
    NcclPod,
    TrainingExpectation,
    TrainingObservation,
)

CONTROL, INTRA = "validation/control", "validation/intra"
DCGM, FUNCTIONAL, LOCALISE = "validation/dcgm", "validation/functional", "validation/localise"
BENCHMARKS, TRAINING = "validation/benchmarks", "validation/training"

CheckedPod = TypeVar("CheckedPod", NcclPod, DcgmPod, BenchmarkPod)


# ---- control -------------------------------------------------------------------------------------------------------------------


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check that the manifest was applied, its CRD is served, and the operator runs with the pinned image."""
    finding = _install(seen) or missing_crd(seen.crds, want.crds) or _operator(seen, want)
    if finding is not None:
        return finding.verdict(CONTROL)
    return passed(CONTROL, f"{want.deployment} {want.tag} ready, {count(len(want.crds), 'CRD')} established".replace("  ", " "))


def _install(seen: ControlObservation) -> Finding | None:
    install = seen.install
    if install is None:
        step = "apply this stage again"
        return unknown(FailureClass.APPLY, "no Job has applied the MPI operator", "its install Job", step)
    if install.complete:
        return None
    cause, expected = classify(HELM, [("", install.log), ("", install.failed)]), "the manifest applied"
    if install.failed:
        known = cause or Cause(FailureClass.APPLY, "read the Job's log in mpi-operator", install.failed)
        return fail(known.failure_class, f"the install Job failed: {known.text}", expected, known.next_step, final=True)
    known = cause or Cause(FailureClass.HEALTH, "wait for its image", "")
    seen_job = f"the install Job is not done{f': {cause.text}' if cause else ''}"
    return unknown(known.failure_class, seen_job, expected, known.next_step)


def _operator(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    deployment = next((workload for workload in seen.workloads if workload.name == want.deployment), None)
    if deployment is None or not deployment.settled():
        trouble = next(iter(seen.trouble), None)
        why = f"; {trouble.pod}: {trouble.reason} {trouble.message}".rstrip() if trouble else ""
        state = f"has {deployment.ready} of {deployment.desired} pods ready" if deployment else "is not there"
        step = "look at its pods in namespace mpi-operator"
        return unknown(FailureClass.HEALTH, f"Deployment {want.deployment} {state}{why}", "all of its pods ready", step)
    if want.tag and deployment.image.rpartition(":")[2] != want.tag:
        step = "apply the manifest of the pinned tag; a floating image changes by itself"
        image = f"Deployment {deployment.name} runs {deployment.image}"
        return fail(FailureClass.COMPARISON, image, f"tag {want.tag}", step)
    return None


def _rows(
    nodes: Iterable[str], pods: Sequence[CheckedPod], judged: Callable[[str, CheckedPod], NodeVerdict], what: str
) -> list[NodeVerdict]:
    """Return one verdict for each node: on its pod's report, or on its absence. `what` names the expected content in messages."""
    by_pod = {checked.pod.name: checked for checked in pods}
    best = gate_checks.by_node(checked.pod for checked in pods)
    pending = [checked.pod for checked in pods if not checked.pod.node]
    reported = {name: pod for name, pod in best.items() if pod.report}
    return [
        judged(name, by_pod[reported[name].name])
        if name in reported
        else gate_checks.silent(best.get(name), pending, what).of_node(name)
        for name in nodes
    ]


# ---- NCCL inside a node --------------------------------------------------------------------------------------------------------


def intra(seen: IntraObservation, want: IntraExpectation) -> Verdict:
    """Check that each node's GPUs form one communicator and reach the floor at the largest size, in every run."""

    wants = _Wants(want)
    least: dict[str, tuple[float | None, ...]] = {}
    over_adapters: dict[str, tuple[float | None, ...]] = {}

    def judged(name: str, pod: NcclPod) -> NodeVerdict:
        inside, fabric = wants.of_node(name)
        finding = gate_nccl.judged(pod.exits, pod.log, inside) or _over_adapters(pod, fabric)
        speeds = gate_nccl.bandwidths(pod.log.runs) if pod.log else []
        least[name] = (min(speeds),) if speeds else (None,)
        if fabric is not None:
            over_adapters[name] = (_least(pod.fabric_log) if pod.fabric_log else None,)
        return node_verdict(name, finding, _range(speeds))

    rows = _rows(want.nodes, seen.pods, judged, "NCCL's log")
    floor = f" at {want.want.floor:g} GB/s or more" if want.want.floor else ""
    verdict = of_nodes(INTRA, rows, what=f"NCCL over {want.gpus} GPUs{floor}")
    quantity = "NCCL bus bandwidth in a node, slowest run"
    measured = [Measurement(quantity=quantity, unit="GB/s", floor=want.want.floor, values=least)]
    low = [*fleet_baseline.note(measured[0].least, "NCCL inside nodes", "GB/s")]
    if want.fabric is not None:
        quantity = "bus bandwidth of NCCL over a node's adapters alone, slowest run"
        alone = Measurement(quantity=quantity, unit="GB/s", floor=want.fabric.floor, values=over_adapters)
        far = fleet_baseline.note(alone.least, "NCCL over the adapters alone", "GB/s")
        # without a floor a note on slow nodes fails none of them, so only a fleet of equals has been judged
        unjudged = not want.fabric.floor and (bool(far) or fleet_baseline.of_values(alone.least.values()) is None)
        measured.append(msgspec.structs.replace(alone, unjudged=unjudged))
        low += far or (["NCCL over the adapters alone: not judged: no floor, and too few nodes for a median"] if unjudged else [])
    return gate_checks.conclude(msgspec.structs.replace(verdict, measured=tuple(measured), notes=(*verdict.notes, *low)))


class _Wants:
    """The expectations of a fleet's nodes: those with equal numbers of GPUs share theirs."""

    def __init__(self, want: IntraExpectation) -> None:
        self._want = want
        self._by_gpus: dict[int, tuple[NcclWant, NcclWant | None]] = {}

    def of_node(self, name: str) -> tuple[NcclWant, NcclWant | None]:
        """Return what is expected of a node's runs, and of those over its adapters alone, if any."""
        gpus = self._want.others.get(name, self._want.gpus)
        if gpus not in self._by_gpus:
            fabric = self._want.fabric
            own = msgspec.structs.replace(self._want.want, ranks=gpus, hosts=1)
            self._by_gpus[gpus] = own, fabric and msgspec.structs.replace(fabric, ranks=gpus, hosts=1)
        return self._by_gpus[gpus]


def _over_adapters(pod: NcclPod, want: NcclWant | None) -> Finding | None:
    """Return the problem of the runs over the node's adapters alone, which say nothing about NVLink."""
    if want is None:
        return None
    finding = gate_nccl.judged(pod.fabric_exits, pod.fabric_log, want)
    if finding is None and pod.fabric_log is not None and not pod.fabric_log.transport.channels:
        step = "see in the check's log whether NCCL_P2P_DISABLE and NCCL_SHM_DISABLE took effect"
        finding = fail(FailureClass.RUNTIME, "no channel over the network is in the log", "channels via NET", step)
    return finding and msgspec.structs.replace(finding, seen=f"with P2P off, over the adapters alone: {finding.seen}")


def _least(log: NcclLog) -> float | None:
    return min(gate_nccl.bandwidths(log.runs), default=None)


def _speed(log: NcclLog | None) -> str:
    return _range(gate_nccl.bandwidths(log.runs) if log else [])


def _range(speeds: Sequence[float]) -> str:
    return f"{min(speeds):g} to {max(speeds):g} GB/s" if speeds else ""


# ---- DCGM ----------------------------------------------------------------------------------------------------------------------


def dcgm(seen: DcgmObservation, want: DcgmExpectation) -> Verdict:
    """Check each node by itself: host facts, a diagnostic that tested all GPUs and found nothing, and the speed of each GPU."""
    judge = gate_node.prepare(seen, want)
    rows = _rows(want.nodes, seen.pods, judge.node, "the result of dcgmi diag")
    parts = [*(["host facts"] if want.host else []), f"DCGM level {want.level}", *(["speed"] if want.speed else [])]
    verdict = of_nodes(DCGM, rows, what=f"{', '.join(parts)} on {want.gpus} GPUs")
    notes = (*verdict.notes, *judge.notes)
    return gate_checks.conclude(msgspec.structs.replace(verdict, measured=judge.measured, notes=notes, versions=judge.in_use))


# ---- NCCL over all nodes -------------------------------------------------------------------------------------------------------


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that all nodes' GPUs form one communicator over GPUDirect RDMA and reach the floor at the largest size."""
    together = msgspec.structs.replace(want.want, ranks=len(want.nodes) * want.gpus, hosts=len(want.nodes))
    if seen.log is None or seen.launcher is None:
        return _waiting(seen, want).verdict(FUNCTIONAL)
    seen = _with_nodes(seen, seen.log)
    log = seen.log or NcclLog()
    finding = _launched(seen, log, want) or gate_nccl.judged(seen.exits, log, together) or _placed(seen, want)
    finding = gate_collectives.with_curve(finding, seen, want) if finding else gate_collectives.problem(seen, want)
    measured = (
        Measurement(
            quantity="NCCL bus bandwidth over all nodes, slowest run", unit="GB/s", floor=want.want.floor, together=_least(log)
        ),
        *gate_collectives.measurements(seen, want),
    )
    if finding is not None:
        return msgspec.structs.replace(finding.verdict(FUNCTIONAL, final=True), measured=measured)
    transport = log.transport
    gdr = f", GPUDirect RDMA on {transport.gdr_channels} of {transport.channels} channels" if transport.channels else ""
    summary = f"{count(together.ranks, 'rank')} on {count(together.hosts, 'node')}: {_speed(log)} at the largest size{gdr}"
    summary += gate_collectives.summary(seen, want)
    verdict = passed(FUNCTIONAL, summary, notes=(*_notes(log), *gate_collectives.notes(seen, want)))
    version = _version(log)
    return msgspec.structs.replace(
        verdict, measured=measured, versions=versions({"NCCL": dict.fromkeys(want.nodes, version)} if version else {})
    )


def _with_nodes(seen: FunctionalObservation, log: NcclLog) -> FunctionalObservation:
    """Return the observation with the nodes of the workers added where an error or adapters name a worker as host or peer."""
    nodes = {pod.name: pod.node for pod in seen.workers if pod.node}

    def placed(error: ToolError) -> ToolError:
        host, (address, _, peer) = error.host, error.peer.partition(" (")
        worker = peer.removesuffix(")")
        return msgspec.structs.replace(
            error,
            host=f"{host} ({nodes[host]})" if host in nodes else host,
            peer=f"{address} ({worker}, {nodes[worker]})" if worker in nodes else error.peer,
        )

    sets = [
        msgspec.structs.replace(used, host=f"{used.host} ({nodes[used.host]})") if used.host in nodes else used
        for used in log.transport.adapter_sets
    ]
    transport = msgspec.structs.replace(log.transport, adapter_sets=tuple(sets))
    with_places = msgspec.structs.replace(log, errors=tuple(map(placed, log.errors)), transport=transport)
    return msgspec.structs.replace(seen, log=with_places, errors=tuple(map(placed, seen.errors)))


def _notes(log: NcclLog) -> list[str]:
    version = _version(log)
    averages = ", ".join(f"{run.average:g}" for run in log.runs if run.average is not None)
    notes = [f"NCCL {version}"] if version else []
    notes += [f"averages over all sizes (no measure): {averages} GB/s"] if averages else []
    return [*notes, *log.warnings[: gate_nccl.MOST_WARNINGS]]


def _version(log: NcclLog) -> str:
    """Return the version of NCCL that a log names: of the library, else of nccl-tests."""
    return log.transport.version or next((run.version for run in log.runs if run.version), "")


def _launched(seen: FunctionalObservation, log: NcclLog, want: FunctionalExpectation) -> Finding | None:
    """Return mpirun's own error if the log has no finished run and NCCL reports nothing nearer to the cause; else None."""
    if any(run.ended for run in log.runs):
        return None
    first = next(iter(by_cause((*log.stated, *seen.errors))), None)
    if first is None or first in log.stated:
        return None
    # without RDMA no rank may come up, and mpirun then only says that one ended
    transport = gate_nccl.network(log.transport, want.want) if log.transport.network else None
    if first.rank is CauseRank.CONSEQUENCE and transport is not None and transport.status is Status.FAIL:
        return transport
    return msgspec.structs.replace(gate_nccl.stated(first), expected="mpirun reaches every worker, and all ranks run")


def _placed(seen: FunctionalObservation, want: FunctionalExpectation) -> Finding | None:
    """Return a finding unless a worker ran on each node under test.

    NCCL's log names pods, not nodes, and pods on one node use no fabric.
    """
    placed = [pod.node for pod in seen.workers if pod.node]
    nodes = set(placed)
    idle = [name for name in want.nodes if name not in nodes]
    if not idle:
        return None
    if len(nodes) >= len(want.nodes):
        others = ", ".join(sorted(nodes.difference(want.nodes))[:3])
        elsewhere = f"no worker ran on {idle[0]}{f' and {len(idle) - 1} more' if len(idle) > 1 else ''}, but on {others}"
        return fail(FailureClass.RUNTIME, elsewhere, "a worker on each node under test", "check the workers' node affinity")
    expected = f"{len(want.nodes)} distinct nodes"
    # some workers have no node in the record, so nothing shows that nodes were shared
    if len(nodes) == len(placed):
        known = f"the nodes of {len(placed)} of {len(want.nodes)} workers are known"
        step = "run the check again; its worker pods must stay until they are read"
        return unknown(FailureClass.RUNTIME, known, expected, step)
    shared = f"{len(placed)} workers ran on {len(nodes)} nodes"
    return fail(FailureClass.RUNTIME, shared, expected, "check the workers' anti-affinity")


def _waiting(seen: FunctionalObservation, want: FunctionalExpectation) -> Finding:
    """Return the inconclusive finding for a launcher that has not ended, with what it waits for."""
    job, launcher = seen.job, seen.launcher
    pods = (*seen.workers, *([launcher] if launcher else []))
    stuck = next((pod for pod in pods if pod.reason in RUNTIME_REASONS), None) or next((pod for pod in pods if pod.events), None)
    wait = gate_checks.why(stuck) if stuck else gate_checks.WaitReason("")
    running = sum(pod.phase == "Running" for pod in seen.workers)
    state = f"{running} of {len(want.nodes)} workers run, launcher {launcher.phase if launcher else 'not started'}"
    if stuck:
        state += f"; {stuck.name}: {wait.text}"
    elif job and job.message:
        state += f"; MPIJob: {job.message}"
    if (launcher is not None and launcher.ended) or (job is not None and "Failed" in job.conditions):
        step = wait.next_step or "see the pods' states in the record"
        return fail(wait.failure_class, f"the launcher left no log; {state}", "NCCL's log", step, final=True)
    step = wait.next_step or "see what keeps the workers from running: GPUs, RDMA resource, image"
    return unknown(wait.failure_class, state, "the launcher to end", step)


# ---- workloads -----------------------------------------------------------------------------------------------------------------


def benchmarks(seen: BenchmarksObservation, want: BenchmarksExpectation) -> Verdict:
    """Check that fio and STREAM ran on each node as asked for, and reach the site's floors."""

    def judged(name: str, check: BenchmarkPod) -> NodeVerdict:
        finding = gate_workloads.benchmark_problem(check, want)
        return node_verdict(name, finding, gate_workloads.benchmark_summary(check))

    rows = _rows(want.nodes, seen.pods, judged, "the results of fio and STREAM")
    verdict = of_nodes(BENCHMARKS, rows, what="benchmarks of storage and memory")
    measured = tuple(gate_workloads.benchmark_measurements(seen, want))
    far = (note for row in measured for note in fleet_baseline.note(row.least, row.quantity, row.unit))
    notes = (*verdict.notes, *gate_workloads.benchmark_notes(seen, want), *far)
    return gate_checks.conclude(msgspec.structs.replace(verdict, measured=measured, notes=notes))


def training(seen: TrainingObservation, want: TrainingExpectation) -> Verdict:
    """Check that torchrun on two nodes ends, uses GPUDirect RDMA on every channel, and that its loss falls."""
    waiting = gate_workloads.training_waiting(seen)
    if waiting is not None:
        return waiting.verdict(TRAINING)
    finding = gate_workloads.training_problem(seen, want)
    least = min((check.busbw for check in seen.pods if check.busbw), default=None)
    measured = Measurement(quantity="torch all_reduce between 2 nodes", unit="GB/s", floor=want.floor or None, together=least)
    if finding is not None:
        verdict = finding.verdict(TRAINING, final=finding.status is Status.FAIL)
    else:
        verdict = passed(TRAINING, gate_workloads.training_summary(seen))
    return msgspec.structs.replace(verdict, measured=(measured,))


# ---- the part at fault ---------------------------------------------------------------------------------------------------------


def localise(seen: LocaliseObservation, want: LocaliseExpectation) -> Verdict:
    """Check that tests between nodes clear every node, every rail and the paths between them; name the part at fault otherwise.

    Bad nodes and rails fail their nodes alone, so a quorum may go on without them. A bad pair or path, or groups that fail only
    from a size on, fail the stage.
    """
    finding, diagnosis = gate_localise.problem(seen, want), seen.diagnosis
    measured = (gate_localise.measurement(seen, want),)
    if finding is not None or diagnosis is None:
        verdict = (finding or gate_localise.no_diagnosis(seen)).verdict(LOCALISE)
        return msgspec.structs.replace(verdict, measured=measured)
    rows = tuple(gate_localise.rows(seen, want, diagnosis))
    verdict = of_nodes(LOCALISE, rows, what=gate_localise.good(diagnosis, len(diagnosis.cleared)))
    notes = fleet_baseline.note(measured[0].least, "ib_write_bw", "Gbit/s")
    return gate_checks.conclude(msgspec.structs.replace(verdict, measured=measured, notes=(*verdict.notes, *notes)))
