"""Reads the errors that mpirun and the programs it starts print: slots, SSH, PMIx, crashes (https://docs.open-mpi.org)."""

from collections.abc import Iterable

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.stages.shared import reader_host
from steps.stages.shared.reader_errors import Pattern, find, pattern

_DNS = "see that the worker's pod runs and that the headless Service of the job names it"
_SSH = "see that sshd runs in the worker, and that a NetworkPolicy or firewall lets the launcher in"
_KNOWN_MESSAGES = "(An )?(ORTE|PRTE) (has|daemon)|Primary job|(mpirun|prterun) (detected|noticed)|There are not enough slots"
"""Beginnings of framed messages that a pattern of its own reads."""

PATTERNS = (
    pattern(
        "not enough slots",
        r"There are not enough slots available in the system",
        FailureClass.INPUT,
        "mpirun was asked for more processes than the workers have slots",
        CauseRank.SETTING,
    ),
    pattern(
        "must be run on at least",
        r"must be run on at least (?P<count>\d+) nodes",
        FailureClass.INPUT,
        "too few nodes: at least {count} needed",
        CauseRank.SETTING,
    ),
    pattern(
        "could not access",
        r"mpirun was unable to launch|could not access\s+or execute an executable|Executable: (?P<what>\S+)",
        FailureClass.INPUT,
        "mpirun cannot start the program: it is not in the workers' image, or not executable",
        CauseRank.SETTING,
        spans=True,
    ),
    pattern(
        "Signal: Bus error",
        r"\[(?P<host>[\w.-]*):\d+\] Signal: Bus error",
        FailureClass.INPUT,
        "bus error in a rank: shared memory (/dev/shm) is full",
        CauseRank.SETTING,
        next_step=reader_host.SHM_STEP,
    ),
    pattern(
        "Could not resolve hostname",
        r"Could not resolve hostname (?P<host>[\w.-]+)",
        FailureClass.DEPENDENCY,
        "worker {host} has no DNS name",
        CauseRank.PATH,
        next_step=_DNS,
    ),
    pattern(
        "Permission denied (publickey",
        r"(?P<host>[\w.@-]+): Permission denied \(publickey",
        FailureClass.PERMISSION,
        "worker {host} refuses the job's SSH key",
        CauseRank.PATH,
    ),
    pattern(
        "Host key verification failed",
        r"Host key verification failed",
        FailureClass.PERMISSION,
        "a worker's SSH host key is not the known one",
        CauseRank.PATH,
    ),
    pattern(
        "ssh: connect to host",
        r"ssh: connect to host (?P<peer>[\w.:-]+) port \d+: (?P<what>[^\n]*)",
        FailureClass.DEPENDENCY,
        "the launcher does not reach a worker by SSH: {what}",
        CauseRank.PATH,
        next_step=_SSH,
    ),
    pattern(
        "btl_tcp",
        r"\[(?P<host>[\w.-]+)[\]:][^\n]*connect\(\) to (?P<peer>[\w.:-]+)(?: port \d+|:\d+)? failed: (?P<what>[^\n(]*[^\n( ])",
        FailureClass.DEPENDENCY,
        "MPI cannot connect over TCP: {what}",
        CauseRank.PATH,
        next_step="see routes and firewall between the two hosts, and which interfaces btl_tcp_if_include names",
    ),
    pattern(
        "OPAL ERROR: Unreachable",
        r"\[?(?P<host>[\w.-]*):\d+\] OPAL ERROR: Unreachable",
        FailureClass.DEPENDENCY,
        "PMIx is not reachable from the started process, or Open MPI lacks Slurm's PMI",
        CauseRank.PATH,
    ),
    pattern("exit code 137", r"exit code 137", FailureClass.RUNTIME, "a worker was killed (exit code 137), not the network"),
    pattern(
        "Signal: Segmentation fault",
        r"\[(?P<host>[\w.-]*):\d+\] Signal: Segmentation fault",
        FailureClass.RUNTIME,
        "segmentation fault in a rank",
    ),
    pattern(
        "exited on signal",
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>[\w.-]+) exited on signal (?P<what>[^\n]*?)\.?$",
        FailureClass.RUNTIME,
        "rank {rank} ended on signal {what}",
    ),
)
"""Patterns of known causes, in the order of causes."""

LATE_PATTERNS = (
    # mpirun frames each of its messages by two lines of dashes
    pattern(
        "-" * 40,
        rf"^ ?-{{40,}}\n ?(?!{_KNOWN_MESSAGES})(?P<what>[^\n -][^\n]*)",
        FailureClass.RUNTIME,
        "mpirun: {what}",
        CauseRank.UNKNOWN,
        spans=True,
    ),
    pattern(
        "has lost communication with a remote daemon",
        r"Remote daemon[^\n]* on node (?P<host>\S+)",
        FailureClass.RUNTIME,
        "lost communication with the daemon on {host}",
        CauseRank.CONSEQUENCE,
        spans=True,
    ),
    pattern(
        "ORTE has lost communication with its daemon",
        r"hostname:\s*(?P<host>\S+)",
        FailureClass.RUNTIME,
        "lost communication with the daemon on {host}",
        CauseRank.CONSEQUENCE,
        spans=True,
    ),
    pattern(
        "ORTE daemon has unexpectedly failed",
        r"ORTE daemon has unexpectedly failed after launch",
        FailureClass.RUNTIME,
        "ORTE daemon failed after launch",
        CauseRank.CONSEQUENCE,
    ),
    pattern(
        "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        r"BAD TERMINATION[^\n]*(?:\n[^\n]*){0,8}?RUNNING AT (?P<host>[\w.-]+)[\s\S]{0,200}?EXIT CODE: (?P<what>\d+)",
        FailureClass.RUNTIME,
        "a rank on {host} ended with code {what}",
        CauseRank.CONSEQUENCE,
        spans=True,
    ),
    pattern(
        "returned a non-zero exit code",
        r"process returned\s+a non-zero exit code|returned a non-zero exit code",
        FailureClass.RUNTIME,
        "a rank ended with an error",
        CauseRank.CONSEQUENCE,
    ),
)
"""Patterns of messages that quote or only follow."""

_ALL: Iterable[Pattern] = (*reader_host.PATTERNS, *PATTERNS, *LATE_PATTERNS)


def errors(text: str) -> tuple[ToolError, ...]:
    """Return the errors in the output of mpirun, the first cause first."""
    return find(text, _ALL)
