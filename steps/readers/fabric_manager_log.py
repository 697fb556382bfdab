"""Parses the log of NVIDIA's fabric manager (/var/log/fabricmanager.log)."""

import re

from msgspec import Struct

_LINE = re.compile(
    r"^\[[A-Z][a-z]{2} +\d+ \d{4} [\d:]{8}\] \[(?P<level>[A-Z]+)\] \[tid \d+\] (?P<text>[^\n]*)$",
    re.MULTILINE,
)
_NONFATAL = re.compile(r"NVSwitch non-fatal error (?P<number>\d+)")
_FATAL = re.compile(r"NVSwitch fatal error (?P<number>\d+)|\bSXid\b[^\n]*\bfatal\b(?<!non-fatal)")
MOST_LINES = 1_000_000


class FabricManagerLog(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts of a log, with the texts of its errors: `errors` at level ERROR and above, and NVSwitch errors of both kinds."""

    lines: int = 0
    errors: tuple[str, ...] = ()
    nonfatal: int = 0
    fatal: int = 0


def read(text: str) -> FabricManagerLog:
    """Return the counts of a log; 0 lines if the text is none of the fabric manager."""
    lines = nonfatal = fatal = 0
    errors: list[str] = []
    for match in _LINE.finditer(text):
        lines += 1
        if match["level"] in ("ERROR", "CRITICAL", "FATAL") and len(errors) < 1000:
            errors.append(match["text"][:300])
        nonfatal += _NONFATAL.search(match["text"]) is not None
        fatal += match["level"] in ("CRITICAL", "FATAL") or _FATAL.search(match["text"]) is not None
    return FabricManagerLog(lines=lines, errors=tuple(errors), nonfatal=nonfatal, fatal=fatal)
