"""Parses the JSON that nccl-tests write with `-J`. Its `env` holds the whole environment, which may include secrets, and is never
kept.

Peculiarities of the tool: booleans are the texts `"true"` and `"false"`, a value that is no number is `"nan"`, a size that was not
checked has `nwrong: null`, and `end_time` is written last, so that a file without it was cut.
"""

import math

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.node_tests.nccl import NcclRow, NcclRun

Number = int | float | str | None


class _Side(Struct, frozen=True):
    """Measured values of one side (out of place or in place) of a result."""

    bus_bw: Number = None
    nwrong: Number = None


class _Result(Struct, frozen=True):
    """Result of one message size."""

    size: Number = None
    redop: str = ""
    out_of_place: _Side | None = None
    in_place: _Side | None = None


class _Device(Struct, frozen=True):
    """Device of one rank."""

    rank: Number = None
    hostname: str | None = None
    device_info: str | None = None


class _Config(Struct, frozen=True):
    devices: tuple[_Device, ...] = ()


class _Bounds(Struct, frozen=True):
    count: Number = None
    okay: bool | str | None = None


class _Average(Struct, frozen=True):
    bandwidth: Number = None


class _Document(Struct, frozen=True):
    args: tuple[str, ...] = ()
    config: _Config = _Config()
    results: tuple[_Result, ...] = ()
    out_of_bounds: _Bounds = _Bounds()
    average_bus_bandwidth: _Average = _Average()
    end_time: str | None = None


def read(text: str) -> NcclRun | None:
    """Return the run in a JSON file; None if the text is no such file or is cut in the middle."""
    try:
        document = msgspec.json.decode(text.encode(errors="replace"), type=_Document)
    except UNREADABLE_JSON:
        return None
    rows = [_row(result) for result in document.results]
    devices = document.config.devices
    count, okay = _whole(document.out_of_bounds.count), document.out_of_bounds.okay
    ranks = [rank for device in devices if (rank := _whole(device.rank)) is not None]
    return NcclRun(
        collective=_program(document.args),
        started=True,
        concluded=document.end_time is not None,
        rows=tuple(row for row in rows if row is not None),
        sizes=len(rows),
        out_of_bounds=count,
        out_of_bounds_ok=None if okay is None else okay in (True, "true"),
        average=_number(document.average_bus_bandwidth.bandwidth),
        ranks=len(devices),
        world=max((rank + 1 for rank in ranks), default=0),
        hosts=tuple(dict.fromkeys(device.hostname for device in devices if device.hostname)),
        gpu=next((device.device_info for device in devices if device.device_info), ""),
    )


def _program(args: tuple[str, ...]) -> str:
    return args[0].rsplit("/", 1)[-1].removesuffix("_perf") if args else ""


def _row(result: _Result) -> NcclRow | None:
    size = _whole(result.size)
    if size is None:
        return None
    sides = [side for side in (result.out_of_place, result.in_place) if side is not None]
    first, second = result.out_of_place or _Side(), result.in_place or _Side()
    return NcclRow(
        size=size,
        out_of_place=_number(first.bus_bw),
        in_place=_number(second.bus_bw),
        wrong_out_of_place=_whole(first.nwrong) or 0,
        wrong_in_place=_whole(second.nwrong) or 0,
        unchecked=sum(_number(side.nwrong) is None for side in sides),
        checked=sum(_number(side.nwrong) is not None for side in sides),
    )


def _number(value: Number) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Number) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1e18 else None
