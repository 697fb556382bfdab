"""Reads the MPI operator and the output of the NCCL and DCGM checks, packed in reports or in the pods' logs."""

import functools
import math
from typing import Any

import msgspec

from steps.contract import plain_text
from steps.contract.node_tests.dcgm import DcgmRun
from steps.contract.node_tests.nccl import NcclLog
from steps.contract.node_tests.node_health import NodeFacts, NodeSpeed
from steps.contract.objects.checks import CHECK_NAMESPACE, CheckPod
from steps.readers import fio_report, stream_table
from steps.stages.shared import probe_charts, probe_checks, probe_workloads, reader_mpi
from steps.stages.shared.kube_objects import Conditioned
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_charts import read_crds
from steps.stages.validation import reader_dcgm, reader_nccl, reader_nccl_programs, reader_node
from steps.stages.validation.contract import (
    BenchmarkPod,
    BenchmarksObservation,
    ControlObservation,
    DcgmObservation,
    DcgmPod,
    FunctionalObservation,
    Install,
    IntraObservation,
    MpiJob,
    NcclPod,
    TrainingObservation,
    TrainingPod,
)

NAMESPACE = "mpi-operator"
INTRA, INTER, DCGM = "nccl-intra", "nccl-inter", "dcgm"
BENCHMARKS, TRAINING = "benchmarks", "training"
STREAM_MARK = "@@ bringup stream"
JOB = "nccl-all-reduce"
LOG_LINES = 400_000
"""Lines read of a launcher's log: that of 10,000 nodes has 50,000, since `nccl_inter.sh` writes repeated lines once."""
POD_LINES = 20_000
MOST_KEPT = 2048
"""Most outputs of pods that are kept as read: a probe looks again every few seconds, and an output does not change any more."""


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return the MPI operator's install Job, CRD and Deployment."""
    deployments = probe_workloads.read(kube, NAMESPACE, lambda _: True, kinds=("Deployment",))
    settled = bool(deployments) and all(workload.settled() for workload in deployments)
    return ControlObservation(
        install=_install(kube, str(scope.arguments.get("install", ""))),
        crds=read_crds(kube, probe_charts.read_argument(scope, "crds")),
        workloads=deployments,
        trouble=() if settled else probe_workloads.troubles(probe_workloads.pods(kube, NAMESPACE)),
    )


def intra(kube: KubeReader, _scope: Scope) -> IntraObservation:
    """Return the pods of the NCCL check, one a node, with their parsed logs."""
    return IntraObservation(pods=tuple(_nccl_pod(kube, pod) for pod in probe_checks.read(kube, INTRA)))


def dcgm(kube: KubeReader, _scope: Scope) -> DcgmObservation:
    """Return the pods of the DCGM check, one a node, with their parsed results."""
    return DcgmObservation(pods=tuple(_dcgm_pod(kube, pod) for pod in probe_checks.read(kube, DCGM)))


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """Return the MPIJob of the NCCL test over all nodes and its pods; the launcher's log is read only after it ended."""
    pods = probe_checks.read(kube, INTER)
    launcher = next((pod for pod in pods if pod.name.startswith(f"{JOB}-launcher")), None)
    raw = kube.get(f"/apis/kubeflow.org/v2beta1/namespaces/{CHECK_NAMESPACE}/mpijobs/{JOB}", Conditioned)
    over = launcher is not None and (launcher.ended or bool(launcher.report))
    text = kube.log(CHECK_NAMESPACE, launcher.name, tail=LOG_LINES) if launcher is not None and over else ""
    parts = reader_nccl_programs.read(text)
    return FunctionalObservation(
        job=_mpi_job(raw) if raw else None,
        launcher=launcher,
        workers=tuple(pod for pod in pods if pod.name.startswith(f"{JOB}-worker-")),
        log=reader_nccl.read(parts.main) if text else None,
        exits=_exits(launcher.report) if launcher else (),
        errors=reader_mpi.errors(parts.main),
        programs=parts.programs,
    )


def benchmarks(kube: KubeReader, _scope: Scope) -> BenchmarksObservation:
    """Return the pods of the benchmarks, one a node, with the parsed output of fio and STREAM."""
    return BenchmarksObservation(pods=tuple(_benchmark_pod(kube, pod) for pod in probe_checks.read(kube, BENCHMARKS)))


def training(kube: KubeReader, _scope: Scope) -> TrainingObservation:
    """Return the pods of the training job with what they measured."""
    return TrainingObservation(pods=tuple(map(_training_pod, probe_checks.read(kube, TRAINING))))


def _benchmark_pod(kube: KubeReader, pod: CheckPod) -> BenchmarkPod:
    storage, _, memory = _output(kube, pod).partition(STREAM_MARK)
    fio = fio_report.read(storage) if storage else None
    return BenchmarkPod(
        pod=_without_output(pod),
        fio=fio,
        fio_code=_whole(pod.report.get("fio")),
        stream=stream_table.read(memory) if memory else None,
        stream_code=_whole(pod.report.get("stream")),
        error=plain_text.truncate(plain_text.line(storage.strip()[-300:]), 300) if storage.strip() and fio is None else "",
    )


def _training_pod(pod: CheckPod) -> TrainingPod:
    result, channels = (pod.report.get(key) for key in ("result", "channels"))
    measured: dict[str, Any] = result if isinstance(result, dict) else {}
    counted: dict[str, Any] = channels if isinstance(channels, dict) else {}
    return TrainingPod(
        pod=pod,
        code=_whole(pod.report.get("exit")),
        ranks=_whole(measured.get("ranks")) or 0,
        busbw=_number(measured.get("busbw")) or 0.0,
        first_loss=_number(measured.get("first_loss")),
        last_loss=_number(measured.get("last_loss")),
        torch=plain_text.truncate(plain_text.line(str(measured.get("torch", ""))), 40),
        gdr_channels=_whole(counted.get("gdr")) or 0,
        rdma_channels=_whole(counted.get("rdma")) or 0,
        socket_channels=_whole(counted.get("socket")) or 0,
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def _install(kube: KubeReader, name: str) -> Install | None:
    if not name:
        return None
    job = kube.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}", probe_charts.Job)
    if job is None:
        return None
    complete = job.status.status("Complete") == "True"
    log = "" if complete else probe_charts.job_log(kube, NAMESPACE, name)
    return Install(complete=complete, failed=job.status.failure, log=log)


def _nccl_pod(kube: KubeReader, pod: CheckPod) -> NcclPod:
    log, fabric_log = _nccl_logs(_output(kube, pod))
    return NcclPod(
        pod=_without_output(pod),
        log=log,
        exits=_exits(pod.report),
        fabric_log=fabric_log,
        fabric_exits=_exits(pod.report, "fabric_exits"),
    )


@functools.lru_cache(MOST_KEPT)
def _nccl_logs(text: str) -> tuple[NcclLog | None, NcclLog | None]:
    inside, fabric = reader_node.nccl_outputs(text)
    return reader_nccl.read(inside) if inside else None, reader_nccl.read(fabric) if fabric else None


def _dcgm_pod(kube: KubeReader, pod: CheckPod) -> DcgmPod:
    run, error, facts, speed = _dcgm_output(_output(kube, pod))
    code = next(iter(_exits(pod.report)), None)
    return DcgmPod(pod=_without_output(pod), run=run, code=code, error=error, facts=facts, speed=speed)


@functools.lru_cache(MOST_KEPT)
def _dcgm_output(text: str) -> tuple[DcgmRun | None, str, NodeFacts | None, NodeSpeed | None]:
    outputs = reader_node.programs(text)
    own = outputs["dcgm"].text if "dcgm" in outputs else text
    run = reader_dcgm.read(own) if own else None
    error = "" if run or not own else own.strip()[-300:]
    return run, error, reader_node.facts(outputs), reader_node.speed(outputs)


def _output(kube: KubeReader, pod: CheckPod) -> str:
    """Return the tool's output from a check pod's report, or from its log if the output is too long for the report.

    Empty while there is no report.
    """
    if not pod.report:
        return ""
    return probe_checks.unpack_output(pod.report) or kube.log(CHECK_NAMESPACE, pod.name, tail=POD_LINES)


def _without_output(pod: CheckPod) -> CheckPod:
    return msgspec.structs.replace(pod, report={key: value for key, value in pod.report.items() if key != probe_checks.KEY})


def _exits(report: dict[str, Any], key: str = "exits") -> tuple[int, ...]:
    codes = report.get(key)
    return tuple(code for code in codes if isinstance(code, int)) if isinstance(codes, list) else ()


def _mpi_job(raw: Conditioned) -> MpiJob:
    true = [entry for entry in raw.status.conditions if entry.status == "True"]
    return MpiJob(conditions=tuple(entry.type for entry in true), message=true[-1].message[:500] if true else "")
