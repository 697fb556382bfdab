"""Parses reports of perftest: ib_write_bw, ib_read_bw, ib_send_bw and the latency tests (https://github.com/linux-rdma/perftest).

`MB/sec` means 2^20 bytes a second; with `--report_gbits` the columns are `Gb/sec`.
"""

import math
import re

from msgspec import Struct

_TITLE = re.compile(
    r"^[ \t]*(?P<test>(?:RDMA_Write|RDMA_Read|Send|Atomic\w*|RawEth\w*)[\w ]*(?:BW|Latency) Test)[ \t]*$", re.MULTILINE
)
_FACT = re.compile(r"(?P<name>Device|Link type|Transport type|Number of qps|Mtu|Connection type)[ \t]*: ?(?P<value>[\w.\[\]-]+)")
_HEADER = re.compile(r"^[ \t]*#bytes[ \t]+#iterations[ \t]+(?P<columns>\S[^\n]*)$", re.MULTILINE)
_ROW = re.compile(
    r"^[ \t]*(?P<size>\d{1,15})[ \t]+(?P<count>\d{1,15})[ \t]+(?P<values>[\d.]+(?:[ \t]+[\d.]+)+)[ \t]*$", re.MULTILINE
)
_FRAME = re.compile(r"^-{20,}[ \t]*$", re.MULTILINE)
MOST_ROWS = 10_000
MEGABYTE = 1 << 20


class PerftestRow(Struct, frozen=True, kw_only=True):
    """Results for one size: average bandwidth in the report's unit, or the typical latency in microseconds."""

    size: int
    iterations: int
    average: float


class PerftestReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report, of a server or a client. `is_whole` is True if the frame after the table is there."""

    test: str
    device: str = ""
    link_type: str = ""
    unit: str = ""
    rows: tuple[PerftestRow, ...] = ()
    is_whole: bool = False

    @property
    def is_latency(self) -> bool:
        """Return True for a latency test."""
        return "Latency" in self.test

    @property
    def largest(self) -> PerftestRow | None:
        """Return the row of the largest size."""
        return max(self.rows, key=lambda row: row.size, default=None)

    def gbit(self, row: PerftestRow) -> float | None:
        """Return a row's bandwidth in Gbit/s; None if the unit is unknown."""
        if self.unit == "MB/sec":
            return row.average * MEGABYTE * 8 / 1e9
        return row.average if self.unit == "Gb/sec" else None


def read(text: str) -> tuple[PerftestReport, ...]:
    """Return the reports in a text; the outputs of server and client in one file are two."""
    titles = list(_TITLE.finditer(text))
    ends = [*(match.start() for match in titles), len(text)][1:]
    return tuple(_report(match["test"], text[match.end() : end]) for match, end in zip(titles, ends, strict=True))


def _report(test: str, block: str) -> PerftestReport:
    header = _HEADER.search(block)
    facts: dict[str, str] = {}
    for name, value in _FACT.findall(block[: header.start()] if header else block):
        facts.setdefault(name, value)
    column = _column(header["columns"] if header else "", is_latency="Latency" in test)
    rows: list[PerftestRow] = []
    for match in list(_ROW.finditer(block, header.end() if header else len(block)))[:MOST_ROWS]:
        values = match["values"].split()
        average = _number(values[column]) if column is not None and column < len(values) else None
        if average is not None:
            rows.append(PerftestRow(size=int(match["size"]), iterations=int(match["count"]), average=average))
    unit = re.search(r"BW average\[(\w+/sec)\]|t_(?:typical|avg)\[(\w+)\]", header["columns"]) if header else None
    return PerftestReport(
        test=test,
        device=facts.get("Device", ""),
        link_type=facts.get("Link type", ""),
        unit=(unit[1] or unit[2]) if unit else "",
        rows=tuple(rows),
        is_whole=header is not None and _FRAME.search(block, header.end()) is not None,
    )


_COLUMN = re.compile(r"BW peak|BW average|MsgRate|t_\w+|99(?:\.\d+)?% percentile|tps average|CPU_Util")


def _column(columns: str, *, is_latency: bool) -> int | None:
    """Return the place of the average bandwidth or of the typical latency; a test by time (-D) has an average latency alone."""
    names = [match[0] for match in _COLUMN.finditer(columns)]
    wanted = ("t_typical", "t_avg") if is_latency else ("BW average",)
    return next((names.index(name) for name in wanted if name in names), None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
