"""Host groups of a spec: names as ranges, with addresses and topology that follow from the names."""

import functools
import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from workflows.spec import range_syntax
from workflows.spec.fields import LabelKey, LabelValue, Listed, OneOrMore, Section, SnakeId, Taint, as_tuple, problem
from workflows.spec.parsing import secrecy
from workflows.spec.sections.gpus import GpuSharing, GroupAccelerator

PLACEHOLDER = re.compile(r"\{(host|index|[1-9]|block:([1-9][0-9]{0,4}))\}")
"""The placeholders of a pattern: `{host}`, `{index}` (from 0), `{1}`… for the numbers in the name, `{block:8}` for the block of 8
hosts (from 1).
"""


def check_range(text: Any) -> Any:
    """Return a range text unchanged. Raises a validation error if it cannot be expanded, or has upper-case letters."""
    if isinstance(text, str) and text != text.lower():
        raise problem("node names are lower-case in Kubernetes", f"write {text.lower()}")
    if (flaw := _flaw(text)) is not None:
        raise problem(flaw.problem, flaw.fix) from flaw
    return text


@functools.lru_cache(maxsize=1024)
def _flaw(text: str) -> range_syntax.BadRange | None:
    """Return the exception for a range that cannot be expanded, else None.

    Results are cached, since a spec with errors is validated more than once and ranges may be large.
    """
    try:
        range_syntax.expand(text)
    except range_syntax.BadRange as error:
        return error
    return None


def _check_pattern(text: str) -> str:
    rest = PLACEHOLDER.sub("", text)
    if "{" in rest or "}" in rest:
        raise problem("the pattern has an unknown placeholder", "use {host}, {index}, {1}, {2} or {block:8}")
    return text


def _check_address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        raise problem("not an IP address", "write one as in 10.10.0.11") from error
    return text


def _check_cidr(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise problem("not a network", "write its first address and prefix, as in 10.42.0.0/16") from error
    return text


def _check_of_ipv4(text: str) -> str:
    if ipaddress.ip_network(text).version != 4:
        why = "IPv6 clusters are not supported: RKE2 would listen on ::1, while its clients on the host use 127.0.0.1"
        raise problem(why, "write an IPv4 network, as in 10.42.0.0/16; addresses that SSH dials may be IPv6")
    return text


SSH_PROXY = re.compile(r"http://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})/?")


def _check_proxy(text: str) -> str:
    written = "write http://HOST:PORT, as in http://proxy.example.org:3128"
    if text.startswith("https://"):
        raise problem("SSH connects to an HTTP proxy by plain http; the SSH connection through it is encrypted", written)
    if "@" in text:
        raise problem("the URL contains a login", secrecy.SSH_PROXY_FIX)
    match = SSH_PROXY.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 65536:
        raise problem("this is not the URL of an HTTP proxy with its port", written)
    return text


API_SERVER = re.compile(r"https://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:([0-9]{1,5}))?/?")


def _check_api_server(text: str) -> str:
    match = API_SERVER.fullmatch(text)
    if match is None or not 0 < int(match[3] or 443) < 65536:
        raise problem("this is not the URL of an API server", "write https://HOST:PORT, as in https://127.0.0.1:6443")
    return text


RangeText = Annotated[str, StringConstraints(min_length=1, max_length=range_syntax.LONGEST), AfterValidator(check_range)]
"""A range text such as `gpu[001-016]`."""
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_check_pattern)]
IpAddress = Annotated[str, AfterValidator(_check_address)]
Cidr = Annotated[str, AfterValidator(_check_cidr)]
Cidr4 = Annotated[Cidr, AfterValidator(_check_of_ipv4)]
Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?$")]
"""A host name or an IP address."""
_PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_JUMP_HOST = rf"([a-z_][a-z0-9_-]*@)?[A-Za-z0-9.-]+(:({_PORT}))?"
JUMP_HOSTS = rf"^{_JUMP_HOST}(,{_JUMP_HOST}){{0,4}}$"
JumpHosts = Annotated[str, StringConstraints(pattern=JUMP_HOSTS)]
"""Up to five SSH jump hosts in order, as `user@host:port` with commas between them."""
SshProxy = Annotated[str, AfterValidator(_check_proxy)]
"""URL of an HTTP proxy for SSH connections, without a login."""
ApiServer = Annotated[str, AfterValidator(_check_api_server)]
"""URL of a Kubernetes API server."""
SshUser = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
SshPort = Annotated[int, Field(ge=1, le=65535)]
PYTHON = r"^/[A-Za-z0-9._/+@-]{1,1000}$"
Python = Annotated[str, StringConstraints(pattern=PYTHON)]
"""Path of the Python interpreter on a machine."""


KUBELET_KEYS = frozenset(
    (
        *(f"beta.kubernetes.io/{name}" for name in ("arch", "instance-type", "os")),
        *(f"failure-domain.beta.kubernetes.io/{name}" for name in ("region", "zone")),
        *(f"kubernetes.io/{name}" for name in ("arch", "hostname", "os")),
        *(f"topology.kubernetes.io/{name}" for name in ("region", "zone")),
    )
)
"""Labels in Kubernetes' own domains that a kubelet may set on its node, besides those below `KUBELET_PREFIXES`."""
KUBELET_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES = ("kubernetes.io", "k8s.io")


def _check_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return labels unchanged. Raises for those that `kubelet --node-labels` rejects, because only cluster admins may set them."""
    for key in labels:
        prefix = key.rpartition("/")[0]
        if _is_below(prefix, _KUBERNETES) and not _is_below(prefix, KUBELET_PREFIXES) and key not in KUBELET_KEYS:
            why = f"a kubelet does not start with the label {key}: that prefix is Kubernetes' own"
            fix = f"write a prefix of yours, as site.example.org/{key.rpartition('/')[2]}, or node.kubernetes.io/"
            raise problem(why, f"{fix}; or give it by `kubectl label` once the node is there")
    return labels


def _is_below(name: str, domains: tuple[str, ...]) -> bool:
    return any(name == domain or name.endswith(f".{domain}") for domain in domains)


NodeLabels = Annotated[Mapping[LabelKey, LabelValue], AfterValidator(_check_labels)]
"""Labels that a kubelet sets on its own node at registration."""

DNS_SUFFIX = r"^[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?$"


class Addresses(Section):
    """Addresses of a group that follow from its host names, by at most one of the four fields. Without one, DNS resolves names."""

    dns_suffix: Annotated[str, StringConstraints(pattern=DNS_SUFFIX)] | None = Field(
        default=None, description="Appended to each name with a dot.", examples=["cluster.example.org"]
    )
    start: IpAddress | None = Field(
        default=None, description="The first host's address; the others count up in order.", examples=["10.10.1.1"]
    )
    pattern: Pattern | None = Field(
        default=None,
        description="An address with {1}, {2}… for the numbers in a host's name (without padding) or {index} from 0.",
        examples=["10.20.{1}.{2}"],
    )
    map: Mapping[str, Address] | None = Field(
        default=None, description="Address by host name, for every host of the group.", examples=[{"gpu001": "10.10.1.1"}]
    )

    @model_validator(mode="after")
    def _at_most_one(self) -> "Addresses":
        if sum(way is not None for way in (self.dns_suffix, self.start, self.pattern, self.map)) > 1:
            raise problem("addresses are given in more than one way", "keep one of dns_suffix, start, pattern and map")
        return self


class Topology(Section):
    """Rack, leaf switch and scalable unit of each host, as patterns over its name and its position in the group."""

    rack: Pattern | None = Field(
        default=None, description="Rack name pattern; {1} is the first number in the name as printed.", examples=["rack{1}"]
    )
    leaf: Pattern | None = Field(
        default=None, description="Leaf switch pattern; {block:8} numbers blocks of 8 hosts from 1.", examples=["leaf{block:8}"]
    )
    scalable_unit: Pattern | None = Field(
        default=None, description="Scalable unit pattern, in the form of rack.", examples=["su{block:32}"]
    )


class HostOverride(Section):
    """Settings of one host that differ from those of its group."""

    address: Address | None = Field(default=None, description="Address of the host.", examples=["10.10.1.99"])
    rack: str | None = Field(default=None, description="Rack of the host.", examples=["rack07"])
    leaf: str | None = Field(default=None, description="Leaf switch of the host.", examples=["leaf03"])
    scalable_unit: str | None = Field(default=None, description="Scalable unit of the host.", examples=["su02"])
    ssh_user: SshUser | None = Field(default=None, description="User that logs in on the host.", examples=["ops"])
    ssh_port: SshPort | None = Field(default=None, description="SSH port of the host.", examples=[2222])
    python: Python | None = Field(default=None, description="Path of Python on the host.", examples=["/usr/bin/python3.11"])
    gpus: Annotated[int, Field(ge=0, le=16)] | None = Field(
        default=None, description="Number of GPUs, if fewer than in the other machines.", examples=[7]
    )
    labels: NodeLabels = Field(default={}, description="Node labels added on the host.", examples=[{"site/zone": "b"}])


class HostGroup(Section):
    """A group of machines with one role, equal hardware and equal access; an entry of `hosts`."""

    role: Literal["server", "agent"] = Field(description="server runs the RKE2 control plane, agent runs work.", examples=["agent"])
    ranges: Annotated[tuple[RangeText, ...], Field(min_length=1), OneOrMore] = Field(
        description="Host names as one range or a list: gpu[001-016], rack[01-04]-node[01-16], a[1-3],b7.",
        examples=["gpu[001-016]"],
    )
    gpu: bool = Field(default=False, description="Whether these machines have the accelerator.", examples=[True])
    accelerator: GroupAccelerator | None = Field(
        default=None, description="What differs from the section accelerator on these machines; default: nothing."
    )
    sharing: GpuSharing | None = Field(
        default=None, description="How the GPUs of these machines are shared, in place of the section sharing."
    )
    jump_host: JumpHosts | None = Field(
        default=None,
        description="Jump host before these machines, as user@host:port; default: ssh.jump_host.",
        examples=["ops@bastion.example.org:22"],
    )
    http_proxy: SshProxy | None = Field(
        default=None,
        description="HTTP proxy for SSH to these machines, or to the first jump host before them; default: ssh.http_proxy. "
        "The login is ssh.http_proxy_user.",
        examples=["http://proxy.example.org:3128"],
    )
    python: Python | None = Field(
        default=None,
        description="Path of the Python (3.9 or newer) that plays use on these machines; default: /usr/bin/python3.",
        examples=["/usr/bin/python3.11"],
    )
    addresses: Addresses = Field(
        default=Addresses(), description="How the addresses that SSH dials follow from host names; default: names resolve by DNS."
    )
    topology: Topology = Field(default=Topology(), description="Rack, leaf and scalable unit of each host.")
    labels: NodeLabels = Field(default={}, description="Node labels set at registration.", examples=[{"site/pool": "train"}])
    taints: Annotated[tuple[Taint, ...], Listed] = Field(
        default=(), description="Node taints set at registration.", examples=[["nvidia.com/gpu=present:NoSchedule"]]
    )
    overrides: Mapping[str, HostOverride] = Field(
        default={}, description="Differences of single hosts, by host name; default: none."
    )

    @model_validator(mode="after")
    def _overrides_name_members(self) -> "HostGroup":
        if not self.overrides and not self.addresses.map:
            return self
        members = set(self.names())
        for name in self.overrides:
            if name not in members:
                raise problem(f"override {name} is not a host of this group", "name a host of ranges")
        if self.addresses.map is not None and set(self.addresses.map) != members:
            different = ", ".join(sorted(members ^ set(self.addresses.map))[:3])
            raise problem(f"addresses.map and ranges differ: {different}", "give every host of the group one address, and no other")
        return self

    def names(self) -> tuple[str, ...]:
        """Return the host names of the group, in order."""
        return tuple(name for text in self.ranges for name in range_syntax.expand(text))


def _few_enough(groups: Any) -> Any:
    """Return host groups unchanged. Raises for a fleet that is too large, before any range is expanded.

    A single range that is too large has an error of its own.
    """
    if isinstance(groups, dict):
        written = [group.get("ranges") for group in groups.values() if isinstance(group, dict)]
        texts = [text for ranges in written for text in as_tuple(ranges) or () if isinstance(text, str)]
        sizes = [range_syntax.size(text) for text in texts]
        if sum(size for size in sizes if size <= range_syntax.MOST_HOSTS) > range_syntax.MOST_HOSTS:
            raise problem(f"more than {range_syntax.MOST_HOSTS} hosts", "split the fleet into several clusters")
    return groups


Hosts = Annotated[Mapping[SnakeId, HostGroup], Field(min_length=1), BeforeValidator(_few_enough)]
"""Host groups by name."""
