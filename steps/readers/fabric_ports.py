"""Parses `ibstat` (infiniband-diags) and `ibdev2netdev` with and without `-v` (NVIDIA's OFED scripts)."""

import re

from msgspec import Struct

MOST_ADAPTERS = 4096
_ADAPTER = re.compile(r"^CA '(?P<name>[\w.-]+)'[ \t]*$", re.MULTILINE)
_PORT = re.compile(r"^[ \t]+Port (?P<number>\d{1,3}):[ \t]*$", re.MULTILINE)
_FIELD = re.compile(r"^[ \t]+(?P<name>[A-Z][\w ]*): (?P<value>\S[^\n]*?)[ \t]*$", re.MULTILINE)
_MAPPING = re.compile(
    r"^(?:\S+[ \t]+)?(?P<device>mlx\d_\w+)[ \t]+(?:\((?P<model>[^)\n]*)\)[^\n]*?)?port[ \t]+(?P<port>\d{1,3})[ \t]+"
    r"(?:\((?P<state>\w+)\)[ \t]+)?==>[ \t]+(?P<netdev>\S+)[ \t]+\((?P<link>Up|Down)\)[ \t]*$",
    re.MULTILINE,
)
LINK_LAYERS = ("InfiniBand", "Ethernet")


class FabricPort(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port of an adapter as `ibstat` prints it; empty or None where the text lacks a field.

    `state` is `Active`, `Down`, `Initializing`, …, `physical` `LinkUp`, `Polling` (cable or peer), `Disabled`, … `rate` in Gbit/s.
    """

    adapter: str
    number: int
    state: str = ""
    physical: str = ""
    rate: float | None = None
    link_layer: str = ""
    firmware: str = ""
    adapter_type: str = ""
    lid: int | None = None

    @property
    def is_active(self) -> bool:
        """Return True if the port carries traffic."""
        return self.state == "Active" and self.physical == "LinkUp"

    @property
    def is_whole(self) -> bool:
        """Return True if the text has the port's last field, so that it was not cut."""
        return self.link_layer in LINK_LAYERS


class DeviceMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `ibdev2netdev`: RDMA device, network device, its link, and with `-v` the state of the RDMA port."""

    device: str
    port: int
    netdev: str
    is_up: bool
    state: str = ""


def read(text: str) -> tuple[FabricPort, ...]:
    """Return the ports in the output of `ibstat`, in its order. An adapter without a port in the text has port 0."""
    adapters = list(_ADAPTER.finditer(text))[:MOST_ADAPTERS]
    ends = [*(match.start() for match in adapters), len(text)][1:]
    ports: list[FabricPort] = []
    for adapter, end in zip(adapters, ends, strict=True):
        block = text[adapter.end() : end]
        numbers = list(_PORT.finditer(block))
        general = dict(_FIELD.findall(block[: numbers[0].start()] if numbers else block))
        limits = [*(match.start() for match in numbers), len(block)][1:]
        for port, limit in zip(numbers, limits, strict=True):
            ports.append(_port(adapter["name"], int(port["number"]), general, dict(_FIELD.findall(block[port.end() : limit]))))
        if not numbers:
            ports.append(_port(adapter["name"], 0, general, {}))
    return tuple(ports)


def _port(adapter: str, number: int, general: dict[str, str], fields: dict[str, str]) -> FabricPort:
    rate, lid = fields.get("Rate", "").split(" ")[0], fields.get("Base lid", "")
    return FabricPort(
        adapter=adapter,
        number=number,
        state=fields.get("State", ""),
        physical=fields.get("Physical state", ""),
        rate=float(rate) if re.fullmatch(r"\d{1,6}(?:\.\d+)?", rate) else None,
        link_layer=fields.get("Link layer", ""),
        firmware=general.get("Firmware version", ""),
        adapter_type=general.get("CA type", ""),
        lid=int(lid) if lid.isdecimal() and len(lid) < 8 else None,
    )


def mappings(text: str) -> tuple[DeviceMapping, ...]:
    """Return the lines of `ibdev2netdev`. A network device that is down says nothing about the RDMA port below it."""
    return tuple(
        DeviceMapping(
            device=match["device"],
            port=int(match["port"]),
            netdev=match["netdev"],
            is_up=match["link"] == "Up",
            state=match["state"] or "",
        )
        for match in list(_MAPPING.finditer(text))[:MOST_ADAPTERS]
    )
