"""Readings of nccl-tests, logs of NCCL and PyTorch's NCCL watchdog: the network first, then data and end, then the largest size.

The judgement is that of the gates of stage validation (`gate_nccl`). An excerpt whose author left rows out by a line `...` is whole
if its summary is there, since the summary comes after the largest size.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from steps.contract.node_tests.nccl import NcclLog, NcclRun, NcclTransport, NcclWant
from steps.contract.verdict import FailureClass, by_cause
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, of_finding, passed, undecided
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.validation import gate_nccl, reader_nccl, reader_nccl_json

TOOL = "nccl"
_RECOGNISED = re.compile(
    r"NCCL (?:INFO|WARN|version) |nccl-tests version|^[^\n]{0,80}\bsize[ \t]+count[ \t]+(?:\(elements\)[ \t]+)?type[ \t]"
    r"|^[^\n]{0,48}\b\d+[ \t]+\d+[ \t]+(?:float|double|half|bfloat16|u?int(?:8|32|64))[ \t]+(?:sum|prod|max|min|avg|none)[ \t]"
    r"|# ?Out of bounds values|# ?Avg bus bandwidth|via NET/\w|GPU Direct RDMA (?:Enabled|Disabled) for HCA"
    r"|: Test (?:NCCL|CUDA) failure|Watchdog caught collective operation timeout"
    r"|DistBackendError: NCCL error|\bnThread \d+ nGpus \d+ minBytes",
    re.MULTILINE,
)
_WATCHDOG = re.compile(r"timeout: WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w{1,40}),[^\n]*?Timeout\(ms\)=(\d{1,12})\)")
_HCA = re.compile(r"Got completion [^\n]*?\bhca ([\w.-]{1,40})")
_NUMBERS = re.compile(r" \((?:vendor error|sequence number) \d+\)$")
"""End of a cause that names one occurrence, not what happened."""
_OLD_COLUMN = re.compile(r"redop\b(?:[ \t]+root)?[ \t]+time[ \t]+algbw[ \t]+busbw[ \t]+error\b")
_OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "BROADCAST": "broadcast",
    "REDUCE": "reduce",
    "ALLTOALL": "alltoall",
}


def recognises(head: str) -> bool:
    """Return True if the beginning of a text is a log of NCCL or output of nccl-tests."""
    return _RECOGNISED.search(head) is not None


def is_json(document: Any) -> bool:
    """Return True if a JSON document is the file that nccl-tests write with `-J`."""
    results = document.get("results") if isinstance(document, dict) else None
    return isinstance(results, list) and any(isinstance(row, dict) and "out_of_place" in row for row in results)


def read(parts: Iterable[str], site: SiteValues) -> ToolReading:
    """Return the reading of a log that comes in parts of whole lines."""
    reader, extras, last = reader_nccl.NcclLogReader(), _Extras(), "\n"
    for part in parts:
        reader.feed(part)
        extras.feed(part)
        last = part[-1:] or last
    return _judge(reader.log(), extras, site, is_whole=last == "\n")


def read_json(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of a file that nccl-tests wrote as JSON."""
    run = reader_nccl_json.read(captured.text)
    return _judge(NcclLog(runs=(run,) if run else ()), _Extras(), site, is_whole=True)


class _Extras:
    """Facts of a log that no gate needs and that only reports show."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.is_excerpt = False

    def feed(self, text: str) -> None:
        """Read one part of the log."""
        if "Watchdog caught" in text and "seqnum" not in self.figures and (match := _WATCHDOG.search(text)):
            operation = _OPERATIONS.get(match[2].lstrip("_"), match[2].lower())
            self.figures |= {"collective": operation, "timeout_ms": int(match[3]), "seqnum": int(match[1])}
        if "Got completion" in text and "transport" not in self.figures:
            gids = " (RoCE GIDs ::ffff:)" if "::ffff:" in text else ""
            self.figures["transport"] = f"NET/IB{gids}"
            self.figures |= {"hca": match[1]} if (match := _HCA.search(text)) else {}
        if "algbw" in text and _OLD_COLUMN.search(text):
            self.figures["wrong_column"] = "error (floating point), not #wrong"
        # NCCL itself ends several of its lines with three dots
        if not self.is_excerpt and ("...\n" in text or "…\n" in text or text.endswith(("...", "…"))):
            self.is_excerpt = any(map(_is_elision, text.split("\n")))


def _is_elision(line: str) -> bool:
    """Return True for a short line that ends in three dots, with which people mark what they left out."""
    words = line.rstrip(" \t")
    return len(words) < 28 and words.endswith(("...", "…"))


def _judge(log: NcclLog, extras: _Extras, site: SiteValues, *, is_whole: bool) -> ToolReading:
    want = _wanted(log, site, is_excerpt=extras.is_excerpt)
    problem = _problem(log, want, site)
    run = _reported(log, want)
    figures = _figures(log, run) | extras.figures
    if problem is not None:
        return of_finding(TOOL, problem, figures, _cause(problem, log, run, site))
    if not is_whole:
        return undecided(TOOL, "the last line has no end: the log is cut", figures, expected="a complete log")
    if not log.runs:
        return _of_network(log.transport, site, figures)
    if site.largest_bytes is not None and (run.largest is None or run.largest.size < site.largest_bytes):
        words = f"the largest size is {gate_nccl.size(run.largest.size) if run.largest else 'unknown'}"
        wanted = f"{gate_nccl.size(site.largest_bytes)}, as largest_bytes says"
        return undecided(TOOL, words, figures, expected=wanted, next_step="run the test up to that size (-e)")
    if site.busbw_floor_gbps is None:
        step = "state the floor of this GPU and fabric: --expect busbw_floor_gbps=N"
        return undecided(TOOL, "complete and correct, but no floor for the bandwidth is stated", figures, next_step=step)
    return passed(TOOL, figures, f"{_speed(run)}, floor {site.busbw_floor_gbps:g} GB/s")


def _wanted(log: NcclLog, site: SiteValues, *, is_excerpt: bool) -> NcclWant:
    is_rdma_fabric = site.fabric in ("efa", "ib", "infiniband", "roce")
    announced = any(run.sizes for run in log.runs)
    return NcclWant(
        floor=site.busbw_floor_gbps,
        ranks=site.ranks or 0,
        hosts=max(site.hosts or 0, site.nodes or 0),
        rdma=bool(site.rdma_expected or site.gdr_expected or (is_rdma_fabric and site.rdma_expected is not False)),
        gdr=bool(site.gdr_expected),
        checked=site.validation_required is not False,
        whole=announced and not is_excerpt,
    )


def _problem(log: NcclLog, want: NcclWant, site: SiteValues) -> Finding | None:
    """Return the first problem of a log."""
    if log.runs or log.stated:
        # an expected clique of NVLink domains has no network between its nodes
        wanted = msgspec.structs.replace(want, rdma=want.rdma and not site.mnnvl_expected)
        return gate_nccl.problem(log, wanted) or _mixture(log.transport, site)
    return gate_nccl.network(log.transport, want)


def _mixture(seen: NcclTransport, site: SiteValues) -> Finding | None:
    """Return a finding if channels between nodes differ from each other, whatever was expected of them."""
    if seen.socket_channels and seen.channels:
        return fail(
            FailureClass.DEPENDENCY,
            f"{seen.socket_channels} of {seen.socket_channels + seen.channels} channels between nodes use sockets",
            "one network on all channels",
            "check the adapters and the RDMA resource of the nodes whose ranks use sockets",
        )
    if seen.socket and site.rdma_expected is None and not site.mnnvl_expected:
        step = "state --expect rdma_expected=false if plain TCP is right here, or true"
        return unknown(FailureClass.DEPENDENCY, "traffic between nodes goes over TCP sockets", "the fabric of the site", step)
    if site.gdr_expected is None and 0 < seen.gdr_channels < seen.channels:
        words = f"{seen.gdr_channels} of {seen.channels} channels between nodes use GPUDirect RDMA"
        return unknown(FailureClass.DEPENDENCY, words, "all channels alike", "check nvidia-peermem or DMA-BUF on every node")
    return None


def _of_network(seen: NcclTransport, site: SiteValues, figures: dict[str, Any]) -> ToolReading:
    """Return the reading of a log without a run, which can answer questions about the network alone."""
    stated = {
        "busbw_floor_gbps": site.busbw_floor_gbps,
        "ranks": site.ranks,
        "hosts": site.hosts,
        "nodes": site.nodes,
        "largest_bytes": site.largest_bytes,
    }
    unanswered = [name for name, value in stated.items() if value is not None]
    if unanswered:
        words = f"no row of a table of nccl-tests can be read, so nothing is known about {', '.join(unanswered)}"
        step = "read the whole log: the test hung or was cut, or its lines have a prefix that is not known"
        return undecided(TOOL, words, figures, expected="a table with a row per size", next_step=step)
    if site.mnnvl_expected:
        if seen.mnnvl is False:
            return failed(TOOL, FailureClass.DEPENDENCY, "MNNVL 0: no NVLink domain across nodes is used", figures)
        if seen.mnnvl and site.expected_clique_size and seen.clique_size != site.expected_clique_size:
            words = f"cliqueSize {seen.clique_size} instead of {site.expected_clique_size}"
            return failed(TOOL, FailureClass.DEPENDENCY, words, figures)
        if seen.mnnvl and seen.ranks:
            return passed(TOOL, figures, f"MNNVL active, cliqueSize {seen.clique_size}")
    elif (site.rdma_expected or site.gdr_expected) and seen.channels:
        return passed(TOOL, figures, f"{seen.channels} channels between nodes over {_transport(seen)}")
    step = "read the whole log of the test, or state rdma_expected, gdr_expected or mnnvl_expected"
    return undecided(TOOL, "the log holds no run of nccl-tests", figures, expected="a table with a row per size", next_step=step)


def _reported(log: NcclLog, want: NcclWant) -> NcclRun:
    """Return the run whose figures are shown: the first one with a problem, otherwise the slowest."""
    for run in log.runs:
        if gate_nccl.problem(NcclLog(runs=(run,)), msgspec.structs.replace(want, rdma=False, gdr=False)):
            return run
    return min(log.runs, key=lambda run: run.largest.speed if run.largest else -1.0, default=NcclRun())


def _figures(log: NcclLog, run: NcclRun) -> dict[str, Any]:
    largest, seen = run.largest, log.transport
    figures: dict[str, Any] = {
        "rows": len(run.rows),
        "out_of_bounds": run.out_of_bounds,
        "out_of_bounds_word": {True: "OK", False: "FAILED", None: None}[run.out_of_bounds_ok],
        "avg_busbw": run.average,
    }
    if largest is not None:
        figures |= {
            "largest_bytes": largest.size,
            "busbw_largest_out_of_place": largest.out_of_place,
            "busbw_largest_in_place": largest.in_place,
            "max_busbw": run.fastest,
            "cells_with_wrong_gt_0": run.wrong_sides,
            "wrong_na_cells": run.unchecked_sides,
        }
    if wrong := [row for row in run.rows if row.wrong]:
        figures["wrong_at_bytes"] = [row.size for row in wrong]
        figures |= {"wrong_out_of_place": wrong[0].wrong_out_of_place, "wrong_in_place": wrong[0].wrong_in_place}
    optional = {
        "collective": run.collective,
        "ranks": run.ranks,
        "hosts": len(run.hosts),
        "gpu": run.gpu,
        "world_size": run.world,
        "runs": len(log.runs) if len(log.runs) > 1 else 0,
        "transport": _transport(seen),
        "nccl_version": seen.version,
        "hcas": len(seen.hcas),
        "channels": seen.channels + seen.socket_channels,
        "gdr_channels": seen.gdr_channels,
        "mnnvl": seen.mnnvl,
        "clique_size": seen.clique_size,
        "nranks": seen.ranks,
        "n_nodes": seen.nodes,
    }
    figures |= {name: value for name, value in optional.items() if value}
    if seen.gdr is not None:
        figures["gdr"] = "yes" if seen.gdr else "no"
    return figures


def _transport(seen: NcclTransport) -> str:
    """Return the network as NCCL names it, with RoCE where the adapters' link is Ethernet."""
    if seen.mnnvl and not seen.network:
        return "MNNVL"
    if seen.network.upper() == "IB":
        return "NET/IB (RoCE)" if seen.link == "RoCE" else "NET/IB"
    return seen.network


def _speed(run: NcclRun) -> str:
    largest = run.largest
    return f"{largest.least or 0:g} GB/s at {gate_nccl.size(largest.size)}" if largest else "no bandwidth"


def _cause(finding: Finding, log: NcclLog, run: NcclRun, site: SiteValues) -> str:
    """Return the cause of a finding in few words; empty if what the gate saw says it."""
    seen = log.transport
    first = next(iter(by_cause(log.stated)), None)
    if first is not None and finding.seen.startswith(first.cause):
        return _NUMBERS.sub("", first.cause)
    if finding.failure_class is FailureClass.PERFORMANCE and site.busbw_floor_gbps is not None and run.largest:
        return f"{_speed(run)}, below the floor of {site.busbw_floor_gbps:g} GB/s"
    if seen.verbs_missing and "libibverbs" in finding.seen:
        return "libibverbs missing in the container image"
    if seen.socket and "Socket" in finding.seen:
        return f"{'EFA not used, ' if site.fabric == 'efa' else ''}NCCL chose network Socket"
    if seen.gdr_disabled and "Disabled" in finding.seen:
        return "nvidia_peermem/DMA-BUF not usable"
    if "GDRDMA" in finding.seen or finding.seen == "NCCL says GDR 0":
        return "GDR 0: no channel uses GPUDirect RDMA" if not seen.gdr_channels else ""
    if "own world" in finding.seen:
        return "nccl-tests built without MPI=1: each process is its own world"
    if finding.seen.startswith("wrong data"):
        sizes = sum(1 for row in run.rows if row.wrong)
        return f"data corruption at {'one message size' if sizes == 1 else f'{sizes} message sizes'}"
    return ""
