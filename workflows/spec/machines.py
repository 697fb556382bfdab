"""Expand host groups into one frozen record for each machine, with its address and topology: the fleet of a plan."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from workflows.spec.sections.hosts import PLACEHOLDER, HostGroup, HostOverride, Topology

_DIGITS = re.compile(r"\d+")
_PLAIN = HostOverride()


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the fleet. `address` is the one that SSH dials; `rack`, `leaf` and `scalable_unit` are empty without a topology.

    `ssh_user`, `ssh_port`, `ssh_jump` and `ssh_http_proxy` are empty or 0 where the settings of section `ssh` apply. `python` is
    empty for the default interpreter. `product` is the GPU product that the group names; empty for that of the spec.
    """

    name: str
    group: str
    role: Literal["server", "agent"]
    address: str
    gpu: bool
    gpus: int
    rack: str
    leaf: str
    scalable_unit: str
    labels: Mapping[str, str]
    taints: tuple[str, ...]
    product: str = ""
    ssh_user: str = ""
    ssh_port: int = 0
    ssh_jump: str = ""
    ssh_http_proxy: str = ""
    python: str = ""


def expand_groups(hosts: Mapping[str, HostGroup], gpus_per_node: int) -> tuple[Machine, ...]:
    """Return every machine of the host groups, in the order of groups and ranges."""
    return tuple(machine for name, group in hosts.items() for machine in _members(name, group, gpus_per_node))


def _members(group_name: str, group: HostGroup, gpus_per_node: int) -> Iterator[Machine]:
    names = group.names()
    places = group.topology
    placed = places != Topology()
    own = group.accelerator
    gpus = (own and own.per_node) or gpus_per_node if group.gpu else 0
    for index, (name, address) in enumerate(zip(names, _addresses(group, names), strict=True)):
        override = group.overrides.get(name, _PLAIN)
        yield Machine(
            name=name,
            group=group_name,
            role=group.role,
            address=override.address or address,
            gpu=group.gpu,
            gpus=gpus if override.gpus is None else override.gpus,
            rack=override.rack or (fill(places.rack, name, index) if placed else ""),
            leaf=override.leaf or (fill(places.leaf, name, index) if placed else ""),
            scalable_unit=override.scalable_unit or (fill(places.scalable_unit, name, index) if placed else ""),
            labels={**group.labels, **override.labels} if override.labels else group.labels,
            taints=group.taints,
            product=(own and own.product) or "",
            ssh_user=override.ssh_user or "",
            ssh_port=override.ssh_port or 0,
            ssh_jump=group.jump_host or "",
            ssh_http_proxy=group.http_proxy or "",
            python=override.python or group.python or "",
        )


def _addresses(group: HostGroup, names: tuple[str, ...]) -> Iterator[str]:
    ways = group.addresses
    if ways.map is not None:
        return (ways.map[name] for name in names)
    if ways.start is not None:
        first = ipaddress.ip_address(ways.start)
        return (str(first + offset) for offset in range(len(names)))
    if ways.pattern is not None:
        pattern = ways.pattern
        return (fill(pattern, name, index, padded=False) for index, name in enumerate(names))
    if ways.dns_suffix is not None:
        return (f"{name}.{ways.dns_suffix}" for name in names)
    return iter(names)


def fill(pattern: str | None, name: str, index: int, *, padded: bool = True) -> str:
    """Return `pattern` filled for one host (`index` from 0 in its group); a number that the name does not have becomes 0.

    With `padded`, `{1}` is printed as in the name (`rack01`); without, as a plain number, which addresses need.
    """
    if pattern is None:
        return ""
    numbers = _DIGITS.findall(name)

    def one(match: re.Match[str]) -> str:
        word, block = match[1], match[2]
        if block:
            return str(index // int(block) + 1)
        if word == "host":
            return name
        if word == "index":
            return str(index)
        text = numbers[int(word) - 1] if int(word) <= len(numbers) else "0"
        return text if padded else str(int(text))

    return PLACEHOLDER.sub(one, pattern)
