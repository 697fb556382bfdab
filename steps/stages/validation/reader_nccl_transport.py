"""Parses a log of NCCL_DEBUG=INFO for the network used, its adapters, and GPUDirect RDMA (NVIDIA/nccl src/transport/net.cc)."""

import re
from collections import Counter
from typing import Any

from steps.contract.node_tests.nccl import MOST_SETS, AdapterSet, NcclTransport

_CHANNEL = re.compile(
    # the names of plug-ins may have blanks, as AWS Libfabric
    r"via NET/([\w-]+(?:[ .][\w.-]+){0,4}(?=/\d)|[\w-]+)(?:/\d+(?:\(\d+\))?)?(/GDRDMA(?:\(PCI\))?)?"
    r"(?:[^\n\[]*\[repeated (\d{1,9}) more times\])?"
)
_USING = re.compile(r"NET/IB : Using (.*)")
_HOST = re.compile(r"(?<![\w.-])([\w.-]{1,253}):\d{1,10}:\d{1,10} \[\d{1,5}\] NCCL INFO $")
_ADAPTER = re.compile(r"\[\d+\](\S+?):\d+/(IB|RoCE)\b")
_NETWORK = re.compile(r"Using network ([^\n\[]{0,60}[^\s\[])")
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for HCA \d+ '([^'\n]+)'")
_RINGS = re.compile(r"Connected all rings, use ring PXN \d+ GDR (\d)")
# no word boundary at the beginning: a pattern that begins with plain text is found ten times faster
_MNNVL = re.compile(r"MNNVL ([01])\b")
_CLIQUE = re.compile(r"cliqueSize (\d{1,9})")
_COMM = re.compile(r"comm 0x[0-9a-f]+ rank \d+ n[rR]anks (\d{1,9})(?: nNodes (\d{1,9}))?")
_VERSION = re.compile(r"NCCL version (\S+)")
_RARE = (
    "GPU Direct RDMA", "Using ", "Connected all rings", "MNNVL ", "cliqueSize ", "comm 0x", "No device found", "libibverbs",
    "NCCL version ",
)  # fmt: skip
"""Words without which a part of a log tells of channels alone."""

MOST_NAMES = 10_000
"""Most adapters and networks that are remembered."""
MOST_HEAD = 400
"""Most characters before the words of a line of NCCL: the host's name, process and thread."""


def read(text: str) -> NcclTransport:
    """Return the network transport that a log with NCCL_DEBUG=INFO shows; an empty NcclTransport if NCCL logged nothing."""
    search = TransportSearch()
    search.feed(text)
    return search.transport()


class TransportSearch:
    """Search for the network that NCCL used, in a log that comes in parts of whole lines."""

    def __init__(self) -> None:
        self._networks: dict[str, None] = {}
        self._kinds: dict[str, None] = {}
        self._adapters: dict[tuple[str, str], None] = {}
        self._sets: dict[tuple[tuple[str, str], ...], str] = {}
        self._states: dict[tuple[str, str], None] = {}
        self._channels = self._rdma = self._gdr = self._clique = self._ranks = self._nodes = 0
        self._rings: bool | None = None
        self._mnnvl: bool | None = None
        self._no_device = self._no_verbs = False
        self._version = ""

    def feed(self, text: str) -> None:
        """Read one part of the log."""
        # most lines of a log are channels, of few kinds
        for (kind, gdr, repeats), lines in Counter(_CHANNEL.findall(text)).items():
            count = lines * (1 + int(repeats or 0))
            self._kinds[kind] = None
            self._channels += count
            if kind.lower() != "socket":
                self._rdma += count
                self._gdr += count if gdr else 0
        if any(word in text for word in _RARE):
            self._feed_rare(text)

    def _feed_rare(self, text: str) -> None:
        """Read a part that has lines about something else than channels."""
        self._states.update(dict.fromkeys((name, state) for state, name in _GDR.findall(text)))
        for match in _USING.finditer(text):
            used = _ADAPTER.findall(match[1])
            self._adapters.update(dict.fromkeys(used))
            # a host with fewer adapters than the others does not show in the adapters of all hosts together
            if used and len(self._sets) < MOST_NAMES:
                self._sets.setdefault(tuple(sorted(dict.fromkeys(used))), _host_before(text, match.start()))
        self._networks.update(dict.fromkeys(_NETWORK.findall(text)))
        self._rings = _all_set(self._rings, _RINGS.findall(text))
        self._mnnvl = _all_set(self._mnnvl, _MNNVL.findall(text))
        self._clique = max([self._clique, *map(int, _CLIQUE.findall(text))])
        for ranks, nodes in _COMM.findall(text):
            self._ranks, self._nodes = max(self._ranks, int(ranks)), max(self._nodes, int(nodes or 0))
        self._no_device |= "NET/IB : No device found" in text
        self._no_verbs |= "Failed to open libibverbs" in text
        self._version = self._version or next(iter(_VERSION.findall(text)), "")
        for names in (self._networks, self._kinds, self._adapters, self._states):
            _bound(names)

    @property
    def ranks(self) -> int:
        """Return the size of the largest communicator that the log names; 0 if it names none."""
        return self._ranks

    def transport(self) -> NcclTransport:
        """Return the network of all parts read so far."""
        return NcclTransport(
            network=_network((*self._networks, *self._kinds), bool(self._states or self._adapters)),
            link=next((link for _, link in self._adapters), ""),
            hcas=tuple(name for name, _ in self._adapters) or tuple(dict.fromkeys(name for name, _ in self._states)),
            adapter_sets=tuple(
                AdapterSet(adapters=dict(used), host=host) for used, host in sorted(self._sets.items(), key=_fewest)[:MOST_SETS]
            ),
            no_device=self._no_device,
            channels=self._rdma,
            gdr_channels=self._gdr,
            socket_channels=self._channels - self._rdma,
            gdr_enabled=tuple(name for name, state in self._states if state == "Enabled"),
            gdr_disabled=tuple(name for name, state in self._states if state == "Disabled"),
            ring_gdr=self._rings,
            verbs_missing=self._no_verbs,
            mnnvl=self._mnnvl,
            clique_size=self._clique,
            ranks=self._ranks,
            nodes=self._nodes,
            version=self._version,
        )


def _fewest(entry: tuple[tuple[tuple[str, str], ...], str]) -> tuple[int, str]:
    """Return the order in which sets of adapters are kept: the smallest ones first, since they tell of missing adapters."""
    return len(entry[0]), entry[1]


def _host_before(text: str, place: int) -> str:
    """Return the host that NCCL names at the beginning of the line that goes on at a place; empty if it names none."""
    head = _HOST.search(text[max(0, place - MOST_HEAD) : place])
    return head[1] if head else ""


def _all_set(before: bool | None, flags: list[str]) -> bool | None:
    """Return True if all flags so far are 1; None if there were none."""
    return before is not False and all(flag == "1" for flag in flags) if flags else before


def _bound(names: dict[Any, None]) -> None:
    while len(names) > MOST_NAMES:
        names.popitem()


def _network(named: tuple[str, ...], verbs: bool) -> str:
    """Return the network that NCCL chose. A socket among several wins, because one rank on sockets slows down all."""
    socket = next((name for name in named if name.lower() == "socket"), "")
    return socket or (named[0] if named else "") or ("IB" if verbs else "")
