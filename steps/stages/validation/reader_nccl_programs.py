"""Splits the launcher's log of the check over all nodes into all_reduce over all of them and the programs that ran after it.

`workflows/stages/scripts/nccl_inter.sh` writes the marks: `@@ bringup begin NAME nodes N over LAYER`, `@@ bringup ranks R hosts H`,
`@@ bringup end CODE` and `@@ bringup absent NAME`. What follows a `begin` without its `end` belongs to that program, in which the
launcher was killed.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from steps.contract.node_tests.nccl import NcclLog, NcclRun
from steps.readers import osu_table
from steps.stages.shared import reader_mpi
from steps.stages.validation import reader_nccl
from steps.stages.validation.contract import FabricProgram

_MARK = re.compile(
    r"^@@ bringup (?:begin (?P<name>[a-z]\w{0,31}) nodes (?P<nodes>\d{1,6}) over (?P<over>\w{1,16})"
    r"|end (?P<end>\d{1,3})|ranks (?P<ranks>\d{1,9}) hosts (?P<hosts>\d{1,9})|absent (?P<absent>[a-z]\w{0,31}))$",
    re.MULTILINE,
)
OSU = "osu_"
MOST_PARTS = 1000
"""Most runs that are read from one log."""


class LauncherLog(Struct, frozen=True, kw_only=True):
    """A launcher's log in parts: the text of all_reduce over all nodes, and the programs after it."""

    main: str
    programs: tuple[FabricProgram, ...] = ()


class _ProgramPart(Struct, kw_only=True):
    """One run of a program while its lines are read; `code` is None until its end."""

    name: str
    nodes: int
    over: str
    start: int
    stop: int = 0
    ranks: int = 0
    hosts: int = 0
    code: int | None = None


def read(text: str) -> LauncherLog:
    """Return the log in parts; without marks all of it is that of all_reduce over all nodes."""
    parts, absent, first = list[_ProgramPart](), list[FabricProgram](), len(text)
    for match in _MARK.finditer(text):
        first = min(first, match.start())
        if match["absent"]:
            absent.append(FabricProgram(name=match["absent"], absent=True))
        elif match["name"]:
            _close(parts, match.start())
            if len(parts) == MOST_PARTS:
                break
            parts.append(_ProgramPart(name=match["name"], nodes=int(match["nodes"]), over=match["over"], start=match.end()))
        elif parts and not parts[-1].stop:
            _mark(parts[-1], match)
    _close(parts, len(text))
    return LauncherLog(main=text[:first], programs=(*_programs(text, parts), *absent))


def _close(parts: list[_ProgramPart], place: int) -> None:
    if parts and not parts[-1].stop:
        parts[-1].stop = place


def _mark(part: _ProgramPart, match: re.Match[str]) -> None:
    if match["end"]:
        part.code, part.stop = int(match["end"]), match.start()
    else:
        part.ranks, part.hosts = int(match["ranks"]), int(match["hosts"])


def _programs(text: str, parts: Iterable[_ProgramPart]) -> Iterator[FabricProgram]:
    """Yield each program with all its runs on one number of nodes, in the order of the log."""
    together: dict[tuple[str, int], list[_ProgramPart]] = {}
    for part in parts:
        together.setdefault((part.name, part.nodes), []).append(part)
    for (name, nodes), runs in together.items():
        own = "".join(text[part.start : part.stop] for part in runs)
        is_osu = name.startswith(OSU)
        yield FabricProgram(
            name=name,
            nodes=nodes,
            over=runs[0].over if is_osu else "",
            hosts=min(part.hosts for part in runs),
            exits=tuple(part.code for part in runs if part.code is not None),
            log=None if is_osu else _log(own, runs),
            tables=osu_table.read(own) if is_osu else (),
            errors=reader_mpi.errors(own),
        )


def _log(text: str, parts: list[_ProgramPart]) -> NcclLog:
    """Return the log of all runs of a program of nccl-tests, with the ranks that the marks count: its table has only the first."""
    log = reader_nccl.read(text)
    runs = tuple(_whole(run, parts[number] if number < len(parts) else None) for number, run in enumerate(log.runs))
    return msgspec.structs.replace(log, runs=runs)


def _whole(run: NcclRun, part: _ProgramPart | None) -> NcclRun:
    count = part.ranks if part else 0
    return msgspec.structs.replace(run, ranks=count, world=count)
