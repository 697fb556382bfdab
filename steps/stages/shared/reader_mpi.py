"""Reads the errors that mpirun and the programs it starts print: slots, SSH, PMIx, crashes (https://docs.open-mpi.org)."""

from steps.contract.verdict import FailureClass, ToolError
from steps.stages.shared.reader_errors import find, pattern

_PATTERNS = (
    pattern(
        "not enough slots",
        r"There are not enough slots available in the system",
        FailureClass.INPUT,
        "mpirun was asked for more processes than the workers have slots",
    ),
    pattern(
        "must be run on at least",
        r"must be run on at least (?P<count>\d+) nodes",
        FailureClass.INPUT,
        "too few nodes: at least {count} needed",
    ),
    pattern(
        "Could not resolve hostname",
        r"Could not resolve hostname (?P<host>[\w.-]+)",
        FailureClass.DEPENDENCY,
        "worker {host} has no DNS name",
    ),
    pattern(
        "Permission denied (publickey",
        r"(?P<host>[\w.@-]+): Permission denied \(publickey",
        FailureClass.PERMISSION,
        "worker {host} refuses the job's SSH key",
    ),
    pattern("exit code 137", r"exit code 137", FailureClass.RUNTIME, "a worker was killed (exit code 137), not the network"),
    pattern(
        "OPAL ERROR: Unreachable",
        r"\[?(?P<host>[\w.-]*):\d+\] OPAL ERROR: Unreachable",
        FailureClass.DEPENDENCY,
        "PMIx is not reachable from the started process, or Open MPI lacks Slurm's PMI",
    ),
    pattern(
        "Signal: Segmentation fault",
        r"\[(?P<host>[\w.-]*):\d+\] Signal: Segmentation fault",
        FailureClass.RUNTIME,
        "segmentation fault in a rank",
    ),
    pattern(
        "ORTE has lost communication with a remote daemon",
        r"Remote daemon[^\n]* on node (?P<host>\S+)",
        FailureClass.RUNTIME,
        "lost communication with the daemon on {host}",
    ),
    pattern(
        "ORTE has lost communication with its daemon",
        r"hostname:\s*(?P<host>\S+)",
        FailureClass.RUNTIME,
        "lost communication with the daemon on {host}",
    ),
    pattern(
        "ORTE daemon has unexpectedly failed",
        r"ORTE daemon has unexpectedly failed after launch",
        FailureClass.RUNTIME,
        "ORTE daemon failed after launch",
    ),
)


def errors(text: str) -> tuple[ToolError, ...]:
    """Return the errors in the output of mpirun, the most telling first."""
    return find(text, _PATTERNS)
