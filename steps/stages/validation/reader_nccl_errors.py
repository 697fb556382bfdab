"""Finds errors in logs of NCCL, nccl-tests and PyTorch's NCCL watchdog."""

import re

from steps.contract.verdict import FailureClass, ToolError
from steps.stages.shared.reader_errors import Pattern, find, pattern

_WORK_COMPLETION = {
    1: ("IBV_WC_LOC_LEN_ERR", FailureClass.RUNTIME, "local length error"),
    4: ("IBV_WC_LOC_PROT_ERR", FailureClass.RUNTIME, "local protection error"),
    5: ("IBV_WC_WR_FLUSH_ERR", FailureClass.RUNTIME, "flushed after an earlier error"),
    9: ("IBV_WC_REM_INV_REQ_ERR", FailureClass.RUNTIME, "remote invalid request"),
    10: ("IBV_WC_REM_ACCESS_ERR", FailureClass.RUNTIME, "remote access error"),
    12: ("IBV_WC_RETRY_EXC_ERR", FailureClass.HARDWARE, "no answer over the network path"),
    13: ("IBV_WC_RNR_RETRY_EXC_ERR", FailureClass.RUNTIME, "peer not ready"),
}
"""Status of an InfiniBand work completion (libibverbs `ibv_wc_status`): its name, class and meaning."""

_HOST = r"(?P<host>[\w.-]*)"
_RANK = rf"{_HOST}:\d+:\d+ \[\d+\] "


def _completion(match: re.Match[str], line: str) -> ToolError:
    code = int(match["status"])
    name, failure_class, meaning = _WORK_COMPLETION.get(code, (f"work completion {code}", FailureClass.RUNTIME, "see vendor error"))
    device = re.search(r"\bhca (\S+)", line)
    cause = f"{name} ({code}): {meaning} (vendor error {match['vendor']})"
    return ToolError(
        cause=cause, failure_class=failure_class, line=line, host=match["host"] or "", device=device[1] if device else ""
    )


def _watchdog(match: re.Match[str], line: str) -> ToolError:
    cause = f"collective timeout: {match['op']} ran longer than {int(match['ms']) / 1000:g} s (sequence number {match['seq']})"
    return ToolError(cause=cause, failure_class=FailureClass.RUNTIME, line=line)


_PATTERNS = (
    pattern(
        "'system not yet initialized'",
        rf"{_HOST}: Test CUDA failure \S+ 'system not yet initialized'",
        FailureClass.DEPENDENCY,
        "CUDA error 802: fabric manager not running, the NVSwitch fabric is not initialised",
    ),
    pattern(
        "Test CUDA failure", rf"{_HOST}: Test CUDA failure \S+ '(?P<what>[^'\n]*)'", FailureClass.RUNTIME, "CUDA failure: {what}"
    ),
    pattern(
        "Test NCCL failure",
        rf"{_HOST}: Test NCCL failure \S+ '(?P<what>[^'\n(]*[^'\n( ])",
        FailureClass.RUNTIME,
        "NCCL failure: {what}",
    ),
    pattern(
        "transport/nvls.cc",
        rf"{_RANK}transport/nvls\.cc:\d+ NCCL WARN Cuda failure (?P<code>\d+) '(?P<what>[^'\n]*)'",
        FailureClass.RUNTIME,
        "NVLink SHARP multicast allocation fails: CUDA failure {code} '{what}' (fabric manager or driver state)",
    ),
    pattern(
        "NCCL WARN Cuda failure",
        rf"{_RANK}\S+ NCCL WARN Cuda failure (?:\d+ )?'(?P<what>[^'\n]*)'",
        FailureClass.RUNTIME,
        "CUDA failure inside NCCL: {what}",
    ),
    Pattern(
        "Got completion from peer",
        re.compile(
            rf"{_RANK}[^\n]*?Got completion from peer [^\n]*?(?:status=|error )(?P<status>\d{{1,4}})\b"
            r"[^\n]*?vendor err (?P<vendor>\d+)"
        ),
        _completion,
    ),
    Pattern(
        "Watchdog caught collective operation timeout",
        re.compile(r"timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+),[^\n]*?Timeout\(ms\)=(?P<ms>\d{1,12})\)"),
        _watchdog,
    ),
    pattern("Call to ibv_", rf"{_RANK}[^\n]*NCCL WARN (?P<what>Call to ibv_\w+ failed[^\n]*)", FailureClass.RUNTIME, "{what}"),
    pattern(
        "Invalid number of GPUs:",
        r"Invalid number of GPUs: (?P<what>\d+ requested but only \d+ were found)",
        FailureClass.HARDWARE,
        "GPUs: {what}",
    ),
)


def read(text: str) -> tuple[ToolError, ...]:
    """Return the errors of NCCL, nccl-tests and PyTorch's watchdog in a log, the most telling first."""
    return find(text, _PATTERNS)
