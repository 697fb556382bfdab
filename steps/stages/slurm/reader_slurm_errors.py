"""Finds errors that Slurm's daemons and tools print: authentication, hardware unlike its configuration, missing devices."""

import re
from datetime import datetime

from steps.contract.verdict import FailureClass, ToolError
from steps.stages.shared.reader_errors import Pattern, find, pattern

_CREDENTIAL = re.compile(r"ENCODED: (?P<encoded>[^\n]+)\n[^\n]*DECODED: (?P<decoded>[^\n]+)")
_TIME = "%a %b %d %H:%M:%S %Y"
_DIFFERS = re.compile(r"\b(?P<key>[A-Za-z]+)=(?P<configured>\d+):(?P<hardware>\d+)\(hw\)")


def _expired(match: re.Match[str], line: str) -> ToolError:
    seconds = skew(match.string)
    difference = f"clock skew of {seconds} s" if seconds is not None else "clocks differ"
    return ToolError(cause=f"credential expired: {difference}", failure_class=FailureClass.PERMISSION, line=line)


def skew(text: str) -> int | None:
    """Return the seconds between the clocks that made and read a credential; None if the text does not have both times."""
    match = _CREDENTIAL.search(text)
    if match is None:
        return None
    try:
        times = [datetime.strptime(match[name].strip(), _TIME) for name in ("encoded", "decoded")]
    except ValueError:
        return None
    return round(abs((times[1] - times[0]).total_seconds()))


def hardware_differences(text: str) -> dict[str, tuple[int, int]]:
    """Return the values that slurmd counts differently from its configuration: name → (configured, hardware)."""
    pairs = {match["key"]: (int(match["configured"]), int(match["hardware"])) for match in _DIFFERS.finditer(text[:10_000])}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _hardware(match: re.Match[str], line: str) -> ToolError:
    what = ", ".join(hardware_differences(match.string))
    cause = f"node configuration differs from hardware: {what}"
    return ToolError(cause=cause, failure_class=FailureClass.INPUT, line=line)


_PATTERNS = (
    Pattern("Expired credential", re.compile(r"Munge decode failed: Expired credential"), _expired),
    pattern(
        "Munge decode failed: Invalid credential",
        r"Munge decode failed: Invalid credential",
        FailureClass.PERMISSION,
        "munge key mismatch",
    ),
    pattern(
        "munge.socket", r"Unable to access \"[^\"\n]*munge\.socket[^\"\n]*\"", FailureClass.DEPENDENCY, "munged socket missing"
    ),
    pattern(
        "Invalid job credential",
        r"Task launch for \S+ failed on node (?P<host>[\w.-]+): Invalid job credential",
        FailureClass.PERMISSION,
        "Invalid job credential on node {host}",
    ),
    pattern(
        "Zero Bytes were transmitted or received",
        r"Zero Bytes were transmitted or received",
        FailureClass.PERMISSION,
        "controller closed the connection (authentication)",
    ),
    pattern(
        "Unable to contact slurm controller",
        r"Unable to contact slurm controller \((?P<what>[^)\n]*)\)",
        FailureClass.DEPENDENCY,
        "slurmctld does not answer: {what}",
    ),
    Pattern("Node configuration differs from hardware", re.compile("Node configuration differs from hardware"), _hardware),
    pattern(
        "gres.conf file",
        r"can't stat gres\.conf file (?P<device>\S+?): No such file",
        FailureClass.DEPENDENCY,
        "{device} missing (driver not loaded)",
    ),
    pattern(
        "count reported lower than configured",
        r"(?P<what>gres/\S+ count reported lower than configured \(\d+ < \d+\))",
        FailureClass.HARDWARE,
        "{what}",
    ),
    pattern(
        "srun: error:",
        r"srun: error: (?P<what>(?:Unable to (?:allocate|create)|Required node not available|Requested node configuration)[^\n]*)",
        FailureClass.RUNTIME,
        "{what}",
    ),
    pattern(
        "srun: error:",
        r"srun: error: (?P<host>[\w.-]+): task \d+: (?P<what>[^\n]*)",
        FailureClass.RUNTIME,
        "task on {host}: {what}",
    ),
)


def read(text: str) -> tuple[ToolError, ...]:
    """Return the errors of Slurm's daemons and tools in a text, the most telling first."""
    return find(text, _PATTERNS)
