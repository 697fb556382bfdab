"""Fields of the reports of the bandwidth check's pods, and the networks that Multus lists for these pods; pure.

Reports come from pods and are not trusted: whatever has another type than expected counts as absent.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.objects.checks import CheckPod
from steps.stages.network_operator.contract import NETWORK_STATUS, FunctionalExpectation

_MAPPED = re.compile(r"0000:0000:0000:0000:0000:ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})")
"""GID of a RoCE v2 port with an IPv4 address."""


class Attached(Struct, frozen=True):
    """A network of a pod in the annotation that Multus writes. `default` is True for the network that all pods have."""

    name: str = ""
    interface: str = ""
    ips: tuple[str, ...] = ()
    default: bool = False


def objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list in a report; none if it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def rails(pod: CheckPod) -> list[Mapping[str, Any]]:
    """Return the RDMA devices that a pod reports."""
    return objects(pod.report.get("rails"))


def wanted_rails(pod: CheckPod, want: FunctionalExpectation) -> list[Mapping[str, Any]]:
    """Return the devices of a pod that the plan names, or every device if it names none."""
    return [rail for rail in rails(pod) if not want.names or device(rail) in want.names]


def device(rail: Mapping[str, Any]) -> str:
    """Return the name of an RDMA device."""
    return str(rail.get("device", ""))


def number(rail: Mapping[str, Any]) -> str:
    """Return what is equal on both ends of a rail."""
    return str(rail.get("rail", device(rail)))


def gbit(rail: Mapping[str, Any]) -> float:
    """Return a measured bandwidth in Gbit/s; 0 if there is none."""
    value = rail.get("gbit", 0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def bytes_of(value: object) -> int | None:
    """Return an MTU as a report has it; None if it has none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def attachments(pod: CheckPod) -> tuple[Attached, ...] | None:
    """Return the networks that Multus lists for a pod; None without a readable annotation."""
    return attached_networks(pod.annotations.get(NETWORK_STATUS, ""))


def attached_networks(text: str) -> tuple[Attached, ...] | None:
    """Return the networks in an annotation that Multus wrote; None if it is empty or cannot be read."""
    try:
        return msgspec.json.decode(text.encode(), type=tuple[Attached, ...]) if text else None
    except UNREADABLE_JSON:
        return None


def secondary_addresses(networks: tuple[Attached, ...] | None) -> list[str]:
    """Return the addresses of secondary networks, an address of two interfaces twice."""
    places = dict.fromkeys((entry.interface, address) for entry in networks or () if not entry.default for address in entry.ips)
    return [address for _, address in places]


def gids(pod: CheckPod) -> list[str]:
    """Return rail and GID of each port that reports one. Rails may be networks of their own, which use the same addresses."""
    named = ((number(rail), rail.get("gid")) for rail in rails(pod))
    return list(dict.fromkeys(f"{gid} (rail {rail})" for rail, gid in named if gid))


def port_addresses(pod: CheckPod) -> list[str]:
    """Return the IPv4 addresses of a pod's ports, by which RoCE v2 knows them."""
    matches = (_MAPPED.fullmatch(str(rail.get("gid", ""))) for rail in rails(pod))
    return list(dict.fromkeys(".".join(str(int(part, 16)) for part in match.groups()) for match in matches if match))
