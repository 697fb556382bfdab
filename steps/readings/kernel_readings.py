"""Readings of kernel logs with faults of GPUs, and of the log of NVIDIA's fabric manager. No log proves that all is well."""

import re
from typing import Any

from steps.contract.verdict import FailureClass
from steps.readers import fabric_manager_log, kernel_log
from steps.readers.kernel_log import FOLLOWING_XIDS, KernelLog, XidEvent
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, of_error, undecided
from steps.stages.shared import reader_host
from steps.stages.shared.reader_errors import find

KERNEL, FABRIC_MANAGER = "kernel-log", "fabric-manager"
_KERNEL = re.compile(
    r"\bNVRM: |Xid \(PCI:|\]: segfault at [0-9a-f]+ ip "
    r"|^(?:<\d+>)?\[ *\d+\.\d{6}\] |^kern +:\w+ *:|\bkernel: \[? *\d*|mce: \[Hardware",
    re.MULTILINE,
)
_MEANINGS = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "channels removed after an earlier error",
    48: "double-bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "row remapping recorded",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU fell off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP RPC time-out",
    120: "GSP error",
    140: "unrecovered ECC error",
    149: "NVLink fatal",
}
"""Meanings of Xid numbers (https://docs.nvidia.com/deploy/xid-errors/)."""
_ACTION = re.compile(
    r"\((GPU Reset Required|Node Reboot Required|Drain and Reset|Drain P2P)\)\s*$|(Node Reboot Required|GPU Reset Required)"
)
_ACTION_ORDER = ("node reboot required", "gpu reset required", "drain and reset", "drain p2p")


_SWITCH_STEP = "drain the node and reboot it, which resets GPUs and switches; read the fabric manager's log"


def is_kernel_log(text: str) -> bool:
    """Return True for lines of the kernel or of NVIDIA's kernel module."""
    return _KERNEL.search(text) is not None


def read_kernel_log(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of a kernel log: faults of hardware before those of programs."""
    log = kernel_log.read(captured.text)
    hardware = [event for event in log.xids if event.is_hardware]
    figures = _figures(log, hardware)
    step = "nvidia-smi -q and the kernel's log of this node: drain it, and reset or replace this GPU"
    if hardware:
        return failed(KERNEL, FailureClass.HARDWARE, _xid_cause(log, hardware), figures, next_step=step)
    if log.off_bus:
        return failed(KERNEL, FailureClass.HARDWARE, f"GPU {log.off_bus[0]} fell off the bus", figures, next_step=step)
    if log.switches:
        event = log.switches[0]
        cause = f"SXid {event.number}: {event.text[:120]} on NVSwitch {event.pci}"
        return failed(KERNEL, FailureClass.HARDWARE, cause, figures, next_step=_SWITCH_STEP)
    followed = [event for event in log.xids if event.number in FOLLOWING_XIDS and _action(log)]
    if followed and _action(log):
        return failed(KERNEL, FailureClass.HARDWARE, f"Xid {followed[0].number}: {_action(log)}", figures, next_step=step)
    errors = [error for error in find(captured.text, reader_host.PATTERNS) if not error.cause.startswith("Xid ")]
    if errors and errors[0].failure_class is FailureClass.HARDWARE:
        return of_error(KERNEL, errors[0], figures)
    if log.xids:
        return failed(KERNEL, FailureClass.RUNTIME, _named(log.xids[0]), figures, next_step="a fault of the program: read its log")
    if log.segfaults:
        return failed(KERNEL, FailureClass.RUNTIME, f"process segfault in {log.segfaults[0].library}", figures)
    if errors:
        return of_error(KERNEL, errors[0], figures)
    return undecided(KERNEL, "no fault in these lines, which prove no health either", figures)


def _figures(log: KernelLog, hardware: list[XidEvent]) -> dict[str, Any]:
    figures: dict[str, Any] = {"xids": sorted({event.number for event in log.xids})}
    if log.xids:
        places = sorted({event.pci for event in log.xids})
        figures |= {"pci": places, "gpus": places, "count": len(log.xids)}
        figures["hardware_xids"] = sorted({event.number for event in hardware})
    elif log.off_bus:
        figures["pci"] = log.off_bus[0]
    if hardware:
        figures["root_pci"] = hardware[0].pci
    if log.segfaults:
        figures["libraries"] = sorted({crash.library for crash in log.segfaults})
    return figures


def _action(log: KernelLog) -> str:
    """Return the strongest recovery action that Xid 154 names, in lower case."""
    actions = [(match[1] or match[2]).lower() for event in log.xids if event.number == 154 if (match := _ACTION.search(event.text))]
    strongest = min(actions, key=_ACTION_ORDER.index, default="")
    return strongest.replace("gpu", "GPU")


def _named(event: XidEvent) -> str:
    meaning = _MEANINGS.get(event.number, event.text[:120])
    return f"Xid {event.number}: {meaning} on {event.pci}{f' of {event.host}' if event.host else ''}"


def _xid_cause(log: KernelLog, hardware: list[XidEvent]) -> str:
    action = _action(log)
    return f"{_named(hardware[0])}{f', 154: {action}' if action else ''}"


def is_fabric_manager(text: str) -> bool:
    """Return True for the log of the fabric manager."""
    return fabric_manager_log.read(text[:200_000]).lines > 0


def read_fabric_manager(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of the fabric manager's log."""
    log = fabric_manager_log.read(captured.text)
    figures: dict[str, Any] = {"error_lines": len(log.errors), "nvswitch_nonfatal": log.nonfatal, "fatal": log.fatal}
    if log.fatal:
        step = "drain the node; read nvidia-smi nvlink -e and the kernel's log for SXid lines"
        return failed(
            FABRIC_MANAGER, FailureClass.HARDWARE, f"fatal error of an NVSwitch: {log.errors[0]}", figures, next_step=step
        )
    words = f"{len(log.errors)} error lines, none fatal, which prove no health either" if log.errors else "no error in these lines"
    return undecided(FABRIC_MANAGER, words, figures, next_step="nvidia-smi -q, section Fabric, tells whether the fabric is up")
