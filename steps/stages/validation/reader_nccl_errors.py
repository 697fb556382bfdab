"""Finds errors in logs of NCCL, nccl-tests and PyTorch's NCCL watchdog, and ranks them by cause.

Wordings: NVIDIA/nccl src/misc/socket.cc, src/misc/ibvwrap.cc, src/misc/shmutils.cc, src/init.cc, src/transport/net_ib.cc (newer
releases: src/transport/net_ib/), and NVIDIA/nccl-tests src/common.cu. nccl-tests' own last line (`Test NCCL failure … 'remote
process exited or there was a network error'`) only says that some rank ended, so it ranks last. See
`steps/docs/facts/acceptance.md`, Errors of NCCL.
"""

import itertools
import re
from collections.abc import Iterable, Iterator

import msgspec

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.stages.shared import reader_host
from steps.stages.shared.reader_errors import ErrorSearch, Pattern, find, harmless, pattern, short

_OPERATION, _SILENCE = CauseRank.OPERATION, CauseRank.SILENCE
_WORK_COMPLETION = {
    1: ("IBV_WC_LOC_LEN_ERR", FailureClass.RUNTIME, _OPERATION, "local length error"),
    2: ("IBV_WC_LOC_QP_OP_ERR", FailureClass.RUNTIME, _OPERATION, "local queue pair operation error"),
    4: ("IBV_WC_LOC_PROT_ERR", FailureClass.RUNTIME, _OPERATION, "local protection error"),
    5: ("IBV_WC_WR_FLUSH_ERR", FailureClass.RUNTIME, CauseRank.CONSEQUENCE, "flushed after an earlier error"),
    8: ("IBV_WC_LOC_ACCESS_ERR", FailureClass.RUNTIME, _OPERATION, "local access error"),
    9: ("IBV_WC_REM_INV_REQ_ERR", FailureClass.RUNTIME, _OPERATION, "remote invalid request"),
    10: ("IBV_WC_REM_ACCESS_ERR", FailureClass.RUNTIME, _OPERATION, "remote access error"),
    11: ("IBV_WC_REM_OP_ERR", FailureClass.RUNTIME, _OPERATION, "remote operation error"),
    12: ("IBV_WC_RETRY_EXC_ERR", FailureClass.HARDWARE, _SILENCE, "no answer over the network path"),
    13: ("IBV_WC_RNR_RETRY_EXC_ERR", FailureClass.RUNTIME, _SILENCE, "peer not ready"),
    19: ("IBV_WC_FATAL_ERR", FailureClass.HARDWARE, CauseRank.DEVICE, "fatal error of the adapter"),
    20: ("IBV_WC_RESP_TIMEOUT_ERR", FailureClass.HARDWARE, _SILENCE, "no response over the network path"),
    21: ("IBV_WC_GENERAL_ERR", FailureClass.RUNTIME, _OPERATION, "general error of the transport"),
}
"""Status of an InfiniBand work completion (libibverbs `ibv_wc_status`): name, class, rank and meaning."""

_HOST = r"(?P<host>[\w.-]*)"
_RANK = rf"{_HOST}:\d+:\d+ \[\d+\] "
_WARN = rf"{_RANK}[^\n]*?NCCL WARN "
_PEER = r"(?P<peer>[\w.:%-]+?)(?:<\d+>|\s|$)"
_PORT_STEP = (
    "see this port's counters and cable (mlxlink, ibdiagnet; `ip -s link` on Ethernet) and the switch port at its other end"
)
_GID_STEP = (
    "see that both adapters have an address in one routed network and the same GID type: `show_gids` on both hosts, ping from one "
    "to the other, NCCL_IB_GID_INDEX"
)
_CONNECT_STEP = "see firewall, NetworkPolicy and routes between these hosts, and which interface NCCL_SOCKET_IFNAME names"
_REGISTRATION_STEP = (
    "see that nvidia-peermem is loaded or DMA-BUF works on this node (lsmod, open kernel modules), and that PCIe ACS and the IOMMU "
    "let the adapter reach the GPU; NCCL_NET_GDR_LEVEL=LOC tells by a run without GPUDirect RDMA"
)
_MULTICAST_STEP = (
    "see nvidia-smi -q, section Fabric, and the fabric manager's log on this node: restart the fabric manager, or reset the GPUs"
)
_DRIVER_STEP = "use an image whose CUDA the driver supports, or a newer driver"


def _completion(match: re.Match[str], line: str) -> ToolError:
    code = int(match["status"])
    unknown = (f"work completion {code}", FailureClass.RUNTIME, _OPERATION, "see vendor error")
    name, failure_class, rank, meaning = _WORK_COMPLETION.get(code, unknown)
    device = re.search(r"\bhca (\S+)", match.string)
    return ToolError(
        cause=f"{name} ({code}): {meaning} (vendor error {match['vendor']})",
        failure_class=failure_class,
        line=line,
        host=short(match["host"] or ""),
        device=short(device[1]) if device else "",
        peer=short(match["peer"] or ""),
        next_step=_PORT_STEP if failure_class is FailureClass.HARDWARE else "",
        rank=rank,
    )


def _watchdog(match: re.Match[str], line: str) -> ToolError:
    cause = f"collective timeout: {match['op']} ran longer than {int(match['ms']) / 1000:g} s (sequence number {match['seq']})"
    return ToolError(cause=cause, failure_class=FailureClass.RUNTIME, line=line, rank=_SILENCE)


def _last_error(match: re.Match[str], line: str) -> ToolError:
    """Return the error that NCCL's text of its last warning stands for, which PyTorch prints without process and host."""
    inner = find(f":0:0 [0] NCCL WARN {match['what']}", _PATTERNS)[:1]
    error = inner[0] if inner else ToolError(cause=short(match["what"]), failure_class=FailureClass.RUNTIME, line=line)
    return msgspec.structs.replace(error, line=short(match["what"]))


def _cuda(what: str, failure_class: FailureClass, rank: CauseRank, cause: str = "", step: str = "") -> tuple[Pattern, ...]:
    """Return the patterns of a CUDA error as nccl-tests and as NCCL report it; `what` matches CUDA's own text."""
    test, library = (cause or f"{who}: {{what}}" for who in ("CUDA failure", "CUDA failure inside NCCL"))
    code = r"(?:\d+ )?"
    return (
        pattern(
            "Test CUDA failure",
            rf"{_HOST}: Test CUDA failure \S+ '(?P<what>{what})'",
            failure_class,
            test,
            rank,
            next_step=step,
        ),
        pattern(
            "Cuda failure",
            rf"{_WARN}[^\n]*?Cuda failure {code}'(?P<what>{what})'",
            failure_class,
            library,
            rank,
            next_step=step,
        ),
    )


_DEVICE = (
    *_cuda(
        "system not yet initialized",
        FailureClass.DEPENDENCY,
        CauseRank.DEVICE,
        "CUDA error 802: fabric manager not running, the NVSwitch fabric is not initialised",
    ),
    *_cuda(r"uncorrectable (?:ECC|NVLink) error[^'\n]*", FailureClass.HARDWARE, CauseRank.DEVICE),
    pattern(
        " event",
        rf"{_WARN}NET/IB ?: (?P<device>[\w.-]+):\d+ (?:Got )?async (?:fatal |non-fatal |error )?event[^:\n]*: "
        r"(?P<what>port error|local catastrophic event|device fatal[^\n]*)",
        FailureClass.HARDWARE,
        "the adapter reports: {what}",
        CauseRank.DEVICE,
        next_step=_PORT_STEP,
    ),
    pattern(
        "Invalid number of GPUs:",
        r"Invalid number of GPUs: (?P<what>\d+ requested but only \d+ were found)",
        FailureClass.HARDWARE,
        "GPUs: {what}",
        CauseRank.DEVICE,
    ),
)

_SETTING = (
    pattern(
        "shared memory segment",
        rf"{_WARN}Error[^\n]*shared memory segment[^\n]*No space left on device",
        FailureClass.INPUT,
        "/dev/shm of the container is too small",
        CauseRank.SETTING,
        next_step=reader_host.SHM_STEP,
    ),
    pattern(
        "posix_fallocate",
        rf"{_WARN}Call to posix_fallocate failed : No space left on device",
        FailureClass.INPUT,
        "/dev/shm of the container is too small",
        CauseRank.SETTING,
        next_step=reader_host.SHM_STEP,
    ),
    pattern(
        "Too many open files",
        rf"{_WARN}(?P<what>[^\n]*Too many open files)",
        FailureClass.INPUT,
        "the limit of open files is too low: {what}",
        CauseRank.SETTING,
        next_step="set LimitNOFILE for the services rke2-server and rke2-agent, and `ulimit -n` in the image's start script",
    ),
    pattern(
        "Call to ibv_",
        rf"{_WARN}(?P<what>Call to ibv_\w+ failed[^\n]*Cannot allocate memory)",
        FailureClass.INPUT,
        "the limit of locked memory is too low: {what}",
        CauseRank.SETTING,
        next_step=reader_host.MEMLOCK_STEP,
    ),
    pattern(
        "Mismatched NCCL version",
        rf"{_WARN}Mismatched NCCL version detected ?: (?P<what>[^\n]*)",
        FailureClass.INPUT,
        "the job has two NCCL versions: {what}",
        CauseRank.SETTING,
        next_step="use one image for all workers, and see which libnccl.so LD_LIBRARY_PATH and LD_PRELOAD select",
    ),
    pattern(
        "Duplicate GPU detected",
        rf"{_WARN}Duplicate GPU detected ?: (?P<what>[^\n]*)",
        FailureClass.INPUT,
        "two ranks use one GPU: {what}",
        CauseRank.SETTING,
        next_step="see the slots of mpirun and CUDA_VISIBLE_DEVICES: each rank needs a GPU of its own",
    ),
    pattern(
        "o socket interface found",
        rf"{_WARN}(?P<what>[^\n]*[Nn]o socket interface found[^\n]*)",
        FailureClass.INPUT,
        "{what}",
        CauseRank.SETTING,
        next_step="correct NCCL_SOCKET_IFNAME: no interface of the pod matches it",
    ),
    *_cuda("CUDA driver version is insufficient[^'\n]*", FailureClass.DEPENDENCY, CauseRank.SETTING, step=_DRIVER_STEP),
    *_cuda("no kernel image is available[^'\n]*", FailureClass.DEPENDENCY, CauseRank.SETTING, step=_DRIVER_STEP),
)

_PATH = (
    pattern(
        "Call to ibv_modify_qp",
        rf"{_WARN}(?P<what>Call to ibv_modify_qp failed with [^\n]*?), on dev (?P<device>[\w.-]+?)(?::\d+)?, [^\n]*?"
        r"local GID (?P<local>[\w.:]+), remote GID (?P<peer>[\w.:]+)",
        FailureClass.DEPENDENCY,
        "{what}: local GID {local} does not reach remote GID {peer}",
        CauseRank.PATH,
        next_step=_GID_STEP,
    ),
    pattern(
        "Call to ibv_modify_qp",
        rf"{_WARN}(?P<what>Call to ibv_modify_qp failed[^\n]*)",
        FailureClass.DEPENDENCY,
        "{what}",
        CauseRank.PATH,
        next_step=_GID_STEP,
    ),
    pattern(
        "onnect to ",
        rf"{_WARN}[^\n]*?[Cc]onnect to {_PEER}[^\n]*?"
        r"(?P<what>No route to host|Connection refused|Connection timed out|(?:Network|Host) is unreachable|Network is down)",
        FailureClass.DEPENDENCY,
        "NCCL cannot connect to {peer}: {what}",
        CauseRank.PATH,
        next_step=_CONNECT_STEP,
    ),
    pattern(
        "onnect to ",
        rf"{_WARN}[^\n]*?[Cc]onnect to {_PEER}[^\n]*?(?:failed ?:|returned) (?P<what>[^\n,]+)",
        FailureClass.DEPENDENCY,
        "NCCL cannot connect to {peer}: {what}",
        CauseRank.PATH,
        next_step=_CONNECT_STEP,
    ),
)

_LATER = (
    pattern(
        "(NVLS) Multicast",
        rf"{_WARN}(?P<what>Failed to \w+ NVLink SHARP \(NVLS\) Multicast[^\n]*?CUDA error[^\n]*?'[^'\n]*')",
        FailureClass.RUNTIME,
        "NVLink SHARP multicast fails: {what} (fabric manager or driver state)",
        next_step=_MULTICAST_STEP,
    ),
    pattern(
        "transport/nvls.cc",
        rf"{_RANK}transport/nvls\.cc:\d+ NCCL WARN Cuda failure (?P<code>\d+) '(?P<what>[^'\n]*)'",
        FailureClass.RUNTIME,
        "NVLink SHARP multicast allocation fails: CUDA failure {code} '{what}' (fabric manager or driver state)",
        next_step=_MULTICAST_STEP,
    ),
    *_cuda("[^'\n]*", FailureClass.RUNTIME, CauseRank.OPERATION),
    Pattern(
        "Got completion ",
        re.compile(
            rf"{_RANK}[^\n]*?Got completion from peer {_PEER}[^\n]*?(?:status=(?:\w+\()?|error )(?P<status>\d{{1,4}})\b"
            r"[^\n]*?vendor[ _]err[ =](?P<vendor>\d+)"
        ),
        _completion,
    ),
    # an error of a queue pair reaches the log by this thread, often before the completion of the work
    pattern(
        "async fatal event",
        rf"{_WARN}NET/IB ?: (?P<device>[\w.-]+):\d+ (?P<what>async fatal event[^\n]*)",
        FailureClass.RUNTIME,
        "{what}",
    ),
    Pattern(
        "Watchdog caught collective operation timeout",
        re.compile(r"timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+),[^\n]*?Timeout\(ms\)=(?P<ms>\d{1,12})\)"),
        _watchdog,
    ),
    pattern(
        "Call to ibv_",
        rf"{_WARN}(?P<what>Call to ibv_reg_\w*mr\w* failed[^\n]*)",
        FailureClass.DEPENDENCY,
        "the adapter cannot register GPU memory: {what}",
        next_step=_REGISTRATION_STEP,
    ),
    pattern("Call to ibv_", rf"{_WARN}(?P<what>Call to ibv_\w+ failed[^\n]*)", FailureClass.RUNTIME, "{what}"),
    # without verbs NCCL goes on over sockets, which the gate judges by the transport
    harmless("Failed to open libibverbs"),
    pattern(
        "onnection ",
        rf"{_WARN}(?P<what>[^\n]*?(?:closed by remote peer|reset by peer|Broken pipe)[^\n]*)",
        FailureClass.RUNTIME,
        "{what}",
        CauseRank.CONSEQUENCE,
    ),
    # the thread of a process that asked another one only tells that the other one failed
    pattern(
        "NCCL WARN",
        rf"{_WARN}(?P<what>(?:Proxy Call to rank \d+ failed|\[(?:Proxy )?Service [^\]\n]*\] Failed to execute operation"
        r"|\[Proxy Service \d+\] Failed|Socket recv failed while polling|ncclPollProxyResponse)[^\n]*)",
        FailureClass.RUNTIME,
        "NCCL warned: {what}",
        CauseRank.CONSEQUENCE,
    ),
    pattern("NCCL WARN", rf"{_WARN}(?P<what>\S[^\n]*)", FailureClass.RUNTIME, "NCCL warned: {what}", CauseRank.UNKNOWN),
    Pattern("Last error:", re.compile(r"Last error: *\n(?:\[[^\]\n]{1,40}\]:? ?)*(?P<what>\S[^\n]*)"), _last_error, True),
    pattern(
        "CUDA out of memory",
        r"(?P<what>CUDA out of memory[^\n]{0,200})",
        FailureClass.RUNTIME,
        "a rank has no GPU memory left: {what}",
        next_step="see what else uses the GPUs (nvidia-smi on the node), and the size of the test's buffers",
    ),
    pattern(
        "DistBackendError: NCCL error in",
        r"DistBackendError: NCCL error in: [^\n,]*, (?P<what>[^\n(]*?)\s*(?:\(run with|, NCCL version|$)",
        FailureClass.RUNTIME,
        "NCCL failure: {what}",
        CauseRank.CONSEQUENCE,
    ),
    pattern(
        "Test NCCL failure",
        rf"{_HOST}: Test NCCL failure \S+ '(?P<what>[^'\n(]*?)\s*(?:\(run with|/ '|')",
        FailureClass.RUNTIME,
        "NCCL failure: {what}",
        CauseRank.CONSEQUENCE,
    ),
)

_PATTERNS: Iterable[Pattern] = (*reader_host.PATTERNS, *_DEVICE, *_SETTING, *_PATH, *_LATER)
_ADDRESS = re.compile(rf"{_HOST}:\d+:\d+ \[\d+\] NCCL INFO (?:Bootstrap ?: Using|[^\n]*OOB) [\w.-]+:(?P<address>[\w.:%-]+?)<\d+>")
MOST_ADDRESSES = 100_000
"""Most addresses of hosts that are remembered."""


def read(text: str) -> tuple[ToolError, ...]:
    """Return the errors of NCCL, nccl-tests and PyTorch's watchdog in a log, the first cause first.

    A peer that the log names by address only gets its host's name added, if the log has the line in which that host gives it.
    """
    search = NcclErrorSearch()
    search.learn_hosts(text)
    search.feed(text)
    return search.errors()


class NcclErrorSearch:
    """Search for the errors of `read` in a log that comes in parts of whole lines."""

    def __init__(self) -> None:
        self._search = ErrorSearch(_PATTERNS)
        self._hosts: dict[str, str] = {}

    def feed(self, text: str) -> None:
        """Read one part of the log."""
        self._search.feed(text)

    def learn_hosts(self, text: str) -> None:
        """Read the lines of one part of the log in which hosts give their addresses."""
        for needle in (" Bootstrap", " OOB "):
            lines = itertools.islice(_lines_with(text, needle), MOST_ADDRESSES - len(self._hosts))
            matches = filter(None, map(_ADDRESS.search, lines))
            self._hosts.update((match["address"], match["host"]) for match in matches)

    def errors(self) -> tuple[ToolError, ...]:
        """Return the errors of all parts, the first cause first, with the names of peers."""
        return tuple(_named(error, self._hosts.get(error.peer, "")) for error in self._search.errors())


def _lines_with(text: str, needle: str) -> Iterator[str]:
    at = text.find(needle)
    while at >= 0:
        end = text.find("\n", at)
        end = end if end >= 0 else len(text)
        yield text[text.rfind("\n", 0, at) + 1 : end]
        at = text.find(needle, end)


def _named(error: ToolError, host: str) -> ToolError:
    return msgspec.structs.replace(error, peer=f"{error.peer} ({host})") if host and host != error.peer else error
