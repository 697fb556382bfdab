"""Captured output as text that readers can use: without colours, carriage returns, and time stamps before every line."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

HEAD = 256 << 10
"""Characters of the beginning in which prefixes are looked for and a log is recognised."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_ISO = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
_PREFIXES = tuple(
    re.compile(rf"^{words}", re.MULTILINE)
    for words in (
        # the container runtime's log files, kubectl logs --prefix --timestamps, docker compose
        rf"{_ISO} std(?:out|err) [FP] ",
        rf"\[pod/[\w./-]{{1,300}}\] (?:{_ISO} )?",
        rf"{_ISO}[ \t]",
        r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?[ \t](?!slurm(?:d|ctld|dbd|stepd)?:)",
        # a unit of rke2, a kernel or a Slurm daemon is a part of what its readers look for
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ (?!rke2|k3s|kernel|systemd|slurm|sh\[)[\w./@-]+(?:\[\d+\])?: ",
        # what journalctl -o short-iso leaves after the time
        r"[\w.-]+ (?!rke2|k3s|kernel|systemd|slurm|sh\[)[\w./@-]+\[\d+\]: ",
        # mpirun and prterun with --tag-output and --timestamp-output, srun --label with padded numbers, mpiexec -l, a quoted mail
        r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?(?:\[[\w.@-]{0,100}\d,\d+\])?<std(?:out|err)>:? ?",
        # labels before single words are those of `srun --label hostname`, which its rule reads
        r" *\d{1,6}: (?=[ \t#]|\S+[ \t])",
        r"\[\d{1,6}\] ",
        r"> ?",
    )
)
_HOST = re.compile(r"^(?=[\w.-]*[A-Za-z])(?=[\w.-]*\d)(?P<host>[\w][\w.-]{0,99})(?P<mark>: | +\| )", re.MULTILINE)
"""Prefix of pdsh and of docker compose: a host or a container, whose name has a number."""
_MARKED = re.compile(
    r"^(?P<prefix>[^\n#]{1,100}?)#[ \t]+(?:nThread \d|size[ \t]+count[ \t]|Rank[ \t]+\d|Out of bounds|Avg bus|OSU |Size[ \t])",
    re.MULTILINE,
)
"""Lines of nccl-tests and OSU that begin with `#` in all releases: what stands before is a prefix."""
MOST_PREFIXES = 3
"""Most prefixes of a line, as those of a journal before those of mpirun."""
MOST_HOSTS = 4096
_BLANKS = r"[ \t]+"
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_TELLING = re.compile(r"NCCL WARN |UCX +ERROR |\b(?:error|fatal): ")
"""Words of lines that report an error. Their time stays: it tells which of several processes failed first."""
_SHARE = 0.6
"""Share of the lines that must have a prefix before it is removed: lines of other programs may stand between."""


class CapturedText(Struct, frozen=True):
    """The text of a captured output. `ends_with_line` is False if its last line has no end: it may be cut in the middle."""

    text: str
    ends_with_line: bool


class TextCleaner:
    """Removes what terminals and log collectors add, from a text that comes in parts; the first part decides about prefixes."""

    def __init__(self, head: str) -> None:
        plain = _plain(head[:HEAD])
        self._prefixes: list[re.Pattern[str]] = []
        for _ in range(MOST_PREFIXES):
            prefix = _prefix(plain)
            if prefix is None:
                break
            self._prefixes.append(prefix)
            plain = prefix.sub("", plain)

    def clean(self, text: str) -> str:
        """Return a part of the text, which consists of whole lines; the last line of an output may lack its end."""
        plain = _plain(text)
        cleaned = plain
        for prefix in self._prefixes:
            cleaned = prefix.sub(_kept if _TELLING.search(cleaned) else "", cleaned)
        # an output that is cut behind a prefix would look whole without that prefix
        if cleaned.endswith("\n") or not cleaned:
            cleaned += plain[plain.rfind("\n") + 1 :]
        return cleaned


def whole_lines(parts: Iterable[str]) -> Iterator[str]:
    """Yield a text again in parts of whole lines; the last part may lack its line end."""
    rest = ""
    for part in parts:
        text = rest + part
        end = text.rfind("\n") + 1
        # a line of megabytes is passed on in pieces: no tool prints one, and it must not fill the memory
        if not end and len(text) > LONGEST_LINE:
            end = len(text)
        if end:
            yield text[:end]
        rest = text[end:]
    if rest:
        yield rest


LONGEST_LINE = 4 << 20
"""Longest line in characters that is kept whole."""


def by_host(text: str) -> dict[str, str]:
    """Return the lines of each host of an output of pdsh over several; empty if it is none."""
    plain = _plain(text)
    if not _names_hosts(plain[:HEAD]):
        return {}
    lines: dict[str, list[str]] = {}
    for line in plain.splitlines(keepends=True):
        if (match := _HOST.match(line)) and (match["host"] in lines or len(lines) < MOST_HOSTS):
            lines.setdefault(match["host"], []).append(line[match.end() :])
    return {host: "".join(own) for host, own in lines.items()} if len(lines) > 1 else {}


def captured(raw: str) -> CapturedText:
    """Return the text of a whole captured output."""
    text = TextCleaner(raw).clean(raw)
    return CapturedText(text, ends_with_line=text.endswith("\n"))


def with_bounded_lines(text: str) -> str:
    """Return a text whose lines are cut at WIDEST characters: no tool prints longer ones, and rules search in each line."""
    lines = text.split("\n")
    return text if max(map(len, lines)) <= WIDEST else "\n".join(line[:WIDEST] for line in lines)


WIDEST = 4096


def _kept(prefix: re.Match[str]) -> str:
    """Return a prefix with a time if its line reports an error; else an empty text."""
    if not _CLOCK.search(prefix[0]):
        return ""
    end = prefix.string.find("\n", prefix.end())
    return prefix[0] if _TELLING.search(prefix.string, prefix.end(), end if end >= 0 else len(prefix.string)) else ""


def _plain(text: str) -> str:
    """Return a text without byte-order mark, colours and carriage returns."""
    if text.startswith("\ufeff"):
        text = text[1:]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _prefix(head: str) -> re.Pattern[str] | None:
    """Return a prefix that most lines have; None if there is none."""
    known = next((prefix for prefix in _PREFIXES if _is_everywhere(prefix, head)), None)
    if known is not None:
        return known
    if _names_hosts(head):
        return _HOST
    marked = _MARKED.search(head)
    if marked is None or not marked["prefix"].strip():
        return None
    # numbers of ranks, times and processes differ from line to line
    words = (re.sub(r"\d+", r"\\d+", re.escape(word)) for word in marked["prefix"].split())
    learned = re.compile(rf"^[ \t]*{_BLANKS.join(words)}[ \t]?", re.MULTILINE)
    return learned if _is_everywhere(learned, head) else None


def _names_hosts(head: str) -> bool:
    """Return True if most lines begin with one of a few names of hosts: the keys of a document differ from line to line."""
    hosts = Counter(match["host"] for match in _HOST.finditer(head))
    return bool(hosts) and all(number > 1 for number in hosts.values()) and _is_everywhere(_HOST, head)


def _is_everywhere(prefix: re.Pattern[str], head: str) -> bool:
    lines = [line for line in head.splitlines() if line.strip()]
    return bool(lines) and sum(prefix.match(line) is not None for line in lines) >= _SHARE * len(lines)
