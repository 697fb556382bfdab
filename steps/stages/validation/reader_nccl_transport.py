"""Parses a log of NCCL_DEBUG=INFO for the network used, its adapters, and GPUDirect RDMA (NVIDIA/nccl src/transport/net.cc)."""

import re

from steps.contract.nccl import NcclTransport

_CHANNEL = re.compile(r"via NET/([\w-]+)(?:/(\d+)(?:\(\d+\))?)?(/GDRDMA(?:\(PCI\))?)?")
_USING = re.compile(r"NET/IB : Using (.*)")
_ADAPTER = re.compile(r"\[\d+\](\S+?):\d+/(IB|RoCE)\b")
_NETWORK = re.compile(r"Using network (\S+)")
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for HCA \d+ '([^'\n]+)'")
_RINGS = re.compile(r"Connected all rings, use ring PXN \d+ GDR (\d)")
_MNNVL = re.compile(r"\bMNNVL ([01])\b")
_CLIQUE = re.compile(r"\bcliqueSize (\d{1,9})")
_COMM = re.compile(r"\bcomm 0x[0-9a-f]+ rank \d+ n[rR]anks (\d{1,9})(?: nNodes (\d{1,9}))?")
_VERSION = re.compile(r"NCCL version (\S+)")


def read(text: str) -> NcclTransport:
    """Return the network transport that a log with NCCL_DEBUG=INFO shows; an empty NcclTransport if NCCL logged nothing."""
    channels = _CHANNEL.findall(text)
    kinds = [kind for kind, _, _ in channels]
    rdma = [gdr for kind, _, gdr in channels if kind.lower() != "socket"]
    states = dict.fromkeys((name, state) for state, name in _GDR.findall(text))
    adapters = dict.fromkeys(pair for line in _USING.findall(text) for pair in _ADAPTER.findall(line))
    comms = _COMM.findall(text)
    rings = _RINGS.findall(text)
    mnnvl = _MNNVL.findall(text)
    return NcclTransport(
        network=_network(text, kinds, bool(states or adapters)),
        link=next((link for _, link in adapters), ""),
        hcas=tuple(name for name, _ in adapters) or tuple(dict.fromkeys(name for name, _ in states)),
        no_device="NET/IB : No device found" in text,
        channels=len(rdma),
        gdr_channels=sum(bool(gdr) for gdr in rdma),
        socket_channels=len(channels) - len(rdma),
        gdr_enabled=tuple(name for name, state in states if state == "Enabled"),
        gdr_disabled=tuple(name for name, state in states if state == "Disabled"),
        ring_gdr=all(flag == "1" for flag in rings) if rings else None,
        verbs_missing="Failed to open libibverbs" in text,
        mnnvl=all(flag == "1" for flag in mnnvl) if mnnvl else None,
        clique_size=max((int(size) for size in _CLIQUE.findall(text)), default=0),
        ranks=max((int(ranks) for ranks, _ in comms), default=0),
        nodes=max((int(nodes) for _, nodes in comms if nodes), default=0),
        version=next(iter(_VERSION.findall(text)), ""),
    )


def _network(text: str, kinds: list[str], verbs: bool) -> str:
    """Return the network that NCCL chose. A socket among several wins, because one rank on sockets slows down all."""
    chosen = [*dict.fromkeys(_NETWORK.findall(text)), *dict.fromkeys(kinds)]
    socket = next((name for name in chosen if name.lower() == "socket"), "")
    return socket or (chosen[0] if chosen else "") or ("IB" if verbs else "")
