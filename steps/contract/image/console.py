"""Reads a serial console: how far a boot came, and what ended it, as far as the text says so. Pure.

What a loader says counts until a kernel starts, what a kernel and its initrd say from then on: an address that came at the second
try is no cause.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from steps.contract import plain
from steps.contract.image.console_signs import KERNEL_LINE, KERNEL_SIGNS, LIVES_IN_ORDER, LOADER_SIGNS, Life, Sign

LAST_LINES: Final = 40
"""Lines of a console that are kept with a boot."""
LONGEST_LINE: Final = 200

SIGNS: Final[Mapping[str, Sign]] = {sign.name: sign for sign in (*LOADER_SIGNS, *KERNEL_SIGNS)}
"""Causes by name."""
LIVES: Final[Mapping[str, Life]] = {life.name: life for life in LIVES_IN_ORDER}
"""How far a boot came, by name."""

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>78cM])")


class Reading(Struct, frozen=True, kw_only=True):
    """What a console says: a cause or the last sign of life by name, whether nothing more will come, and the release of the kernel
    that started."""

    name: str = ""
    over: bool = False
    kernel: str = ""


def plain_text(text: str) -> str:
    """A console without what moves a terminal's cursor."""
    return _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def last_lines(text: str) -> tuple[str, ...]:
    """Its last lines that say anything, each bounded."""
    lines = [line for line in plain_text(text).split("\n") if line.strip()]
    return tuple(plain.line(line)[:LONGEST_LINE] for line in lines[-LAST_LINES:])


def read(text: str) -> Reading:
    """What a console says so far."""
    clean = plain_text(text)
    started = list(KERNEL_LINE.finditer(clean))
    # a firmware's screen ends lines at 80 signs, wherever that is
    signs, said = (KERNEL_SIGNS, clean[started[-1].start() :]) if started else (LOADER_SIGNS, clean.replace("\n", ""))
    kernel = started[-1].group(1) if started else ""
    causes = [sign for sign in signs if _holds(sign, said)]
    over = any(0 < sign.times <= _count(sign, said) for sign in causes)
    if causes:
        return Reading(name=causes[0].name, over=over, kernel=kernel)
    life = next((life for life in reversed(LIVES_IN_ORDER) if re.search(life.pattern, clean)), None)
    return Reading(name=life.name if life else "", kernel=kernel)


def _holds(sign: Sign, text: str) -> bool:
    """Whether it was seen, and the machine did not get over it: one try that failed is no cause where the next went on."""
    last = max((found.end() for found in re.finditer(sign.pattern, text)), default=None)
    if last is None:
        return False
    return sign.times <= _count(sign, text) or not any(re.search(life.pattern, text[last:]) for life in LIVES_IN_ORDER)


def _count(sign: Sign, text: str) -> int:
    return sum(1 for _ in re.finditer(sign.pattern, text))
