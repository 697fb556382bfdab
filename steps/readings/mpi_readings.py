"""Readings of OSU benchmarks and of what mpirun, srun and the programs they start print about errors."""

import re
from collections import Counter
from typing import Any

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.readers import osu_table
from steps.readers.osu_table import OsuTable
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, of_error, passed, undecided
from steps.stages.shared import reader_mpi

OSU, MPI = "osu", "mpi"
_MPI = re.compile(
    r"\b(?:ORTE|PRR?TE|PMIX|OPAL) (?:ERROR|has lost|daemon)|was unable to reliably start one or more daemons|UCX +ERROR"
    r"|ORTE_ERROR_LOG|Caught signal \d+ \(|\[mpiexec@|\[proxy:\d|Fatal error in (?:internal_|P?MPI_)|\b(?:orted|prted): "
    r"|\b(?:mpirun|mpiexec|prterun)\b[^\n]*(?:detected|noticed|unable|was)"
    r"|\*\*\* (?:An error occurred in MPI_|Process received signal)|There are not enough slots|MPI_ERRORS_ARE_FATAL"
    r"|BAD TERMINATION OF ONE OF|Primary job  terminated|MPI_ABORT was invoked|could not access\s+or execute an executable"
    r"|btl_tcp|must be run on at least \d+ nodes"
    r"|command terminated with exit code"
)
_EXIT = re.compile(r"^[ \t]*Exit code:[ \t]*(\d{1,3})", re.MULTILINE)
_CRASHED_IN = re.compile(r"^\[[^\]\n]*\] \[ *\d+\] \S*?/?(lib[\w-]+)\.so[^\n]*", re.MULTILINE)
_KILLED_WORKER = re.compile(r"(?:^|[-.])(worker-\d+)$")


def recognises_osu(text: str) -> bool:
    """Return True if a text has the header of an OSU test."""
    return bool(osu_table.read(text[:1_000_000]))


def recognises_mpi(text: str) -> bool:
    """Return True if a text has messages of mpirun or of a library of MPI."""
    return _MPI.search(text) is not None


def read_osu(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of OSU tables: errors first, then the data, then the largest size against the site's limit."""
    tables = osu_table.read(captured.text)
    errors = reader_mpi.errors(captured.text)
    readings = [_of_table(table, errors, captured, site) for table in tables]
    order = {"fail": 0, "inconclusive": 1}
    return min(readings, key=lambda reading: order.get(reading.verdict.value, 2))


def _of_table(table: OsuTable, errors: tuple[ToolError, ...], captured: CapturedText, site: SiteValues) -> ToolReading:
    figures = _figures(table)
    # a warning that no rule knows explains nothing after a table that is whole
    is_whole = table.largest is not None and table.largest.size >= table.full_size
    telling = [error for error in errors if not (is_whole and error.rank is CauseRank.UNKNOWN)]
    if telling:
        return of_error(OSU, telling[0], figures, _crash(telling[0], table, captured.text))
    if bad := [row for row in table.rows if row.validation and row.validation != "Pass"]:
        sizes = ", ".join(str(row.size) for row in bad[:5])
        return failed(OSU, FailureClass.RUNTIME, f"wrong data at {sizes} bytes", figures)
    largest, limit = table.largest, _limit(table, site)
    if largest is None:
        return undecided(OSU, "the table has no row", figures, expected="a row per size")
    if not (largest.size >= (site.largest_bytes or table.full_size) and captured.ends_with_line):
        words = f"the table ends at {largest.size} bytes: it may be cut"
        wanted = f"rows up to {site.largest_bytes or table.full_size} bytes, or --expect largest_bytes={largest.size}"
        return undecided(OSU, words, figures, expected=wanted)
    if largest.value <= 0:
        return undecided(OSU, f"{largest.value:g} {table.unit} at {_size(largest.size)} is no measurement", figures)
    if limit is not None and _misses(table, largest.value, limit):
        return failed(OSU, FailureClass.PERFORMANCE, _words(table, limit), figures, next_step=_STEP)
    if limit is None:
        name = "latency_ceiling_us" if table.unit == "us" else "bw_floor_mbs"
        return undecided(OSU, "complete, but no limit is stated", figures, next_step=f"state it: --expect {name}=N")
    return passed(OSU, figures, f"{largest.value:g} {table.unit} at {_size(largest.size)}, limit {limit:g} {table.unit}")


_STEP = "see which network MPI used (OMPI_MCA_btl_base_verbose, FI_LOG_LEVEL, UCX_LOG_LEVEL), and test the nodes in pairs"


def _limit(table: OsuTable, site: SiteValues) -> float | None:
    return {"us": site.latency_ceiling_us, "MB/s": site.bw_floor_mbs}.get(table.unit)


def _misses(table: OsuTable, value: float, limit: float) -> bool:
    return value > limit if table.unit == "us" else value < limit


def _words(table: OsuTable, limit: float) -> str:
    largest = table.largest
    assert largest is not None
    kind, side = ("latency", "above the ceiling") if table.unit == "us" else ("bandwidth", "below the floor")
    return f"{kind} {largest.value:.0f} {table.unit} at {_size(largest.size)}, {side} of {limit:g} {table.unit}"


def _size(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"


def _figures(table: OsuTable) -> dict[str, Any]:
    figures: dict[str, Any] = {"test": table.test, "version": table.version, "rows": len(table.rows)}
    if not table.rows or table.largest is None:
        return figures
    values = [row.value for row in table.rows]
    smallest = min(table.rows, key=lambda row: row.size)
    figures |= {
        "largest_bytes": table.largest.size,
        "value_at_largest": table.largest.value,
        "value_at_smallest": smallest.value,
        "smallest_bytes": smallest.size,
        "max_value": max(values),
        "min_value": min(values),
        "unit": table.unit,
    }
    checks = Counter(row.validation for row in table.rows if row.validation)
    return figures | ({"validation": dict(checks)} if checks else {})


def _crash(error: ToolError, table: OsuTable, text: str) -> str:
    """Return the cause of a crash with the library that crashed, and how far the test came; empty for another error."""
    if "segmentation fault" not in error.cause:
        return ""
    libraries = (name for name in _CRASHED_IN.findall(text) if not name.startswith(("libc", "libpthread", "libgcc")))
    library = next(libraries, "")
    place = "before the first row" if not table.rows else f"after {len(table.rows)} rows"
    return f"segmentation fault{f' in {library}' if library else ''} {place}"


def read_mpi(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of an output of mpirun or srun with its first cause; without an error it proves nothing."""
    errors = reader_mpi.errors(captured.text)
    codes = _EXIT.findall(captured.text)
    figures: dict[str, Any] = {"exit_code": int(codes[0])} if codes else {}
    if remote := next((error.host for error in errors if error.host and "daemon" in error.cause), ""):
        figures["remote"] = remote
    if not errors:
        return undecided(MPI, "no error is recognised, and the text does not prove success", figures)
    return of_error(MPI, errors[0], figures, _mpi_cause(errors[0], remote))


def _mpi_cause(error: ToolError, remote: str) -> str:
    worker = _KILLED_WORKER.search(remote)
    if "exit code 137" in error.cause and worker:
        return f"{worker[1]} killed (exit code 137), not the network"
    if error.cause.startswith("PMIx is not reachable"):
        return "PMIx not reachable / OMPI without Slurm PMI support"
    return ""
