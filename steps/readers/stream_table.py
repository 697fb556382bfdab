"""Parses the output of STREAM 5.10 (https://www.cs.virginia.edu/stream/): best rates of its kernels, and its own validation."""

import math
import re

from msgspec import Struct

_ROW = re.compile(r"^(?P<kernel>Copy|Scale|Add|Triad):[ \t]+(?P<rate>\d{1,12}(?:\.\d{1,6})?)[ \t]", re.MULTILINE)
VALIDATES, FAILED = "Solution Validates", "Failed Validation"


class StreamTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of STREAM: kernel → best rate in MB/s. `valid` is None if the run does not say whether its results are right."""

    rates: dict[str, float] = {}
    valid: bool | None = None


def read(text: str) -> StreamTable | None:
    """Return the run of STREAM in a text; None if it has no row of a kernel. Of several rows of a kernel the slowest counts."""
    rates: dict[str, float] = {}
    for match in _ROW.finditer(text):
        rate = float(match["rate"])
        if math.isfinite(rate):
            rates[match["kernel"]] = min(rate, rates.get(match["kernel"], rate))
    if not rates:
        return None
    valid = False if FAILED in text else True if VALIDATES in text else None
    return StreamTable(rates=rates, valid=valid)
