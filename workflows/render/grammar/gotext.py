"""Write text as Go does (JSON, numbers, hashes) and read its durations, since such text appears in messages and names of nodes.

The rules follow recorded cases of the conformance corpus and the documentation of Go's `encoding/json`, `strconv` and
`time.ParseDuration`, which Argo's controller uses.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

LARGEST_INTEGER = (1 << 63) - 1
"""Largest whole number in Go's 64 bits; Argo's controller computes with no larger one."""
MOST_ITEMS = 100_000
"""Largest number of items of a `withSequence`; Argo cannot store the nodes of more, and a typo must not fill the memory."""
SEQUENCE_FORMAT = re.compile(r"((?:[^%]|%%)*)%(0?)([0-9]{0,3})([dxX])((?:[^%]|%%)*)")
"""Supported formats of a `withSequence`: text, one integer verb of Go's `fmt`, text."""
_LONGEST_SECONDS = LARGEST_INTEGER / 1e9  # Go counts a duration in nanoseconds
_SURROGATE = re.compile("[\ud800-\udfff]")
_DEEPEST_JSON = 100
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"^[+]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def seconds(text: str) -> float:
    """Return a duration as a number of seconds: bare digits are seconds (`"600"`), else Go units (`1h30m`, `1.5s`).

    Raises ValueError for any other text, and for a duration of more than 292 years, which Go cannot count.
    """
    if re.fullmatch(r"[0-9]{1,18}", text):
        return min(float(text), _LONGEST_SECONDS)
    if re.fullmatch(r"[0-9]+", text):
        total = math.inf
    elif not _DURATION.match(text):
        raise ValueError(f"'{text}' is not a duration such as 30, 30s, 5m or 1h30m")
    else:
        total = sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
    if total > _LONGEST_SECONDS:
        raise ValueError(f"'{text[:40]}' is longer than 292 years, the longest duration of Argo")
    return total


def parse_json(text: str, number: Callable[[str], Any] = float) -> Any:
    """Return parsed JSON; `number` makes values of its numbers.

    Texts may come from a step, so everything that Python reads and Go does not is refused: raises ValueError for NaN and Infinity,
    and for values nested deeper than 100 levels. Half of a surrogate pair becomes U+FFFD, as in Go.
    """
    try:
        value = json.loads(text, parse_int=number, parse_float=number, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError(f"nested deeper than {_DEEPEST_JSON} levels") from None
    return _whole(value, _DEEPEST_JSON)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _whole(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return value if type(value) is not str else _SURROGATE.sub("\ufffd", value)
    if not isinstance(value, (dict, list)):
        return value
    if levels == 0:
        raise ValueError(f"nested deeper than {_DEEPEST_JSON} levels")
    if isinstance(value, list):
        return [_whole(item, levels - 1) for item in value]
    return {_SURROGATE.sub("\ufffd", key): _whole(item, levels - 1) for key, item in value.items()}


def number_text(value: float, exponent_from: int = 21, exponent_below: int = -6) -> str:
    """Return the shortest decimal text of a float, with an exponent for values from 1e21 and below 1e-6, as `encoding/json` does.

    The two bounds are parameters, because `%v` uses an exponent below 1e-4. Raises ValueError if the float is not finite.
    """
    if math.isinf(value) or math.isnan(value):
        raise ValueError("not a finite number")
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    # repr gives the shortest digits that read back as the same float, as Go's strconv does
    exponent = math.floor(math.log10(abs(value)))
    plain = Decimal(repr(value))
    if exponent_below <= exponent < exponent_from:
        text = format(plain, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    sign, digits, power = plain.as_tuple()
    figures = "".join(map(str, digits)).rstrip("0") or "0"
    shift = int(power) + len(digits) - 1
    mantissa = figures[0] + ("." + figures[1:] if len(figures) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if shift < 0 else '+'}{abs(shift):02d}"


def display(value: Any) -> str:
    """Return a value as Go's `%v` prints it (`2`, `[1 2]`)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "<nil>"
    if isinstance(value, float):
        return number_text(value, exponent_below=-4) if math.isfinite(value) else {1: "+Inf", -1: "-Inf"}.get(_sign(value), "NaN")
    if isinstance(value, list):
        return "[" + " ".join(display(item) for item in value) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{display(value[key])}" for key in sorted(value)) + "]"
    return str(value)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def json_text(value: Any, sort: bool = True) -> str:
    """Return compact JSON as `encoding/json` writes it: `<`, `>` and `&` escaped, and map keys sorted unless `sort` is False."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return "".join(_HTML.get(char, char) for char in text)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        return re.sub(r"e-0(\d)$", r"e-\1", number_text(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(json_text(item, sort) for item in value) + "]"
    if isinstance(value, dict):
        keys = sorted(value) if sort else list(value)
        return "{" + ",".join(f"{json_text(str(key))}:{json_text(value[key], sort)}" for key in keys) + "}"
    raise TypeError(f"{type(value).__name__} has no JSON form")


def quote(text: str) -> str:
    """Return the text in double quotes with Go escapes, like `strconv.Quote` for printable text."""
    return json.dumps(text, ensure_ascii=False)


def fnv1a(text: str) -> int:
    """Return the 32-bit FNV-1a hash of the text's UTF-8 bytes; Argo puts this number into node ids and pod names."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value
