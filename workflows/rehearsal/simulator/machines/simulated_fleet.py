"""The simulated machines: the hosts of a run, and the hardware and image of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.fleet import Host

HardwareValue = str | int | bool


class HardwareProfile(Struct, frozen=True, kw_only=True):
    """The hardware of a machine, and the software of its image.

    `product` is the label value of GPU feature discovery. GPU memory is in MiB, machine memory in GiB, and `nic_gbit` is the
    line rate of one port in Gbit/s. `nic_link` is the port's link layer in NCCL's words, and `link_mtu` the MTU of its link, as
    stage os_prep leaves it. `pci_nic` is a PCI device id. With `driver_on_host`, `driver` is installed before any operator runs.
    `vbios` and `nic_firmware` are firmware versions of the GPUs and NICs.
    """

    product: str
    family: str
    machine: str
    gpu_memory_mib: int
    compute: str
    mig_capable: bool
    nics: int
    nic_gbit: int
    nic_link: str = "IB"
    link_mtu: int = 1500
    pci_nic: str = "1021"
    pci_gpu: str = ""
    nic_firmware: str = "28.43.2026"
    vbios: str = "96.00.74.00.0D"
    driver: str = "580.126.20"
    driver_flavour: str = "open"
    driver_on_host: bool = False
    cuda: str = "13.0"
    kernel: str = "6.8.0-60-generic"
    os_id: str = "ubuntu"
    os_version: str = "24.04"
    os_image: str = "Ubuntu 24.04.3 LTS"
    cpus: int = 192
    memory_gib: int = 2048
    nvswitches: int = 4
    pods: int = 110


_HGX = {
    "a100": HardwareProfile(
        product="NVIDIA-A100-SXM4-80GB", family="ampere", machine="DGXA100", gpu_memory_mib=81920, compute="8.0", mig_capable=True,
        pci_gpu="20b2", nics=8, nic_gbit=200, pci_nic="101b", cpus=128, nvswitches=6, vbios="92.00.36.00.02",
    ),
    "h100": HardwareProfile(
        product="NVIDIA-H100-80GB-HBM3", family="hopper", machine="DGXH100", gpu_memory_mib=81559, compute="9.0", mig_capable=True,
        pci_gpu="2330", nics=8, nic_gbit=400,
    ),
    "h200": HardwareProfile(
        product="NVIDIA-H200", family="hopper", machine="DGXH200", gpu_memory_mib=143771, compute="9.0", mig_capable=True,
        pci_gpu="2335", nics=8, nic_gbit=400,
    ),
    "b200": HardwareProfile(
        product="NVIDIA-B200", family="blackwell", machine="DGXB200", gpu_memory_mib=183359, compute="10.0", mig_capable=True,
        pci_gpu="2901", nics=8, nic_gbit=400, nvswitches=2, cpus=224,
    ),
    "l40s": HardwareProfile(
        product="NVIDIA-L40S", family="ada-lovelace", machine="PowerEdge-R760xa", gpu_memory_mib=46068, compute="8.9",
        pci_gpu="26b9", mig_capable=False, nics=2, nic_gbit=200, cpus=128, memory_gib=1024, nvswitches=0,
    ),
}  # fmt: skip
_HGX |= {
    "a100-80gb": _HGX["a100"],
    "a100-40gb": msgspec.structs.replace(_HGX["a100"], product="NVIDIA-A100-SXM4-40GB", pci_gpu="20b0", gpu_memory_mib=40960),
    "h100-nvl": msgspec.structs.replace(
        _HGX["h100"], product="NVIDIA-H100-NVL", pci_gpu="2321", gpu_memory_mib=95830, nvswitches=0
    ),
    "gb200": msgspec.structs.replace(_HGX["b200"], product="NVIDIA-GB200", pci_gpu="2941", machine="GB200NVL72"),
    "b300": msgspec.structs.replace(
        _HGX["b200"], product="NVIDIA-B300-SXM6-AC", pci_gpu="3182", machine="DGXB300", gpu_memory_mib=275040
    ),
}
_PLAIN = HardwareProfile(
    product="", family="", machine="PowerEdge-R660", gpu_memory_mib=0, compute="", mig_capable=False,
    nics=1, nic_gbit=100, cpus=64, memory_gib=512, driver="", cuda="", nvswitches=0,
)  # fmt: skip


class SiteArgoCd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An Argo CD that the site runs already: its namespace and its version (`3.4` or `3.4.4`)."""

    namespace: str
    version: str


class FleetFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a fleet file, which describes the machines of a run to the simulator.

    A host's variable `accelerator` wins over the common `accelerator`. `built` overrides fields of HardwareProfile. `argo_cd` is
    the Argo CD that the site runs, if any.
    """

    hosts: tuple[Host, ...]
    accelerator: str = "h200"
    built: dict[str, HardwareValue] = {}
    argo_cd: SiteArgoCd | None = None


_OF_GPU_NODES = frozenset({"nics", "nic_gbit", "nic_link", "link_mtu", "pci_nic", "driver", "driver_on_host"})


def _with(profile: HardwareProfile, written: Mapping[str, HardwareValue]) -> HardwareProfile:
    """Return a hardware profile with some fields replaced. Raises msgspec.ValidationError for a value of the wrong type."""
    return msgspec.convert(msgspec.to_builtins(profile) | dict(written), HardwareProfile)


class SimulatedFleet:
    """All simulated hosts, in the order of the plan, with their hardware."""

    argo_cd: SiteArgoCd | None = None
    """The Argo CD that the site runs already and that is there from the start; None if there is none."""

    def __init__(self, hosts: Iterable[Host], accelerator: str = "h200", built: Mapping[str, HardwareValue] | None = None) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._names = list(self._hosts)
        self._numbers = {name: number for number, name in enumerate(self._hosts)}
        self._accelerator = accelerator
        written = dict(built or {})
        plain = {key: value for key, value in written.items() if key not in _OF_GPU_NODES}
        self._profiles = {name: _with(profile, written) for name, profile in _HGX.items()} | {"": _with(_PLAIN, plain)}

    @classmethod
    def from_file(cls, path: Path) -> SimulatedFleet:
        """Return the fleet that a file describes: a FleetFile as JSON, or a plain list of hosts."""
        data = path.read_bytes()
        if data.lstrip().startswith(b"["):
            return cls(msgspec.json.decode(data, type=tuple[Host, ...]))
        document = msgspec.json.decode(data, type=FleetFile)
        fleet = cls(document.hosts, document.accelerator, document.built)
        fleet.argo_cd = document.argo_cd
        return fleet

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def __len__(self) -> int:
        return len(self._hosts)

    def __contains__(self, name: str) -> bool:
        return name in self._hosts

    def host(self, name: str) -> Host:
        """Return the host with this name. Raises KeyError if there is none."""
        return self._hosts[name]

    def hardware(self, name: str) -> HardwareProfile:
        """Return the hardware of the host with this name. Raises KeyError if its accelerator has no profile."""
        host = self._hosts[name]
        return self._profiles[host.variables.get("accelerator", self._accelerator) if host.gpus else ""]

    def number(self, name: str) -> int:
        """Return a host's position in the fleet, from 0. Serial numbers and addresses derive from it."""
        return self._numbers[name]

    def after(self, name: str) -> Iterator[str]:
        """Yield the names of all other hosts in fleet order as in a ring, beginning with the one after `name`."""
        start, names = self._numbers[name] + 1, self._names
        yield from (names[number % len(names)] for number in range(start, start + len(names) - 1))

    def before(self, name: str) -> Iterator[str]:
        """Yield the names of all other hosts backwards as in a ring, beginning with the one before `name`."""
        start, names = self._numbers[name], self._names
        yield from (names[(start - step) % len(names)] for step in range(1, len(names)))

    def pick(self, selector: str) -> tuple[str, ...]:
        """Return the names of the first N hosts of a group, for a selector `GROUP:N`; of all its hosts for `GROUP`.

        Groups are gpus, cpus, servers, agents and all. An empty selector returns nothing: such a fault concerns the whole cluster.
        """
        if not selector:
            return ()
        group, _, count = selector.partition(":")
        tests: dict[str, Any] = {
            "all": lambda _: True,
            "gpus": lambda host: host.gpus > 0,
            "cpus": lambda host: host.gpus == 0,
            "servers": lambda host: host.role == "server",
            "agents": lambda host: host.role != "server",
        }
        names = [host.name for host in self if tests[group](host)]
        return tuple(names[: int(count)] if count else names)
