"""Parses logs of nccl-tests, text and JSON, of any release; pure functions that never raise on tool output.

The table changed over the years: `root` was added, `error` became `#wrong`, and `-I` adds four columns a side. So columns are found
by the header if there is one, otherwise by their number. Lines may carry tags of mpirun or srun. The check over all nodes writes
lines that differ in the rank only once, with `[repeated N more times]` at the end (`nccl_inter.sh`). Format: NVIDIA/nccl-tests
src/util.cu.
"""

import re

from steps.contract.node_tests.nccl import NcclLog, NcclRun
from steps.stages.shared.reader_errors import short
from steps.stages.validation import reader_nccl_errors, reader_nccl_json, reader_nccl_table, reader_nccl_transport

MAX_TEXT = 64 << 20
"""Most bytes of one log that are parsed; a log of 1,000 nodes has 20 MB."""
LAST_CHARACTERS = 20_000
"""Characters at the end of a log in which its last words are looked for."""

_TAG = r"(?:\[[\w.@-]{0,100}\d,\d+\]<std(?:out|err)>:? ?| {0,6}\d{1,7}: )?"
_LINE = re.compile(
    rf"^{_TAG}[ \t]*(?:"
    r"(?P<row>\d+[ \t]+\d+[ \t]+[a-z]\w*[ \t]+[a-z]\w*[ \t].*)"
    r"|#?[ \t]*(?P<head>size[ \t]+count[ \t]+type[ \t].*)"
    r"|#?[ \t]*Rank[ \t]+(?P<rank>\d{1,9})[ \t].*?Pid[ \t]+\d+[ \t]+(?:on[ \t]+(?P<host>\S+)[ \t]+)?"
    r"device[ \t]+\d+[ \t]+\[[^\]\n]*\][ \t]+(?P<gpu>.*?\S)(?:[ \t]+\[repeated (?P<more>\d{1,9}) more times\])?[ \t]*$"
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
MOST_ROWS = 100_000
"""Most rows and runs of one log that are kept, far more than any test prints."""
_CHATTER = " NCCL INFO "
_WORRYING = ("rror", "ailed", "ailure", "No space", "refused", "timed out", "imeout", "unreachable", "fallen", "memlock", "Xid")
_ROW_WIDTH = 60
"""Fewest characters of a table's row; a row can end in a line of NCCL that another process wrote into it."""


def read(text: str) -> NcclLog:
    """Return the runs, the network and the errors that an nccl-tests log shows."""
    text = text[:MAX_TEXT]
    if text.lstrip()[:1] == "{":
        written = reader_nccl_json.read(text)
        return NcclLog(runs=(written,) if written else ())
    reader = NcclLogReader()
    reader.feed(text)
    return reader.log()


def runs(text: str) -> tuple[NcclRun, ...]:
    """Return the runs of nccl-tests in a log, in order; empty if no line belongs to a run."""
    reader = NcclLogReader()
    reader.feed(text)
    return reader.log().runs


class NcclLogReader:
    """Reader of a log in parts of whole lines, whose memory does not grow with the log: of NCCL's own lines it keeps counts."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._rows = 0
        self._transport = reader_nccl_transport.TransportSearch()
        self._errors = reader_nccl_errors.NcclErrorSearch()
        self._end = ""

    def feed(self, text: str) -> None:
        """Read one part of the log."""
        self._transport.feed(text)
        self._end = (self._end + text)[-LAST_CHARACTERS:]
        quiet = "\n".join(line for line in text.split("\n") if not -1 < line.find(_CHATTER) < _ROW_WIDTH)
        # NCCL says what goes wrong at level WARN; its other lines are most of a log and are searched only if they hold such a word
        self._errors.learn_hosts(text)
        self._errors.feed(text if any(word in text for word in _WORRYING) else quiet)
        for match in _LINE.finditer(quiet):
            if self._rows < MOST_ROWS:
                self._take(match)

    def log(self) -> NcclLog:
        """Return the log of all parts read so far."""
        test_runs = tuple(draft.run(self._transport.ranks) for draft in self._drafts if draft.started_here)
        return NcclLog(
            runs=test_runs,
            transport=self._transport.transport(),
            errors=self._errors.errors(),
            last="" if test_runs and test_runs[-1].ended else _last_words(self._end),
        )

    def _take(self, match: re.Match[str]) -> None:
        self._rows += 1
        if not self._drafts or self._drafts[-1].over(match.lastgroup or ""):
            self._drafts.append(_Draft(self._drafts[-1].columns if self._drafts else ()))
        self._drafts[-1].take(match)


def _last_words(text: str) -> str:
    """Return the last line that is no chatter of NCCL, comment of nccl-tests or frame; empty if the last lines have none."""
    lines = (line.strip() for line in reversed(text[-LAST_CHARACTERS:].splitlines()))
    telling = (line for line in lines if line.strip("-=* ") and _CHATTER not in line and not line.startswith("#"))
    return next(map(short, telling), "")


class _Draft:
    """Builder of one run of nccl-tests, which takes the run's lines as they are read."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._rows: list[reader_nccl_table.Cells] = []
        self._ranks = 0
        self._world = 0
        self._hosts: dict[str, None] = {}
        self._said: dict[str, str] = {}

    @property
    def started_here(self) -> bool:
        """Return True if any line of this run, apart from header lines, has been read."""
        return bool(self._rows or self._ranks or self._said)

    def over(self, group: str) -> bool:
        """Return True if a line of this group belongs to the next run, because it follows the footer or begins a run again."""
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
        """Add one matched line to the run."""
        groups = {key: value for key, value in match.groupdict().items() if value is not None}
        if "row" in groups:
            row = reader_nccl_table.row(groups["row"].split(), self.columns)
            self._rows += [row] if row else []
        elif "head" in groups:
            self.columns = reader_nccl_table.columns(groups["head"])
        elif "rank" in groups:
            self._ranks += 1 + int(groups.get("more", "0"))
            self._world = max(self._world, int(groups["rank"]) + 1)
            self._said.setdefault("gpu", groups["gpu"])
            if "host" in groups:
                self._hosts[groups["host"]] = None
        else:
            self._said.update(groups)

    def run(self, world: int) -> NcclRun:
        """Return the run from its lines; `world` is the communicator's size as NCCL reports it."""
        fields = self._said
        program = fields.get("concluded") or fields.get("starting") or ""
        bounds, word = fields.get("bounds"), fields.get("word")
        return NcclRun(
            collective=program.removesuffix("_perf") or reader_nccl_table.collective(self._rows),
            version=fields.get("version", ""),
            started="starting" in fields,
            concluded="concluded" in fields,
            rows=tuple(cells.row for cells in self._rows),
            sizes=reader_nccl_table.sizes(fields) if "threads" in fields else 0,
            out_of_bounds=int(bounds) if bounds is not None else None,
            out_of_bounds_ok=word == "OK" if word else None,
            average=reader_nccl_table.number(fields.get("average", "")),
            ranks=self._ranks,
            world=self._world or world,
            hosts=tuple(self._hosts),
            gpu=fields.get("gpu", ""),
        )
