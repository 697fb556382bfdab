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
_ADDRESS = re.compile(r"[0-9a-f.:]+<\d+>")
_INFO = " NCCL INFO "


def shorten(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of one run, those that differ in the rank only once; their number follows at the end."""
    held, machine, more = "", "", 0
    notes = _Notes()
    for line in lines:
        if _is_rank(line):
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
        yield from notes.of(line)
    if held:
        yield _repeated(held, more)
    yield from notes.repeated()


def shorten_part(lines: Iterable[str], debug: Iterable[str] = (), hosts: int = 1) -> Iterator[str]:
    """Yield the lines of one run of a further program: of its ranks the first, and at the end a mark with ranks and hosts.

    `debug` are NCCL's debug lines of the first host, which come before `lines`; each of the `hosts` writes lines of these kinds.
    """
    ranks, machines, notes = 0, set[str](), _Notes(without_addresses=True)
    for line in debug:
        yield from notes.of(line)
    notes.multiply(hosts)
    for line in lines:
        if _is_rank(line):
            ranks += 1
            machines.add(_machine(line))
            if ranks > 1:
                continue
        yield from notes.of(line)
    yield from notes.repeated()
    yield f"@@ bringup ranks {ranks} hosts {len(machines)}"


class _Notes:
    """The debug lines of NCCL in one run, each kind of which is written once."""

    def __init__(self, *, without_addresses: bool = False) -> None:
        self._without_addresses = without_addresses
        self._first = dict[str, str]()
        self._times = dict[str, int]()

    def of(self, line: str) -> Iterator[str]:
        """Yield the line unless it is a debug line of a kind that was written before, or one that no reader needs."""
        if _INFO in line:
            if _OMITTED.search(line):
                return
            text = line.rpartition(_INFO)[2]
            key = _kind(_ADDRESS.sub("", text) if self._without_addresses else text)
            self._times[key] = self._times.get(key, -1) + 1
            if self._times[key]:
                return
            self._first[key] = line
        yield line

    def multiply(self, hosts: int) -> None:
        """Count all lines as often as there are hosts that write lines of the same kinds."""
        self._times = {key: (more + 1) * hosts - 1 for key, more in self._times.items()}

    def repeated(self) -> Iterator[str]:
        """Yield the first line of each kind that came again, with the number of the others."""
        yield from (_repeated(self._first[key], count - 1) for key, count in self._times.items() if count)


def _is_rank(line: str) -> bool:
    return "Rank " in line and _RANK.search(line) is not None


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
