"""What a site asks of the operating system beyond the catalog's node profile: kernel, huge pages, DNS, users, routes, mounts."""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from workflows.spec.fields import Listed, Section, problem
from workflows.spec.hosts import Cidr, IpAddress

KernelParameter = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,60}(=[A-Za-z0-9_.,:/@+-]{1,200})?$")]
"""One word of the kernel's command line."""
DomainName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")]
Account = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
PublicKey = Annotated[
    str, StringConstraints(pattern=r"^(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/=]{40,800}( [^\n\x00]{0,100})?$")
]
"""A line of an SSH .pub file."""
Interface = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,15}$")]


def _not_the_kernels(name: str) -> str:
    """What the kernel calls whatever it finds first may be another interface's name when ours appears (systemd.link(5))."""
    if KERNELS.fullmatch(name):
        raise problem(f"the kernel itself gives the name {name}, to whichever interface it finds first", "choose another: fab0")
    return name


KERNELS = re.compile(r"(eth|ib|wlan|lo)[0-9]*")
InterfaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,14}$"), AfterValidator(_not_the_kernels)]
"""A name to give to an interface."""
PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
FileSystem = Literal["xfs", "ext4", "btrfs", "zfs"]


class Hugepages(Section):
    """Huge pages that the kernel sets aside on GPU machines (on all where none has GPUs)."""

    size: Literal["2M", "1G"] = Field(description="Size of one; 1G comes with a kernel parameter and a reboot.", examples=["1G"])
    count: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="How many.", examples=[64])


class Dns(Section):
    """How machines resolve names; what is left out stays as it is."""

    servers: Annotated[tuple[IpAddress, ...], Listed, Field(max_length=3)] = Field(
        default=(), description="Servers in order, at most 3 as in resolv.conf.", examples=[["10.10.0.53"]]
    )
    search: Annotated[tuple[DomainName, ...], Listed, Field(max_length=6)] = Field(
        default=(), description="Search domains in order.", examples=[["cluster.example.org"]]
    )


class User(Section):
    """A person's account on every machine."""

    name: Account = Field(description="Login name.", examples=["ops"])
    keys: Annotated[tuple[PublicKey, ...], Listed, Field(max_length=5)] = Field(
        default=(),
        description="Public SSH keys that may log in; keys that are there already stay.",
        examples=[["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAbcdefghijklmnopqrstuvwxyz0123456789ABCDEF ops@example.org"]],
    )
    groups: Annotated[tuple[Account, ...], Listed, Field(max_length=10)] = Field(
        default=(), description="Groups that the user joins.", examples=[["adm"]]
    )
    sudo: bool = Field(default=False, description="Whether the user may use sudo without a password.", examples=[True])


def _network(text: str) -> str:
    """As the kernel writes it, so that what is read can be compared."""
    return str(ipaddress.ip_network(text))


Network = Annotated[Cidr, AfterValidator(_network)]


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


class Route(Section):
    """A route that machines must have. One that is absent is set, and kept where systemd-networkd or NetworkManager configures the
    interface; one that leads another way stays, and fails the machine."""

    to: Network = Field(description="Network that it leads to.", examples=["192.168.0.0/16"])
    via: Annotated[IpAddress, AfterValidator(_address)] | None = Field(
        default=None, description="Gateway.", examples=["192.168.1.254"]
    )
    device: Interface | None = Field(default=None, description="Interface.", examples=["ens1np0"])

    @model_validator(mode="after")
    def _leads_somewhere(self) -> "Route":
        if self.via is None and self.device is None:
            raise problem(
                f"the route to {self.to} names neither gateway nor interface", "add via: 192.168.1.254 or device: ens1np0"
            )
        if self.via is not None and (":" in self.via) != (":" in self.to):
            raise problem(f"{self.via} and {self.to} are of two versions of IP", "give a gateway of the network's own version")
        return self


class Mount(Section):
    """A folder that must be a file system of its own."""

    filesystem: Annotated[tuple[FileSystem, ...], Listed] = Field(
        default=(), description="Accepted types; default: any.", examples=[["xfs", "ext4"]]
    )
