"""Settings of the operating system that a site adds to the node profile: kernel, huge pages, DNS, users, routes, mounts, SELinux
policy.
"""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from workflows.spec.fields import Listed, Section, problem
from workflows.spec.sections.hosts import Cidr, IpAddress

KernelParameter = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,60}(=[A-Za-z0-9_.,:/@+-]{1,200})?$")]
"""A word of the kernel command line."""
DomainName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")]
Account = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
PublicKey = Annotated[
    str, StringConstraints(pattern=r"^(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/=]{40,800}( [^\n\x00]{0,100})?$")
]
"""A line of an SSH .pub file."""
Interface = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,15}$")]


def _not_the_kernels(name: str) -> str:
    """Return an interface name. Raises if the kernel assigns it, because another interface may hold it (systemd.link(5))."""
    if KERNELS.fullmatch(name):
        raise problem(f"the kernel assigns the name {name} itself, to whichever interface it finds first", "choose another: fab0")
    return name


KERNELS = re.compile(r"(eth|ib|wlan|lo)[0-9]*")
InterfaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,14}$"), AfterValidator(_not_the_kernels)]
"""A name that a network interface is given."""
PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
FileSystem = Literal["xfs", "ext4", "btrfs", "zfs"]


class Hugepages(Section):
    """Section `os.hugepages` of a spec: huge pages to reserve on GPU machines, or on all machines if none has GPUs."""

    size: Literal["2M", "1G"] = Field(description="Size of a page; 1G needs a kernel parameter and a reboot.", examples=["1G"])
    count: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="Number of pages.", examples=[64])


class Dns(Section):
    """Section `os.dns` of a spec: name resolution of the machines; keys that are left out stay as they are."""

    servers: Annotated[tuple[IpAddress, ...], Listed, Field(max_length=3)] = Field(
        default=(), description="DNS servers in order, at most 3 as in resolv.conf; default: unchanged.", examples=[["10.10.0.53"]]
    )
    search: Annotated[tuple[DomainName, ...], Listed, Field(max_length=6)] = Field(
        default=(), description="Search domains in order; default: unchanged.", examples=[["cluster.example.org"]]
    )


class UserAccount(Section):
    """An account of a person on every machine."""

    name: Account = Field(description="Login name.", examples=["ops"])
    keys: Annotated[tuple[PublicKey, ...], Listed, Field(max_length=5)] = Field(
        default=(),
        description="SSH public keys that may log in; existing keys of the account stay.",
        examples=[["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAbcdefghijklmnopqrstuvwxyz0123456789ABCDEF ops@example.org"]],
    )
    groups: Annotated[tuple[Account, ...], Listed, Field(max_length=10)] = Field(
        default=(), description="Groups that the account joins.", examples=[["adm"]]
    )
    sudo: bool = Field(default=False, description="Whether the account may use sudo without a password.", examples=[True])


Network = Annotated[Cidr, AfterValidator(lambda text: str(ipaddress.ip_network(text)))]
"""A network in the form that the kernel prints, so that it can be compared with what a machine shows."""


class Route(Section):
    """A route that machines must have.

    A missing route is added, permanently if systemd-networkd or NetworkManager configures the interface. A different route to the
    same network stays, and fails the machine.
    """

    to: Network = Field(description="Destination network.", examples=["192.168.0.0/16"])
    via: Annotated[IpAddress, AfterValidator(lambda text: str(ipaddress.ip_address(text)))] | None = Field(
        default=None, description="Gateway; at least one of via and device is needed.", examples=["192.168.1.254"]
    )
    device: Interface | None = Field(
        default=None, description="Interface; at least one of via and device is needed.", examples=["ens1np0"]
    )

    @model_validator(mode="after")
    def _leads_somewhere(self) -> "Route":
        if self.via is None and self.device is None:
            why = f"the route to {self.to} names neither gateway nor interface"
            raise problem(why, "add via: 192.168.1.254 or device: ens1np0")
        if self.via is not None and (":" in self.via) != (":" in self.to):
            why = f"{self.via} and {self.to} have different IP versions"
            raise problem(why, "give a gateway of the same IP version as the network")
        return self


class RequiredMount(Section):
    """A folder that must be a file system of its own."""

    filesystem: Annotated[tuple[FileSystem, ...], Listed] = Field(
        default=(), description="Accepted file systems; default: any.", examples=[["xfs", "ext4"]]
    )


RepositoryUrl = Annotated[str, StringConstraints(pattern=r"^((https?://[^\s@{}]+)|(file:///[^\s@{}]+))$", max_length=300)]
"""A URL that dnf reads, without credentials."""


class PolicyRepository(Section):
    """The dnf repository of RKE2's SELinux policy (package rke2-selinux).

    With SELinux enforcing its file /etc/yum.repos.d/rancher-rke2.repo is written, unless the package is installed or another file
    whose name begins like that exists.
    """

    write: bool = Field(
        default=True,
        description="Whether the repository file is written; false if repositories of the site have the package. A file of an "
        "earlier run stays.",
        examples=[False],
    )
    baseurl: RepositoryUrl | None = Field(
        default=None,
        description="Base URL, for example of a mirror; default: RKE2's own repository at https://rpm.rancher.io for the major "
        "version of the distribution.",
        examples=["https://mirror.example.org/rke2/stable/common/centos/9/noarch"],
    )
    gpgkey: RepositoryUrl | None = Field(
        default=None,
        description="URL of the public key, which a machine without internet needs from a mirror too; default: "
        "https://rpm.rancher.io/public.key.",
        examples=["https://mirror.example.org/rke2/public.key"],
    )
    repo_gpgcheck: bool = Field(
        default=True,
        description="Whether metadata must be signed too; false for a mirror with metadata of its own. Packages must be signed in "
        "either case.",
        examples=[False],
    )

    @model_validator(mode="after")
    def _what_is_not_written_says_nothing(self) -> "PolicyRepository":
        if not self.write and (self.baseurl or self.gpgkey or not self.repo_gpgcheck):
            raise problem("write is false, so the other keys have no effect", "leave out write, or all other keys")
        return self
