"""Reads the errors that mpirun and the programs it starts print: slots, SSH, PMIx, crashes (https://docs.open-mpi.org)."""

import re
from collections.abc import Iterable

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.stages.shared import reader_host
from steps.stages.shared.reader_errors import Pattern, find, pattern, short

_DNS = "see that the worker's pod runs and that the headless Service of the job names it"
_FULL = "make room there, or point TMPDIR (Open MPI's session directory) to a file system with room"
_SSHD = "see sshd's log on the worker: MaxStartups and MaxSessions, TCP wrappers, or a host that answers with another service"
_SSH = "see that sshd runs in the worker, and that a NetworkPolicy or firewall lets the launcher in"
_KNOWN_MESSAGES = (
    r"(An )?(ORTE|PRR?TE) (has|daemon)|Primary job|(mpirun|prterun) (detected|noticed)|There are not enough slots"
    r"|\w+ was unable to reliably start|It looks like MPI_INIT failed|By default, for Open MPI|WARNING: No preset parameters"
)
"""Beginnings of framed messages that a pattern of its own reads, or that Open MPI prints before healthy runs."""
_OUTPUT = r"[#\[\d]|[\w.-]+:\d+:\d+ \["
"""Beginnings of a program's own lines, which can follow the line that ends a frame."""
_WARNING = "mpirun: WARNING"
_UCX = r"\[(?P<host>[\w.-]+):\d+:\d+\][^\n]*?UCX +ERROR +"
_PORT = "see this port's counters and cable (mlxlink, ibdiagnet) and the switch port at its other end"
_STACK_LINE = re.compile(r"^[ \t]*(?:\[\d+\] )?\w+\(\d+\)[.:]+[ \t]*(?P<what>\S[^\n]*)$", re.MULTILINE)
_CUT_FRAME = re.compile(r"\n(?:=|Abort|-{20})")


def _error_stack(match: re.Match[str], line: str) -> ToolError:
    """Return the error at the bottom of a stack of MPICH or Intel MPI, where the first cause stands."""
    stack = _CUT_FRAME.split(match.string[match.end() :], maxsplit=1)[0]
    frames = [frame["what"] for frame in _STACK_LINE.finditer(stack)]
    what = frames[-1] if frames else line
    if "addrinfo" in what:
        step = "see fi_info in the image and on the node, and FI_PROVIDER: libfabric needs a provider that the fabric has"
        cause = f"libfabric finds no provider: {what}"
        return ToolError(
            cause=short(cause), failure_class=FailureClass.DEPENDENCY, line=line, rank=CauseRank.SETTING, next_step=step
        )
    return ToolError(cause=short(f"{match['call']} failed: {what}"), failure_class=FailureClass.RUNTIME, line=line)


_UCX_PATTERNS = (
    pattern(
        "Caught signal 7",
        r"\[(?P<host>[\w.-]+):\d+:\d+:\d+\] Caught signal 7 \(Bus error",
        FailureClass.INPUT,
        "bus error in a rank: shared memory (/dev/shm) is full",
        CauseRank.SETTING,
        next_step=reader_host.SHM_STEP,
    ),
    pattern(
        "UCX",
        rf"{_UCX}no [\w ]+ transport to (?P<peer>[^\s:]+): (?P<what>[^\n]*)",
        FailureClass.DEPENDENCY,
        "UCX has no transport to {peer}: {what}",
        CauseRank.PATH,
        next_step="see UCX_TLS and UCX_NET_DEVICES, and `ucx_info -d` on both hosts: they need one network and transport in common",
    ),
    pattern(
        "UCX",
        rf"{_UCX}connect\([^)\n]*?(?P<peer>\d[\w.:\[\]-]*)\) failed: (?P<what>[^\n]*)",
        FailureClass.DEPENDENCY,
        "UCX cannot connect to {peer}: {what}",
        CauseRank.PATH,
        next_step="see routes and firewall between the two hosts, and which interfaces UCX_NET_DEVICES names",
    ),
    pattern(
        "UCX",
        rf"{_UCX}(?P<what>[^\n]*[Tt]ransport retry count exceeded) on (?P<device>[\w.-]+)(?P<more>[^\n]*)",
        FailureClass.HARDWARE,
        "no answer over the network path: {what}{more}",
        CauseRank.SILENCE,
        next_step=_PORT,
    ),
    pattern(
        "UCX",
        rf"{_UCX}(?P<what>cu[A-Z]\w+(?:\(\S*\))? failed[^\n]*)",
        FailureClass.RUNTIME,
        "CUDA failure inside UCX: {what}",
    ),
    pattern("UCX", rf"{_UCX}(?P<what>[^\n]*)", FailureClass.RUNTIME, "UCX: {what}", CauseRank.UNKNOWN),
    pattern(
        "Caught signal",
        r"\[(?P<host>[\w.-]+):\d+:\d+:\d+\] Caught signal (?P<what>\d+ \([^)\n]*\))",
        FailureClass.RUNTIME,
        "a rank ended on signal {what}",
    ),
)
_STARTERS = (
    *(
        pattern(
            needle,
            rf"\bb?a?sh: (?:line \d+: )?(?P<what>\S*{needle}) ?(?:command not found|No such file or directory|Permission denied)",
            FailureClass.INPUT,
            "MPI's daemon cannot be started on a worker: {what} not found or not executable there",
            CauseRank.SETTING,
            next_step="install the same MPI at the same path on every worker, or give mpirun --prefix",
        )
        for needle in ("orted:", "prted:", "hydra_pmi_proxy:", "hydra_bstrap_proxy:")
    ),
    pattern(
        "execvp error on file",
        r"\[proxy:[\d:]+@(?P<host>[\w.-]+)\][^\n]*execvp error on file (?P<what>[^\n]*)",
        FailureClass.INPUT,
        "the program cannot be started: {what}",
        CauseRank.SETTING,
        next_step="see that the program is in the workers' image, executable, and at this path on every worker",
    ),
    pattern(
        "unable to run ",
        r"\[mpiexec@[^\]\n]*\][^\n]*unable to run \w+ on (?P<peer>[\w.-]+) \((?P<what>[^)\n]*)\)",
        FailureClass.DEPENDENCY,
        "mpiexec cannot start its proxy on {peer}: {what}",
        CauseRank.PATH,
        next_step=_SSH,
    ),
    pattern(
        " port ",
        r"Connection (?P<what>closed|reset) by (?:remote host )?(?P<peer>[\w.:-]+) port \d+",
        FailureClass.DEPENDENCY,
        "sshd of {peer} ends the connection: {what}",
        CauseRank.PATH,
        next_step=_SSHD,
    ),
    pattern(
        "_exchange_identification: ",
        r"(?:kex|ssh)_exchange_identification: (?P<what>[^\n]*)",
        FailureClass.DEPENDENCY,
        "sshd of a worker ends the connection: {what}",
        CauseRank.PATH,
        next_step=_SSHD,
    ),
    pattern(
        "A call to mkdir was unable to create",
        r"Directory: +(?P<what>\S+)\s+Error: +No space left on device",
        FailureClass.INPUT,
        "a file system of the worker is full: no room for {what}",
        CauseRank.SETTING,
        next_step=_FULL,
        spans=True,
    ),
    pattern(
        "No space left on device",
        r"^(?![^\n]*NCCL)(?:\[(?P<host>[\w.-]+):\d+\] )?[ \t]*(?P<what>[^\n]*No space left on device)",
        FailureClass.INPUT,
        "a file system of the worker is full: {what}",
        CauseRank.SETTING,
        next_step=_FULL,
    ),
    Pattern("error stack:", re.compile(r"Fatal error in (?P<call>\w+): [^\n]*error stack:"), _error_stack, True),
)

PATTERNS = (
    *_UCX_PATTERNS,
    *_STARTERS,
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
    # a process that aborts or is terminated says why before; one that does not was ended by mpirun
    pattern(
        "exited on signal",
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>[\w.-]+) exited on signal (?P<what>(?:6|15) [^\n]*?)\.?$",
        FailureClass.RUNTIME,
        "rank {rank} ended on signal {what}",
        CauseRank.CONSEQUENCE,
    ),
    pattern(
        "exited on signal",
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>[\w.-]+) exited on signal (?P<what>[^\n]*?)\.?$",
        FailureClass.RUNTIME,
        "rank {rank} ended on signal {what}",
    ),
)
"""Patterns of known causes, in the order of causes."""

_FRAMES = (
    # mpirun frames each of its messages by two lines of dashes
    pattern(
        "-" * 40,
        rf"^ ?-{{40,}}\n ?(?!{_KNOWN_MESSAGES}|{_OUTPUT})(?P<what>[^\n -][^\n]*)",
        FailureClass.RUNTIME,
        "mpirun: {what}",
        CauseRank.UNKNOWN,
        spans=True,
    ),
)
"""Pattern of mpirun's own messages, quoted."""

LATE_PATTERNS = (
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
        "PMIX ERROR: ",
        r"\[(?P<host>[\w.-]*):\d+\] (?P<what>PMIX ERROR: [^\n]*)",
        FailureClass.RUNTIME,
        "{what}",
        CauseRank.UNKNOWN,
    ),
    pattern(
        "daemon has unexpectedly failed",
        r"(?P<what>ORTE|PRR?TE) daemon has unexpectedly failed after launch",
        FailureClass.RUNTIME,
        "{what} daemon failed after launch",
        CauseRank.CONSEQUENCE,
    ),
    pattern(
        "was unable to reliably start one or more daemons",
        r"(?P<what>\w+ was unable to reliably start one or more daemons)",
        FailureClass.RUNTIME,
        "{what}",
        CauseRank.CONSEQUENCE,
    ),
    pattern(
        "It looks like MPI_INIT failed",
        r"(?P<what>It looks like MPI_INIT failed)",
        FailureClass.RUNTIME,
        "{what}",
        CauseRank.CONSEQUENCE,
    ),
    pattern(
        "*** An error occurred in MPI_",
        r"\[(?P<host>[\w.-]*):\d+\] \*\*\* (?P<what>An error occurred in MPI_\w+)",
        FailureClass.RUNTIME,
        "{what}",
        CauseRank.CONSEQUENCE,
    ),
    pattern(
        "pml_ucx.c:",
        r"\[(?P<host>[\w.-]*):\d+\] pml_ucx\.c:\d+ +Error: (?P<what>[^\n]*)",
        FailureClass.RUNTIME,
        "{what}",
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

_ALL: Iterable[Pattern] = (*reader_host.PATTERNS, *PATTERNS, *_FRAMES, *LATE_PATTERNS)


def errors(text: str) -> tuple[ToolError, ...]:
    """Return the errors in the output of mpirun, the first cause first."""
    return without_warnings(find(text, _ALL))


def without_warnings(known: tuple[ToolError, ...]) -> tuple[ToolError, ...]:
    """Return errors without the framed warnings of mpirun, which healthy runs have as well, unless nothing else is known."""
    return tuple(error for error in known if not error.cause.startswith(_WARNING)) or known
