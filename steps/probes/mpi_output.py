"""Reads what mpirun and the OSU benchmarks print: errors of launching, and latency or bandwidth by size (gpu_stack §8.6)."""

import re

from steps.contract.mpi import OsuRow, OsuRun
from steps.contract.tool import ToolError
from steps.contract.verdict import FailureClass
from steps.probes.tool_errors import find, pattern

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

_TITLE = re.compile(r"^#[ \t]*OSU (?P<test>MPI\S*[ \t].*?)[ \t]+v(?P<version>[\d.]+)[ \t]*$", re.MULTILINE)
_COLUMNS = re.compile(r"^#[ \t]*Size[ \t]+(?P<columns>.*\S)[ \t]*$", re.MULTILINE)
_ROW = re.compile(
    r"^[ \t]*(?P<size>\d{1,18})(?P<values>(?:[ \t]+-?\d[\d.eE+-]*)+)(?:[ \t]+(?P<check>Pass|Fail))?[ \t]*$", re.MULTILINE
)
_UNIT = re.compile(r"\(([^)\n]+)\)")


def errors(text: str) -> tuple[ToolError, ...]:
    """Errors of mpirun and what it starts, the most telling first."""
    return find(text, _PATTERNS)


def osu(text: str) -> OsuRun | None:
    """One run of an OSU benchmark; None where the text has no title of one."""
    title = _TITLE.search(text)
    if title is None:
        return None
    header = _COLUMNS.search(text, title.end())
    unit = _UNIT.search(header["columns"]) if header else None
    return OsuRun(
        test=title["test"],
        version=title["version"],
        unit=unit[1] if unit else "",
        rows=tuple(_row(match) for match in _ROW.finditer(text, header.end())) if header else (),
    )


def _row(match: re.Match[str]) -> OsuRow:
    value = match["values"].split()[0]
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    return OsuRow(size=int(match["size"]), value=number, valid={"Pass": True, "Fail": False}.get(match["check"] or ""))
