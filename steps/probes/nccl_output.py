"""Reads logs of nccl-tests, text and JSON, of any release: pure functions that never raise on what a tool printed (gpu_stack §8.1).

The table changed over the years (`root` came, `error` became `#wrong`, `-I` adds four columns a side), so columns are found by the
header where there is one, else by their number. Lines may carry tags of mpirun or srun.
"""

import re

from steps.contract.nccl import NcclLog, NcclRun
from steps.probes import nccl_errors, nccl_json, nccl_table, nccl_transport

MAX_TEXT = 64 << 20
"""More than this of one log is not looked at: a log of 1,000 nodes has 20 MB."""

_TAG = r"(?:\[[\d,]+\]<std(?:out|err)>:? ?|\d+: )?"
_LINE = re.compile(
    rf"^{_TAG}[ \t]*(?:"
    r"(?P<row>\d+[ \t]+\d+[ \t]+[a-z]\w*[ \t]+[a-z]\w*[ \t].*)"
    r"|#?[ \t]*(?P<head>size[ \t]+count[ \t]+type[ \t].*)"
    r"|#?[ \t]*Rank[ \t]+(?P<rank>\d{1,9})[ \t].*?Pid[ \t]+\d+[ \t]+(?:on[ \t]+(?P<host>\S+)[ \t]+)?"
    r"device[ \t]+\d+[ \t]+\[[^\]\n]*\][ \t]+(?P<gpu>.*\S)"
    r"|#[ \t]*Out of bounds values[ \t]*:[ \t]*(?P<bounds>\d{1,18})(?:[ \t]+(?P<word>\w+))?"
    r"|#[ \t]*Avg bus bandwidth[ \t]*:[ \t]*(?P<average>[-+.\deE]+|nan|inf)"
    r"|#[ \t]*nccl-tests version[ \t]+(?P<version>\S+)"
    r"|#[ \t]*Collective test starting:[ \t]*(?P<starting>\S+)"
    r"|#[ \t]*Collective test concluded:[ \t]*(?P<concluded>\S+)"
    r"|#?[ \t]*(?P<threads>nThread)[ \t][^\n]*?minBytes[ \t]+(?P<low>\d{1,18})[ \t]+maxBytes[ \t]+(?P<high>\d{1,18})[ \t]+"
    r"step:[ \t]*(?P<step>\d{1,18})\((?P<unit>factor|bytes)\)"
    r")",
    re.MULTILINE,
)
_WORLD = re.compile(r"\bcomm 0x[0-9a-f]+ rank \d+ n[rR]anks (\d{1,9})")


def read(text: str) -> NcclLog:
    """Everything that one log says."""
    text = text[:MAX_TEXT]
    if text.lstrip()[:1] == "{":
        written = nccl_json.read(text)
        return NcclLog(runs=(written,) if written else ())
    return NcclLog(runs=runs(text), transport=nccl_transport.read(text), errors=nccl_errors.read(text))


def runs(text: str) -> tuple[NcclRun, ...]:
    """The runs of one log, in order; none where no line belongs to a run."""
    found: list[_Draft] = []
    for match in _LINE.finditer(text):
        if not found or found[-1].over(match.lastgroup or ""):
            found.append(_Draft(found[-1].columns if found else ()))
        found[-1].take(match)
    world = max((int(size) for size in _WORLD.findall(text)), default=0)
    return tuple(draft.run(world) for draft in found if draft.started_here)


class _Draft:
    """A run while its lines are read."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._rows: list[nccl_table.Cells] = []
        self._ranks: list[int] = []
        self._hosts: dict[str, None] = {}
        self._said: dict[str, str] = {}

    @property
    def started_here(self) -> bool:
        """Whether any line but a header was read."""
        return bool(self._rows or self._ranks or self._said)

    def over(self, group: str) -> bool:
        """Whether a line of this group belongs to the next run: after the footer, or a second start."""
        if group in ("average", "concluded"):
            return group in self._said
        if group == "unit":
            return "threads" in self._said or bool(self._rows or self._ranks)
        if group in ("word", "bounds"):
            return "bounds" in self._said
        if "bounds" in self._said or "concluded" in self._said or "average" in self._said:
            return True
        if group in ("version", "starting"):
            return group in self._said or bool(self._rows or self._ranks)
        return False

    def take(self, match: re.Match[str]) -> None:
        """Take in one line."""
        groups = {key: value for key, value in match.groupdict().items() if value is not None}
        if "row" in groups:
            row = nccl_table.row(groups["row"].split(), self.columns)
            self._rows += [row] if row else []
        elif "head" in groups:
            self.columns = nccl_table.columns(groups["head"])
        elif "rank" in groups:
            self._ranks.append(int(groups["rank"]))
            self._said.setdefault("gpu", groups["gpu"])
            if "host" in groups:
                self._hosts[groups["host"]] = None
        else:
            self._said.update(groups)

    def run(self, world: int) -> NcclRun:
        """The run as far as its lines tell; `world` is what NCCL itself says of the communicator's size."""
        said = self._said
        program = said.get("concluded") or said.get("starting") or ""
        bounds, word = said.get("bounds"), said.get("word")
        return NcclRun(
            collective=program.removesuffix("_perf") or nccl_table.collective(self._rows),
            version=said.get("version", ""),
            started="starting" in said,
            concluded="concluded" in said,
            rows=tuple(cells.row for cells in self._rows),
            sizes=nccl_table.sizes(said) if "threads" in said else 0,
            out_of_bounds=int(bounds) if bounds is not None else None,
            out_of_bounds_ok=word == "OK" if word else None,
            average=nccl_table.number(said.get("average", "")),
            ranks=len(self._ranks),
            world=max((rank + 1 for rank in self._ranks), default=0) or world,
            hosts=tuple(self._hosts),
            gpu=said.get("gpu", ""),
        )
