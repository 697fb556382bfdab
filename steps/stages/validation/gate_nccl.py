"""Judges logs of nccl-tests: errors first, then the network, then each run's data, end and bandwidth at the largest size.

Naive gates go wrong in three ways. Current NCCL prints `via NET/IB/0/GDRDMA`, not `[GDRDMA]`. The average over all sizes says
nothing about the largest one. A run on one host, on sockets, or cut in the middle ends without an error. See
`steps/docs/facts/acceptance.md`, NCCL log and nccl-tests.
"""

import msgspec

from steps.contract.node_tests.nccl import MOST_SETS, AdapterSet, NcclLog, NcclRow, NcclRun, NcclTransport, NcclWant
from steps.contract.plain_text import count, truncate
from steps.contract.verdict import CauseRank, FailureClass, Status, ToolError, by_cause
from steps.stages.shared.finding import Finding, fail, unknown

QUOTE = 160
"""Most characters of a log's line in a next step."""
MOST_WARNINGS = 2
LARGE = 1 << 20
"""Bytes from which on a bandwidth of 0 is no rounded one."""


def problem(log: NcclLog, want: NcclWant) -> Finding | None:
    """Return the first problem of a node's or a job's NCCL log; None if it shows every run complete, correct and fast enough."""
    errors, transport = by_cause(log.stated), network(log.transport, want)
    # a wrong network can be what made a rank fail, so it stands above reports that a rank failed
    fell_back = transport is not None and transport.status is Status.FAIL
    if errors and not (fell_back and errors[0].rank is CauseRank.CONSEQUENCE):
        return stated(errors[0])
    if transport:
        return transport
    if not log.runs:
        seen = f"the log holds no run of nccl-tests{_last_words(log)}"
        return unknown(FailureClass.RUNTIME, seen, "a table with a row per size", "read the log of the check")
    finding = next((finding for run in log.runs if (finding := _run(run, want))), None)
    if finding is not None:
        words = ("".join(f"; {text}" for text in log.warnings[:MOST_WARNINGS])) + _last_words(log)
        return msgspec.structs.replace(finding, seen=finding.seen + words)
    return _repeated(log.runs, want)


def judged(exits: tuple[int, ...], log: NcclLog | None, want: NcclWant) -> Finding | None:
    """Return the problem of a check that has ended: from its log, else from the exit codes of its runs; None if it passed.

    Exit code 124 is that of `timeout`.
    """
    finding = problem(log or NcclLog(), want)
    bad = next((code for code in exits if code != 0), None)
    exit_problem = "" if bad is None else "a run hung until its time-out" if bad == 124 else f"a run ended with exit code {bad}"
    if finding is not None:
        text = f"{finding.seen}; {exit_problem}" if exit_problem else finding.seen
        return msgspec.structs.replace(finding, status=Status.FAIL, seen=text)
    if exit_problem:
        return fail(FailureClass.RUNTIME, exit_problem, "exit code 0", "read the end of the check's log")
    if len(exits) < want.runs:
        return fail(FailureClass.RUNTIME, f"{len(exits)} runs ended", f"{want.runs} runs", "read the end of the check's log")
    return None


def network(seen: NcclTransport, want: NcclWant) -> Finding | None:
    """Return a finding unless traffic between nodes used RDMA, all adapters of a node, and GPUDirect on every channel."""
    if not want.rdma:
        return None
    if seen.verbs_missing:
        return fail(
            FailureClass.DEPENDENCY,
            "NCCL cannot open libibverbs and uses network Socket",
            "InfiniBand verbs in the container",
            "add rdma-core (libibverbs) to the check's image",
        )
    if seen.socket:
        return fail(
            FailureClass.DEPENDENCY,
            f"NCCL {'found no InfiniBand device and ' if seen.no_device else ''}fell back to network Socket",
            "every channel between nodes over RDMA",
            "check that the pods get the RDMA resource and see /dev/infiniband, and that the fabric ports are up",
        )
    if not seen.network:
        return unknown(
            FailureClass.DEPENDENCY,
            "the log does not tell which network NCCL uses",
            "a line `Using network` or channels between nodes",
            "run with NCCL_DEBUG=INFO",
        )
    if want.networks and seen.network not in want.networks:
        return fail(
            FailureClass.INPUT,
            f"NCCL uses network {seen.network}",
            f"one of {', '.join(want.networks)}",
            "correct the network plug-in of the image, or the spec's fabric",
        )
    if want.hcas and not seen.hcas:
        return unknown(
            FailureClass.DEPENDENCY,
            "the log does not tell which adapters NCCL uses",
            f"{want.hcas} adapters",
            "run with NCCL_DEBUG=INFO",
        )
    return _adapters(seen, want) or (_gdr(seen) if want.gdr else None)


def _adapters(seen: NcclTransport, want: NcclWant) -> Finding | None:
    """Return a failure unless every host uses as many adapters as planned, of the planned link layer and names.

    A host whose port is down uses fewer, or a storage or management NIC in its place; the other hosts have the full set.
    """
    sets = seen.adapter_sets or (AdapterSet(adapters=dict.fromkeys(seen.hcas, seen.link)),)
    step = "check ports with ibstat on the nodes, and NCCL_IB_HCA in the image"
    for used in sets:
        where = f" on {used.host}" if used.host and len(sets) > 1 else ""
        text = f"NCCL uses {count(len(used.adapters), 'adapter')}{where}: {', '.join(used.adapters)}"
        if want.hcas and len(used.adapters) != want.hcas:
            return fail(FailureClass.HARDWARE, text, f"{count(want.hcas, 'adapter')} on every host", step)
        strange = {name: link for name, link in used.adapters.items() if _is_strange(name, link, want)}
        if strange:
            named = ", ".join(f"{name} ({link})" if link else name for name, link in strange.items())
            planned = ", ".join(want.adapters) or f"adapters of link layer {want.link}"
            be = "is no rail" if len(strange) == 1 else "are no rails"
            return fail(FailureClass.HARDWARE, f"{text}; {named} {be} of the fabric", f"{planned} alone", step)
        if want.link and not all(used.adapters.values()):
            unread = "the log does not tell the link layer of NCCL's adapters"
            return unknown(FailureClass.DEPENDENCY, unread, f"adapters of link layer {want.link}", "run with NCCL_DEBUG=INFO")
    known = {name for used in sets for name in used.adapters}
    unplaced = known.symmetric_difference(seen.hcas)
    if unplaced and len(sets) < MOST_SETS:
        unread = f"the log does not tell which host uses {', '.join(sorted(unplaced))}"
        return unknown(FailureClass.DEPENDENCY, unread, "the adapters of every host", "run with NCCL_DEBUG=INFO")
    return None


def _is_strange(name: str, link: str, want: NcclWant) -> bool:
    """Return True if an adapter is evidently none of the planned ones: by its link layer, or by its name if names are planned."""
    return bool(want.link and link and link != want.link) or bool(want.adapters and name not in want.adapters)


def _gdr(seen: NcclTransport) -> Finding | None:
    if seen.gdr:
        return None
    wanted = "GPUDirect RDMA on every channel between nodes (via NET/IB/N/GDRDMA)"
    step = "load nvidia-peermem or use the open kernel module with DMA-BUF; check PCIe ACS is off"
    if seen.gdr is None:
        return unknown(
            FailureClass.DEPENDENCY, "the log does not tell whether GPUDirect RDMA is used", wanted, "run with NCCL_DEBUG=INFO"
        )
    if seen.gdr_disabled:
        return fail(FailureClass.DEPENDENCY, f"GPU Direct RDMA Disabled for {', '.join(seen.gdr_disabled)}", wanted, step)
    if seen.channels and seen.gdr_channels < seen.channels:
        return fail(
            FailureClass.DEPENDENCY, f"{seen.gdr_channels} of {seen.channels} channels between nodes use GDRDMA", wanted, step
        )
    return fail(FailureClass.DEPENDENCY, "NCCL says GDR 0", wanted, step)


def stated(error: ToolError) -> Finding:
    """Return the failure that a tool's own error stands for, with host, adapter and peer, and the line that reports it."""
    parts = (("on", error.host), ("adapter", error.device), ("peer", "" if error.peer in error.cause else error.peer))
    where = "".join(f" {what} {name}" for what, name in parts if name)
    log = f"read the log of {error.host or 'the check'} around: {truncate(error.line, QUOTE)}"
    step = f"{error.next_step}; {log}" if error.next_step else log
    return fail(error.failure_class, f"{error.cause}{where}", "a run without errors", step)


def _last_words(log: NcclLog) -> str:
    return f"; its last words: {log.last}" if log.last else ""


def _run(run: NcclRun, want: NcclWant) -> Finding | None:
    largest = run.largest
    # a part of a run tells neither its largest size nor its bandwidth
    is_large = largest is not None and largest.size >= LARGE
    partly = _shape(run, want) or _truth(run) or (_alone(run) if is_large else None) or _completeness(run, largest, want)
    return partly or (None if is_large else _alone(run)) or _bandwidth(run, largest, want) or _checks(run, want)


def _shape(run: NcclRun, want: NcclWant) -> Finding | None:
    """Return a finding unless the ranks formed the one wanted communicator."""
    if not run.rows:
        return fail(FailureClass.RUNTIME, "nccl-tests ended before its first row", "a row per size", "read the log of the check")
    hosts = len(run.hosts)
    if want.ranks and run.world != want.ranks:
        return fail(
            FailureClass.INPUT if run.world < 2 else FailureClass.RUNTIME,
            f"{count(run.world, 'rank')} on {count(hosts, 'host')}",
            f"{count(want.ranks, 'rank')} in one communicator",
            "check that nccl-tests was built with MPI=1 and that mpirun reached every worker",
        )
    # on fewer hosts NVLink would be measured instead of the fabric
    if want.hosts and hosts != want.hosts:
        return fail(
            FailureClass.RUNTIME,
            f"all ranks on {hosts} of the hosts",
            f"{want.hosts} distinct hosts",
            "check mpirun's host file: fewer hosts measure NVLink instead of the fabric",
        )
    if run.world == 1:
        return unknown(FailureClass.INPUT, "one rank: no bus bandwidth by construction", "two ranks or more", "run with more GPUs")
    return None


def _alone(run: NcclRun) -> Finding | None:
    """Return a finding if every process was a world of its own, as with nccl-tests that were built without MPI."""
    if run.fastest == 0.0:
        return fail(
            FailureClass.INPUT,
            "bus bandwidth 0 at every size: each process is its own world",
            "one communicator over all ranks",
            "use nccl-tests built with MPI=1",
        )
    return None


def _truth(run: NcclRun) -> Finding | None:
    """Return a finding if data were wrong or the run did not reach its end; else None."""
    if run.wrong_sides or run.out_of_bounds or run.out_of_bounds_ok is False:
        sizes = ", ".join(str(row.size) for row in run.rows if row.wrong) or "unknown"
        return fail(
            FailureClass.RUNTIME,
            f"wrong data: {run.out_of_bounds or run.wrong_sides} values out of bounds (sizes {sizes})",
            "0 values out of bounds",
            "test the nodes in halves to find the one that corrupts data; check NCCL, its network plug-in and the driver",
        )
    if run.started and not run.concluded:
        return fail(
            FailureClass.RUNTIME,
            f"the run started and did not conclude, {len(run.rows)} rows",
            "Collective test concluded",
            "read the end of the log: the run crashed, hung, or its log was cut",
        )
    return None


def _bandwidth(run: NcclRun, largest: NcclRow | None, want: NcclWant) -> Finding | None:
    # the average covers all sizes and says nothing about the largest one
    busbw = largest.least if largest else None
    if largest is None or busbw is None or want.floor is None or busbw >= want.floor:
        return None
    average = f" (average over all sizes {run.average:g})" if run.average is not None else ""
    return fail(
        FailureClass.PERFORMANCE,
        f"{busbw:g} GB/s at {size(largest.size)}{average}",
        f"at least {want.floor:g} GB/s at the largest size",
        "compare with nvidia-smi nvlink -s, ibstat and PCIe link width of the nodes; test them in halves",
    )


def _checks(run: NcclRun, want: NcclWant) -> Finding | None:
    """Return a finding if a run is fast enough and did not check its data."""
    if not want.checked or run.checked:
        return None
    return unknown(
        FailureClass.RUNTIME,
        f"correctness was not checked (#wrong is N/A on {run.unchecked_sides} sides, or missing)",
        "checked data at every size",
        "run with -c 1",
    )


def _completeness(run: NcclRun, largest: NcclRow | None, want: NcclWant) -> Finding | None:
    """Return a finding if a run proves nothing because rows, its summary or its end are missing."""
    if want.whole and (not run.sizes or len(run.rows) < run.sizes):
        wanted = f"{run.sizes} sizes" if run.sizes else "an unknown number of sizes"
        return unknown(
            FailureClass.RUNTIME,
            f"{len(run.rows)} rows of {wanted}",
            "a row for every size from minBytes to maxBytes",
            "read the whole log of the check: which size is the largest cannot be told from a part",
        )
    if not run.ended or run.out_of_bounds is None:
        return unknown(
            FailureClass.RUNTIME,
            "the summary `Out of bounds values` is missing",
            "a complete log",
            "read the whole log of the check",
        )
    if largest is None or largest.least is None:
        return unknown(FailureClass.RUNTIME, "no bandwidth at the largest size", "a number", "read the whole log of the check")
    return None


def _repeated(runs: tuple[NcclRun, ...], want: NcclWant) -> Finding | None:
    if len(runs) < want.runs:
        return fail(
            FailureClass.RUNTIME,
            f"{len(runs)} runs in the log",
            f"{want.runs} runs",
            "read the end of the log: later runs did not start",
        )
    speeds = bandwidths(runs)
    fastest = max(speeds, default=0.0)
    if fastest <= 0 or (fastest - min(speeds)) / fastest <= want.spread:
        return None
    return fail(
        FailureClass.PERFORMANCE,
        f"runs between {min(speeds):g} and {max(speeds):g} GB/s",
        f"runs within {want.spread:.0%} of the fastest",
        "look for other load, a flapping port, or thermal throttling (dcgmi dmon, ibdiagnet counters)",
    )


def bandwidths(runs: tuple[NcclRun, ...]) -> list[float]:
    """Return the bus bandwidth of each run at its largest size, in GB/s."""
    return [least for run in runs if (row := run.largest) is not None and (least := row.least) is not None]


def size(count: int) -> str:
    """Return bytes in the form that nccl-tests takes, such as `8G`."""
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)
