"""Readings of logs of controllers: Argo CD, GPU Operator, Helm; and of errors of the kubelet that stand alone."""

import re
from typing import Any

from steps.contract.plain_text import count
from steps.contract.verdict import CauseRank, FailureClass
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, of_error, undecided
from steps.stages.gpu_operator import reader_driver
from steps.stages.shared import causes, reader_kubelet
from steps.stages.slurm import reader_slurm_errors

ARGO_CD, GPU_OPERATOR, HELM, ERRORS = "argo-cd", "gpu-operator", "helm", "error-text"
_ARGO = re.compile(r"\b(?:ComparisonError|InvalidSpecError|SyncError)\b|argocd-application-controller|updated '[^'\n]+' operation")
_PHASE = re.compile(r"operation \(phase: (?P<phase>Failed|Error|Succeeded)\)")
_SYNC_FAILED = re.compile(r"Sync operation to \S+ failed: (?P<what>[^\"\n]{1,300})")
_NOT_READY = re.compile(r"(?P<kind>ClusterPolicy|NicClusterPolicy) is not ready, states not ready: \[(?P<states>[^\]\n]{1,2000})")
_READY = re.compile(r"(?:ClusterPolicy|NicClusterPolicy) is ready")
_HELM = re.compile(
    r"^\+? ?helm(?:_v3)? (?:install|upgrade|lookup)|^Error: |\b(?:UPGRADE|INSTALLATION) FAILED\b|no matches for kind", re.MULTILINE
)
_KIND = re.compile(r"no matches for kind \"?(?P<kind>\w{1,80})\"? in version \"?(?P<version>[\w./-]{1,120})\"?")


def is_argo_cd(text: str) -> bool:
    """Return True for messages of Argo CD's controller or of an Application's conditions."""
    return _ARGO.search(text) is not None


def read_argo_cd(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of messages of Argo CD; levels say nothing, since a failed sync is logged as info."""
    text = captured.text
    figures: dict[str, Any] = {}
    if match := re.search(r"\bapplication=(?:\"?)(?P<name>[\w./-]{1,200})", text):
        figures["application"] = match["name"]
    kind = re.search(r"\b(ComparisonError|InvalidSpecError|SyncError|UnknownError)\b", text)
    if kind:
        figures["condition"] = kind[1]
        # Argo CD cannot compare then, and keeps the last health
        figures |= {"sync": "Unknown"} if kind[1] == "ComparisonError" else {}
        cause = causes.classify(causes.ARGO_CD, [(kind[1], line) for line in text.splitlines()])
        line = next((line for line in text.splitlines() if "error" in line.lower() and line.strip() != kind[1]), "")
        if "anifest generation error" in text:
            path = re.search(r"(?P<path>[\w./-]+): app path does not exist", text)
            words = f"app path {path['path']} does not exist" if path else causes.short(line or text.strip())
            step = "correct the path, the values or the chart that the message names"
            return failed(ARGO_CD, FailureClass.MANIFEST_GENERATION, words, figures, next_step=step)
        if cause:
            return failed(ARGO_CD, cause.failure_class, cause.text, figures, next_step=cause.next_step)
    phase, sync = _PHASE.search(text), _SYNC_FAILED.search(text)
    if sync or (phase and phase["phase"] != "Succeeded"):
        what = sync["what"].strip() if sync else "the operation failed"
        cause = causes.classify(causes.ARGO_CD, [("operation", what)])
        failure_class = cause.failure_class if cause else FailureClass.APPLY
        return failed(ARGO_CD, failure_class, what, figures, next_step="see the failed resources of the sync")
    return undecided(ARGO_CD, "no failure in these lines, which do not prove that the application is healthy", figures)


def is_gpu_operator(text: str) -> bool:
    """Return True for the log of the GPU Operator or the Network Operator."""
    return "controllers.ClusterPolicy" in text or _NOT_READY.search(text) is not None


def read_gpu_operator(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of an operator's log: its last word about the policy."""
    matches = list(_NOT_READY.finditer(captured.text))
    ready = max((match.start() for match in _READY.finditer(captured.text)), default=-1)
    if not matches or ready > matches[-1].start():
        return undecided(GPU_OPERATOR, "no state that is not ready, which does not prove that the policy is ready", {})
    states = matches[-1]["states"].split()
    kind = matches[-1]["kind"]
    step = "kubectl get pods of the operator's namespace: read the logs of the first of these states"
    cause = f"{kind} is not ready: {count(len(states), 'state')} not ready"
    return failed(GPU_OPERATOR, FailureClass.HEALTH, cause, {"not_ready": states}, next_step=step)


_TELLING = re.compile(r"rror|FAILED|no matches|^[ \t]*[-*] |:[ \t]*$")


_DRIVER = re.compile(
    r"NVIDIA Software Installer|Starting installation of NVIDIA driver|Resolving Linux kernel version|Linux kernel version string"
    r"|could not insert '?\"?nvidia"
)


def is_driver_container(text: str) -> bool:
    """Return True for the log of the container that installs the driver."""
    return _DRIVER.search(text) is not None


def read_driver_container(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of a driver container's log: the first cause why it ended, else its last line, quoted."""
    if error := reader_driver.cause(captured.text):
        return of_error(GPU_OPERATOR, error, {})
    words = f"no error that a rule knows; its last words: {reader_driver.last_words(captured.text)}"
    return undecided(GPU_OPERATOR, words, {}, next_step="nvidia-smi in this container tells whether its driver is loaded")


def is_helm(text: str) -> bool:
    """Return True for the log of an install Job of Helm, or Helm's own errors."""
    return _HELM.search(text) is not None and causes.classify(causes.HELM, [("", text)]) is not None


def read_helm(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of Helm's errors."""
    # a line that announces details by a colon is read with them
    lines = [line for line in captured.text.splitlines() if _TELLING.search(line)]
    cause = causes.classify(causes.HELM, [("", "\n".join(lines) or captured.text)])
    if cause is None:
        return undecided(HELM, "no error is recognised, which does not prove that the release is deployed", {})
    kind = _KIND.search(cause.text)
    words = f"kind {kind['kind']} of {_group(kind['version'])} is not served" if kind else cause.text.removeprefix("Error: ")
    return failed(HELM, cause.failure_class, words, {}, next_step=cause.next_step)


def _group(version: str) -> str:
    # Helm leaves out the version where the kind is not served at all
    return version if "/" in version else f"{version}"


def is_kubelet_text(text: str) -> bool:
    """Return True for an error of the kubelet in a text that no rule of Slurm knows."""
    if reader_kubelet.cause(text.splitlines()) is None:
        return False
    return all(error.rank is CauseRank.UNKNOWN for error in reader_slurm_errors.read(text))


def is_error_text(text: str) -> bool:
    """Return True for a text with an error that a rule of the kubelet or of Slurm knows."""
    return reader_kubelet.cause(text.splitlines()) is not None or bool(reader_slurm_errors.read(text))


def read_error_text(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of a text that is no tool's whole output and names an error."""
    error = reader_kubelet.cause(captured.text.splitlines()) or next(iter(reader_slurm_errors.read(captured.text)))
    figures: dict[str, Any] = {}
    patterns = {"claim": r"persistentvolumeclaim \"?([\w.-]{1,253})", "profile": r"(/[\w./-]*/seccomp/[\w./-]+?)(?=[:\s])"}
    for name, pattern in patterns.items():
        if match := re.search(pattern, captured.text):
            figures[name] = match[1]
    if match := re.search(r"file-less GPU (\S{1,100})", captured.text):
        figures["gres"] = match[1]
    return of_error(ERRORS, error, figures)
