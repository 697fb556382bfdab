"""Hosts: named groups of machines as ranges, how their addresses and places in the fabric follow from their names."""

import functools
import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from workflows.spec import ranges, secrecy
from workflows.spec.fields import LabelKey, LabelValue, Listed, OneOrMore, Section, SnakeId, Taint, as_tuple, problem

PLACEHOLDER = re.compile(r"\{(host|index|[1-9]|block:([1-9][0-9]{0,4}))\}")
"""What a pattern may hold: `{host}`, `{index}` (from 0), `{1}`… the numbers in the name, `{block:8}` the block of 8 (from 1)."""


def check_range(text: Any) -> Any:
    """Refuse a range that cannot be expanded; return it unchanged."""
    if isinstance(text, str) and text != text.lower():
        raise problem("node names are lower-case in Kubernetes", f"write {text.lower()}")
    if (flaw := _flaw(text)) is not None:
        raise problem(flaw.problem, flaw.fix) from flaw
    return text


@functools.lru_cache(maxsize=1024)
def _flaw(text: str) -> ranges.BadRange | None:
    """Why a range cannot be expanded. Kept: a spec with errors in it is looked at more than once, and ranges may be large."""
    try:
        ranges.expand(text)
    except ranges.BadRange as error:
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
    """RKE2 with Services of IPv6 alone serves its host on ::1 (Control.Loopback of K3s), and whoever looks there asks 127.0.0.1."""
    if ipaddress.ip_network(text).version != 4:
        why = "clusters of IPv6 are not built: RKE2 would answer its host on ::1, and all that looks there asks 127.0.0.1"
        raise problem(why, "write a network of IPv4, as in 10.42.0.0/16; what SSH dials may be of IPv6")
    return text


SSH_PROXY = re.compile(r"http://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})/?")


def _check_proxy(text: str) -> str:
    written = "write http://HOST:PORT, as in http://proxy.example.org:3128"
    if text.startswith("https://"):
        raise problem("SSH talks to an HTTP proxy by plain http: what goes through it SSH encrypts itself", written)
    if "@" in text:
        raise problem("a login stands in the URL", secrecy.SSH_PROXY_FIX)
    match = SSH_PROXY.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 65536:
        raise problem("this is no HTTP proxy with its port", written)
    return text


API_SERVER = re.compile(r"https://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:([0-9]{1,5}))?/?")


def _check_api_server(text: str) -> str:
    match = API_SERVER.fullmatch(text)
    if match is None or not 0 < int(match[3] or 443) < 65536:
        raise problem("this is no URL of an API server", "write https://HOST:PORT, as in https://127.0.0.1:6443")
    return text


RangeText = Annotated[str, StringConstraints(min_length=1, max_length=ranges.LONGEST), AfterValidator(check_range)]
"""One range text, as in `gpu[001-016]`."""
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_check_pattern)]
IpAddress = Annotated[str, AfterValidator(_check_address)]
Cidr = Annotated[str, AfterValidator(_check_cidr)]
Cidr4 = Annotated[Cidr, AfterValidator(_check_of_ipv4)]
Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?$")]
"""A host name or IP address."""
_PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_JUMP_HOST = rf"([a-z_][a-z0-9_-]*@)?[A-Za-z0-9.-]+(:({_PORT}))?"
JUMP_HOSTS = rf"^{_JUMP_HOST}(,{_JUMP_HOST}){{0,4}}$"
JumpHosts = Annotated[str, StringConstraints(pattern=JUMP_HOSTS)]
"""Up to five SSH hosts to jump through, in order, as `user@host:port` with commas between."""
SshProxy = Annotated[str, AfterValidator(_check_proxy)]
"""The URL of an HTTP proxy that SSH goes through, without a login."""
ApiServer = Annotated[str, AfterValidator(_check_api_server)]
"""The URL of a Kubernetes API server."""
SshUser = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
SshPort = Annotated[int, Field(ge=1, le=65535)]
PYTHON = r"^/[A-Za-z0-9._/+@-]{1,1000}$"
Python = Annotated[str, StringConstraints(pattern=PYTHON)]
"""Where Python lies on a machine."""


KUBELET_KEYS = frozenset(
    (
        *(f"beta.kubernetes.io/{name}" for name in ("arch", "instance-type", "os")),
        *(f"failure-domain.beta.kubernetes.io/{name}" for name in ("region", "zone")),
        *(f"kubernetes.io/{name}" for name in ("arch", "hostname", "os")),
        *(f"topology.kubernetes.io/{name}" for name in ("region", "zone")),
    )
)
"""Keys of Kubernetes' own that a kubelet may give its node, beside those below `KUBELET_PREFIXES`."""
KUBELET_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES = ("kubernetes.io", "k8s.io")


def _check_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse keys that a kubelet does not start with (--node-labels): nobody but the cluster's admins gives a node those."""
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
"""Labels that a kubelet gives its own node at registration."""

DNS_SUFFIX = r"^[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?$"


class Addresses(Section):
    """How the addresses of a group follow from its host names: at most one of the four; none means the names resolve by DNS."""

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
    """Where each host stands, by pattern over its name and its order in the group."""

    rack: Pattern | None = Field(
        default=None, description="Rack name pattern; {1} is the first number in the name as printed.", examples=["rack{1}"]
    )
    leaf: Pattern | None = Field(
        default=None, description="Leaf switch pattern; {block:8} numbers blocks of 8 hosts from 1.", examples=["leaf{block:8}"]
    )
    scalable_unit: Pattern | None = Field(default=None, description="Scalable unit pattern.", examples=["su{block:32}"])


class HostOverride(Section):
    """What differs on one host."""

    address: Address | None = Field(default=None, description="Its address.", examples=["10.10.1.99"])
    rack: str | None = Field(default=None, description="Its rack.", examples=["rack07"])
    leaf: str | None = Field(default=None, description="Its leaf switch.", examples=["leaf03"])
    scalable_unit: str | None = Field(default=None, description="Its scalable unit.", examples=["su02"])
    ssh_user: SshUser | None = Field(default=None, description="User that logs in there.", examples=["ops"])
    ssh_port: SshPort | None = Field(default=None, description="SSH port there.", examples=[2222])
    python: Python | None = Field(default=None, description="Path of its Python.", examples=["/usr/bin/python3.11"])
    gpus: Annotated[int, Field(ge=0, le=16)] | None = Field(default=None, description="GPUs it has, where fewer.", examples=[7])
    labels: NodeLabels = Field(default={}, description="Node labels added.", examples=[{"site/zone": "b"}])


class HostGroup(Section):
    """One group of like machines."""

    role: Literal["server", "agent"] = Field(description="server runs the RKE2 control plane, agent runs work.", examples=["agent"])
    ranges: Annotated[tuple[RangeText, ...], Field(min_length=1), OneOrMore] = Field(
        description="Host names as one range or a list: gpu[001-016], rack[01-04]-node[01-16], a[1-3],b7.",
        examples=["gpu[001-016]"],
    )
    gpu: bool = Field(default=False, description="Whether these machines have the accelerator.", examples=[True])
    jump_host: JumpHosts | None = Field(
        default=None,
        description="Host to jump through to these machines, as user@host:port; default: ssh.jump_host.",
        examples=["ops@bastion.example.org:22"],
    )
    http_proxy: SshProxy | None = Field(
        default=None,
        description="HTTP proxy that SSH to these machines, or to the first jump host before them, goes through; default: "
        "ssh.http_proxy. Its login is ssh.http_proxy_user.",
        examples=["http://proxy.example.org:3128"],
    )
    python: Python | None = Field(
        default=None,
        description="Path of the Python (3.9 or newer) that plays use on these machines; default: /usr/bin/python3.",
        examples=["/usr/bin/python3.11"],
    )
    addresses: Addresses = Field(
        default=Addresses(), description="How addresses, which SSH dials, follow from names; default: DNS."
    )
    topology: Topology = Field(default=Topology(), description="Rack, leaf and scalable unit of each host.")
    labels: NodeLabels = Field(default={}, description="Node labels set at registration.", examples=[{"site/pool": "train"}])
    taints: Annotated[tuple[Taint, ...], Listed] = Field(
        default=(), description="Node taints set at registration.", examples=[["nvidia.com/gpu=present:NoSchedule"]]
    )
    overrides: Mapping[str, HostOverride] = Field(default={}, description="What differs, by host name.")

    @model_validator(mode="after")
    def _overrides_name_members(self) -> "HostGroup":
        if not self.overrides and not self.addresses.map:
            return self
        members = set(self.names())
        for name in self.overrides:
            if name not in members:
                raise problem(f"override {name} is no host of this group", "name a host that ranges holds")
        if self.addresses.map is not None and set(self.addresses.map) != members:
            different = ", ".join(sorted(members ^ set(self.addresses.map))[:3])
            raise problem(f"addresses.map and ranges differ: {different}", "give every host of the group one address, and no other")
        return self

    def names(self) -> tuple[str, ...]:
        """Return the group's host names in order."""
        return tuple(name for text in self.ranges for name in ranges.expand(text))


def _few_enough(groups: Any) -> Any:
    """Refuse a fleet that is too large before any of it is expanded; one range that is too large is refused at its own place."""
    if isinstance(groups, dict):
        written = [group.get("ranges") for group in groups.values() if isinstance(group, dict)]
        texts = [text for one in written for text in as_tuple(one) or () if isinstance(text, str)]
        sizes = [ranges.size(text) for text in texts]
        if sum(size for size in sizes if size <= ranges.MOST_HOSTS) > ranges.MOST_HOSTS:
            raise problem(f"more than {ranges.MOST_HOSTS} hosts", "split the fleet into several clusters")
    return groups


Hosts = Annotated[Mapping[SnakeId, HostGroup], Field(min_length=1), BeforeValidator(_few_enough)]
"""Groups by name."""
