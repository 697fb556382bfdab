"""Captured output as text that readers can use: without colours, carriage returns, and time stamps before every line."""

import re
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
    )
)
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
        self._prefixes = [prefix for prefix in _PREFIXES if _is_everywhere(prefix, plain)][:1]

    def clean(self, text: str) -> str:
        """Return a part of the text, which consists of whole lines."""
        text = _plain(text)
        for prefix in self._prefixes:
            text = prefix.sub("", text)
        return text


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


def captured(raw: str) -> CapturedText:
    """Return the text of a whole captured output."""
    text = TextCleaner(raw).clean(raw)
    return CapturedText(text, ends_with_line=text.endswith("\n"))


def with_bounded_lines(text: str) -> str:
    """Return a text whose lines are cut at WIDEST characters: no tool prints longer ones, and rules search in each line."""
    if _WIDE.search(text) is None:
        return text
    return "\n".join(line[:WIDEST] for line in text.split("\n"))


WIDEST = 4096
_WIDE = re.compile(rf"[^\n]{{{WIDEST + 1}}}")


def _plain(text: str) -> str:
    """Return a text without byte-order mark, colours and carriage returns."""
    if text.startswith("\ufeff"):
        text = text[1:]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _is_everywhere(prefix: re.Pattern[str], head: str) -> bool:
    lines = [line for line in head.splitlines() if line.strip()]
    return bool(lines) and sum(prefix.match(line) is not None for line in lines) >= _SHARE * len(lines)
