"""Finds the cause of a failed or pending MIG configuration in the log of nvidia-mig-manager on a node; pure.

Wordings: NVIDIA/mig-parted (pkg/mig/mode, cmd/nvidia-mig-parted), and nvidia-smi, which it calls to reset GPUs. See
`steps/docs/facts/gpu.md`, Sharing.
"""

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.stages.shared import reader_host
from steps.stages.shared.reader_errors import find, harmless, pattern

_RUNTIME, _SETTING = FailureClass.RUNTIME, CauseRank.SETTING
_GPU = r"(?:[^\n]*?(?P<device>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d))?"
_CLIENT_STEP = (
    "see what holds the GPU on the host (lsof /dev/nvidia*: dcgm, nvidia-persistenced, a monitoring agent, a pod without a GPU "
    "request), stop it, then write the label nvidia.com/mig.config again; a reboot resets the GPU too"
)

_PATTERNS = (
    *reader_host.PATTERNS,
    pattern(
        "used by one or more other processes",
        rf"{_GPU}[^\n]*used by one or more other processes",
        _RUNTIME,
        "a client of the host holds the GPU, so MIG mode waits for a reset",
        _SETTING,
        next_step=_CLIENT_STEP,
    ),
    pattern(
        "In use by another client",
        rf"{_GPU}[^\n]*In use by another client",
        _RUNTIME,
        "a client of the host holds the GPU, so MIG mode waits for a reset",
        _SETTING,
        next_step=_CLIENT_STEP,
    ),
    pattern(
        "mig-config not present",
        r"(?P<what>selected mig-config not present[^\n\"]*)",
        FailureClass.INPUT,
        "{what}",
        _SETTING,
        next_step="name a profile of this product in sharing.profile (nvidia-smi mig -lgip on the node)",
    ),
    pattern(
        "pending enable state",
        rf"MIG mode is in pending (?:enable|disable) state for {_GPU}",
        _RUNTIME,
        "MIG mode is set and waits for a reset of the GPU",
        CauseRank.OPERATION,
        next_step="reset the GPU (nvidia-smi --gpu-reset) once nothing holds it, or reboot the node",
    ),
    harmless("level=debug"),
    harmless("level=info"),
    pattern(
        "rror",
        r"(?P<what>[^\n]*\b[Ee]rror\b[^\n]*)",
        _RUNTIME,
        "the MIG manager says: {what}",
        CauseRank.UNKNOWN,
    ),
)


def errors(log: str) -> tuple[ToolError, ...]:
    """Return the errors in a log of nvidia-mig-manager, the first cause first."""
    return find(log, _PATTERNS)
