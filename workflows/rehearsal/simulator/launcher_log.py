"""Shortens the output of mpirun as the check `nccl-inter` does, before it reaches the log of the simulated launcher.

The awk program in `workflows/stages/scripts/nccl_inter.sh` does it on a real cluster; a test compares both.
"""

import re
from collections.abc import Iterable, Iterator

_RANK = re.compile(r"#? *Rank +\d+ .* device +\d+ \[")
_MACHINE = re.compile(r"^(?:.* on +)?(.*?) device.*\](.*)$")
_OMITTED = re.compile(
    r"NCCL INFO (?:Channel [\d/]+ : (?:.* via (?:P2P|SHM)|[\d ]+$)|Trees|Ring \d+ :|Setting affinity|NCCL_[A-Z_]+ set by)"
)
_POINTER = re.compile(r"0x[0-9a-f]+")
_OWN_NUMBERS = re.compile(r"(?:^| )(?:[Rr]ank|localRank|cliqueRank|cudaDev|nvmlDev|busId) [0-9a-f]+")
_TELLING = re.compile("Using|GPU Direct RDMA|Connected|version|MNNVL")
_DIGITS = re.compile(r"\d+")
_INFO = " NCCL INFO "


def shorten(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of one run, those that differ in the rank only once; their number follows at the end."""
    held, machine, more = "", "", 0
    first, times = dict[str, str](), dict[str, int]()
    for line in lines:
        if _RANK.search(line):
            name = _machine(line)
            if held and name == machine:
                more += 1
            elif held:
                yield _repeated(held, more)
                more = 0
            held, machine = line, name
            continue
        if held:
            yield _repeated(held, more)
            held, more = "", 0
        if _INFO in line:
            if _OMITTED.search(line):
                continue
            key = _kind(line.rpartition(_INFO)[2])
            times[key] = times.get(key, -1) + 1
            if times[key]:
                continue
            first[key] = line
        yield line
    if held:
        yield _repeated(held, more)
    yield from (_repeated(first[key], count - 1) for key, count in times.items() if count)


def _repeated(line: str, more: int) -> str:
    return f"{line} [repeated {more} more times]" if more else line


def _machine(line: str) -> str:
    match = _MACHINE.match(line)
    return "".join(match.groups()) if match else line


def _kind(text: str) -> str:
    """Return the text of an INFO line without the numbers by which ranks differ and which no reader needs."""
    if text.startswith("Channel ") and " via " in text:
        return text.rpartition(" via ")[2]
    if "comm 0x" in text:
        return _OWN_NUMBERS.sub("", _POINTER.sub("", text))
    return text if _TELLING.search(text) else _DIGITS.sub("", text)
