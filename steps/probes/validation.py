"""Reads the MPI operator, and what the checks of NCCL and DCGM said: raw tool output, packed in reports or in the pods' logs."""

from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.checks import CHECK_NAMESPACE, CheckPod
from steps.contract.stages.validation import (
    ControlObservation,
    DcgmObservation,
    DcgmPod,
    FunctionalObservation,
    Install,
    IntraObservation,
    MpiJob,
    NcclPod,
)
from steps.probes import charts, checks, dcgm_output, mpi_output, nccl_output, packed, workloads
from steps.probes.crds import read_crds
from steps.probes.reader import KubeReader, Scope

NAMESPACE = "mpi-operator"
INTRA, INTER, DCGM = "nccl-intra", "nccl-inter", "dcgm"
JOB = "nccl-all-reduce"
LOG_LINES = 400_000
"""A launcher's log of 1,000 nodes has 150,000 lines; the kubelet keeps 10 MB, so the launcher leaves the bulk of NCCL's out."""
POD_LINES = 20_000


class RawMpiJob(Struct, frozen=True):
    """An MPIJob."""

    status: workloads.Conditions = workloads.Conditions()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """The MPI operator's install Job, CRD and Deployment."""
    found = workloads.read(kube, NAMESPACE, lambda _: True, kinds=("Deployment",))
    settled = bool(found) and all(one.settled() for one in found)
    return ControlObservation(
        install=_install(kube, str(scope.arguments.get("install", ""))),
        crds=read_crds(kube, charts.asked(scope, "crds")),
        workloads=found,
        trouble=() if settled else workloads.troubles(workloads.pods(kube, NAMESPACE)),
    )


def intra(kube: KubeReader, _scope: Scope) -> IntraObservation:
    """Each node's NCCL check."""
    return IntraObservation(pods=tuple(_nccl_pod(kube, pod) for pod in checks.read(kube, INTRA)))


def dcgm(kube: KubeReader, _scope: Scope) -> DcgmObservation:
    """Each node's DCGM check."""
    return DcgmObservation(pods=tuple(_dcgm_pod(kube, pod) for pod in checks.read(kube, DCGM)))


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """The multi-node NCCL test; the launcher's log is read once it ended."""
    pods = checks.read(kube, INTER)
    launcher = next((pod for pod in pods if pod.name.startswith(f"{JOB}-launcher")), None)
    raw = kube.get(f"/apis/kubeflow.org/v2beta1/namespaces/{CHECK_NAMESPACE}/mpijobs/{JOB}", RawMpiJob)
    over = launcher is not None and (launcher.ended or bool(launcher.report))
    text = kube.log(CHECK_NAMESPACE, launcher.name, tail=LOG_LINES) if launcher is not None and over else ""
    return FunctionalObservation(
        job=_mpi_job(raw) if raw else None,
        launcher=launcher,
        workers=tuple(pod for pod in pods if pod.name.startswith(f"{JOB}-worker-")),
        log=nccl_output.read(text) if text else None,
        exits=_exits(launcher.report) if launcher else (),
        errors=mpi_output.errors(text),
    )


def _install(kube: KubeReader, name: str) -> Install | None:
    if not name:
        return None
    job = kube.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}", charts.Job)
    if job is None:
        return None
    known = {entry.type: entry for entry in job.status.conditions if entry.status == "True"}
    complete, failed = "Complete" in known, known.get("Failed")
    pods = () if complete else workloads.pods(kube, NAMESPACE, f"job-name={name}")
    log = kube.log(NAMESPACE, pods[-1].metadata.name, tail=40)[-2000:] if pods else ""
    return Install(complete=complete, failed=f"{failed.reason}: {failed.message}" if failed else "", log=log)


def _nccl_pod(kube: KubeReader, pod: CheckPod) -> NcclPod:
    text = _output(kube, pod)
    short = msgspec.structs.replace(pod, report={key: value for key, value in pod.report.items() if key != packed.KEY})
    return NcclPod(pod=short, log=nccl_output.read(text) if text else None, exits=_exits(pod.report))


def _dcgm_pod(kube: KubeReader, pod: CheckPod) -> DcgmPod:
    text = _output(kube, pod)
    run = dcgm_output.read(text) if text else None
    short = msgspec.structs.replace(pod, report={key: value for key, value in pod.report.items() if key != packed.KEY})
    return DcgmPod(pod=short, run=run, error="" if run or not text else text.strip()[-300:])


def _output(kube: KubeReader, pod: CheckPod) -> str:
    """The tool's own output: packed in the report, or the log where it was too long for that; empty while there is no report."""
    if not pod.report:
        return ""
    return packed.text(pod.report) or kube.log(CHECK_NAMESPACE, pod.name, tail=POD_LINES)


def _exits(report: dict[str, Any]) -> tuple[int, ...]:
    said = report.get("exits")
    return tuple(code for code in said if isinstance(code, int)) if isinstance(said, list) else ()


def _mpi_job(raw: RawMpiJob) -> MpiJob:
    true = [entry for entry in raw.status.conditions if entry.status == "True"]
    return MpiJob(conditions=tuple(entry.type for entry in true), message=true[-1].message[:500] if true else "")
