"""Recognises the tool whose output a text is, by the text alone, and reads it by that tool's rules.

No file name, path or digest has a part in it. Tools are tried in the order of TABLE: the first that recognises a text reads it.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import msgspec
from msgspec import Struct

from steps.contract.plain_text import MARK
from steps.readings import captured_text, fabric_readings, gpu_readings, kernel_readings, mpi_readings, nccl_readings
from steps.readings.captured_text import CapturedText, TextCleaner
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ReadingVerdict, ToolReading, undecided

LARGEST_TEXT = 64 << 20
"""Most characters of an output that is no log of NCCL; those are read in parts and may be longer."""
MOST_UNREADABLE = 0.05
"""Share of characters that may be no text."""


class ToolRule(Struct, frozen=True, kw_only=True):
    """A tool: how its output is recognised, and how it is read.

    `ends_itself`: the reader knows the end of an output. Otherwise a text whose last line has no end may be cut, so it is no pass.
    """

    tool: str
    recognises: Callable[[str], bool]
    read: Callable[[CapturedText, SiteValues], ToolReading]
    ends_itself: bool = False


def _read_nccl(captured: CapturedText, site: SiteValues) -> ToolReading:
    return nccl_readings.read((captured.text,), site)


TABLE: tuple[ToolRule, ...] = (
    ToolRule(tool=nccl_readings.TOOL, recognises=nccl_readings.recognises, read=_read_nccl, ends_itself=True),
    ToolRule(tool=gpu_readings.SMI, recognises=gpu_readings.is_query_xml, read=gpu_readings.read_query_xml, ends_itself=True),
    ToolRule(tool=gpu_readings.SMI, recognises=gpu_readings.is_query, read=gpu_readings.read_query),
    ToolRule(tool=gpu_readings.SMI, recognises=gpu_readings.is_broken, read=gpu_readings.read_broken),
    ToolRule(tool=gpu_readings.SMI, recognises=gpu_readings.is_overview, read=gpu_readings.read_overview, ends_itself=True),
    ToolRule(
        tool=gpu_readings.SMI, recognises=gpu_readings.is_nvlink_status, read=gpu_readings.read_nvlink_status, ends_itself=True
    ),
    ToolRule(tool=gpu_readings.SMI, recognises=gpu_readings.is_list, read=gpu_readings.read_list),
    ToolRule(tool=gpu_readings.SMI, recognises=gpu_readings.is_topology, read=gpu_readings.read_topology),
    ToolRule(tool=gpu_readings.DCGM, recognises=gpu_readings.is_dcgm, read=gpu_readings.read_dcgm, ends_itself=True),
    ToolRule(tool=fabric_readings.IBSTAT, recognises=fabric_readings.is_ibstat, read=fabric_readings.read_ibstat, ends_itself=True),
    ToolRule(tool=fabric_readings.IBDEV, recognises=fabric_readings.is_ibdev2netdev, read=fabric_readings.read_ibdev2netdev),
    ToolRule(
        tool=fabric_readings.PERFTEST, recognises=fabric_readings.is_perftest, read=fabric_readings.read_perftest, ends_itself=True
    ),
    ToolRule(
        tool=kernel_readings.FABRIC_MANAGER, recognises=kernel_readings.is_fabric_manager, read=kernel_readings.read_fabric_manager
    ),
    ToolRule(tool=mpi_readings.OSU, recognises=mpi_readings.recognises_osu, read=mpi_readings.read_osu),
    ToolRule(tool=mpi_readings.MPI, recognises=mpi_readings.recognises_mpi, read=mpi_readings.read_mpi),
    ToolRule(tool=kernel_readings.KERNEL, recognises=kernel_readings.is_kernel_log, read=kernel_readings.read_kernel_log),
    ToolRule(tool=fabric_readings.LSPCI, recognises=fabric_readings.is_lspci, read=fabric_readings.read_lspci, ends_itself=True),
)
"""Rules of all tools; where a text could be of two, the more specific one stands first."""


def reading_of(parts: Iterable[str], site: SiteValues) -> ToolReading:
    """Return the reading of an output that comes in parts of any size. A log of NCCL is never held as a whole."""
    lines = captured_text.whole_lines(parts)
    head: list[str] = []
    for part in lines:
        head.append(part)
        if sum(map(len, head)) >= captured_text.HEAD:
            break
    beginning = "".join(head)
    cleaner = TextCleaner(beginning)
    if len(beginning) >= captured_text.HEAD and nccl_readings.recognises(cleaner.clean(beginning[: captured_text.HEAD])):
        return nccl_readings.read(map(cleaner.clean, chain([beginning], lines)), site)
    text = _collected(beginning, lines)
    if text is None:
        words = f"the output has more than {LARGEST_TEXT >> 20} MiB and is no log of NCCL"
        return _unknown(words, "read a part of it")
    return _reading_of_text(text, site)


def _collected(beginning: str, lines: Iterator[str]) -> str | None:
    texts, size = [beginning], len(beginning)
    for part in lines:
        texts.append(part)
        size += len(part)
        if size > LARGEST_TEXT:
            return None
    return "".join(texts)


def _reading_of_text(raw: str, site: SiteValues) -> ToolReading:
    if not raw.strip():
        return _unknown("the output is empty", "capture it again, with its error output")
    if raw.count("\0") or raw.count(MARK) > MOST_UNREADABLE * len(raw):
        return _unknown("the file is no text", "name the file with the captured output")
    captured = captured_text.captured(raw)
    rule = next((rule for rule in TABLE if rule.recognises(captured.text)), None)
    if rule is None:
        return _unknown("no tool is recognised by this text", "`bringup read --help` lists the tools; capture the whole output")
    reading = rule.read(captured, site)
    if reading.is_pass and not rule.ends_itself and not captured.ends_with_line:
        return undecided(reading.tool, "the last line has no end: the output may be cut", reading.figures)
    return reading


def _unknown(cause: str, next_step: str) -> ToolReading:
    return ToolReading(tool="unknown", verdict=ReadingVerdict.UNKNOWN_INPUT, cause=cause, next_step=next_step)


def tools() -> tuple[str, ...]:
    """Return the names of the tools whose output is recognised."""
    return tuple(dict.fromkeys(rule.tool for rule in TABLE))


def fields(reading: ToolReading) -> dict[str, object]:
    """Return a reading as data: verdict, class and cause beside the figures, by the names of recorded readings."""
    data: dict[str, object] = {"tool": reading.tool, "verdict": reading.verdict.value}
    if reading.failure_class is not None and reading.verdict is ReadingVerdict.FAIL:
        data["class"] = reading.failure_class.value
    if reading.cause:
        data["cause"] = reading.cause
    data |= {name: msgspec.to_builtins(value) for name, value in reading.figures.items()}
    texts = {"detail": reading.detail, "expected_state": reading.expected, "next_step": reading.next_step}
    return data | {name: text for name, text in texts.items() if text and name not in reading.figures}
