"""The network of a live factory: names and addresses at which its machines, nodes, pods and Services answer.

A server that is none of them lies outside of the factory. Further addresses of machines, which neither the spec nor the API shows,
are not among them.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from msgspec import Struct

from workflows.spec import FactorySpec
from workflows.spec.pipelines import factory_addresses

T = TypeVar("T")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str], tuple[str, ...]]
"""A function that returns the IP addresses of a name, none if it has none."""
_NODES, _SERVICES = "/api/v1/nodes", "/api/v1/services"
_CLUSTER_NAME = re.compile(r"(.*\.)?(svc|cluster\.local|localhost)(\..*)?", re.IGNORECASE)
"""Names that only a cluster's own DNS has, and those of a node for itself."""


class ObjectLists(Protocol):
    """Read access to collections of a factory's API, as a Kubernetes client has."""

    def list(self, path: str, kind: type[T]) -> tuple[T, ...] | None:
        """Return all objects of a collection, None if the API serves none. Raises StepError."""


class _Annotations(Struct, frozen=True):
    name: str = ""
    annotations: dict[str, str] = {}


class _NodeAddress(Struct, frozen=True):
    address: str = ""


class _NodeAddresses(Struct, frozen=True):
    addresses: tuple[_NodeAddress, ...] = ()


class _NodeNetworks(Struct, frozen=True, rename={"pod_networks": "podCIDRs"}):
    pod_networks: tuple[str, ...] = ()


class NetworkedNode(Struct, frozen=True):
    """A node of a factory as the API returns it, with everything that tells its addresses."""

    metadata: _Annotations = _Annotations()
    spec: _NodeNetworks = _NodeNetworks()
    status: _NodeAddresses = _NodeAddresses()

    @property
    def places(self) -> Iterator[str]:
        """Yield names, addresses and networks. Network plugins write addresses into annotations, some with a prefix length."""
        yield self.metadata.name
        yield from (entry.address for entry in self.status.addresses)
        yield from self.spec.pod_networks
        for text in self.metadata.annotations.values():
            words = (word.partition("/")[0].strip() for word in text.split(","))
            yield from (word for word in words if _address(word))


class _Ingress(Struct, frozen=True):
    ip: str = ""
    hostname: str = ""


class _LoadBalancer(Struct, frozen=True):
    ingress: tuple[_Ingress, ...] = ()


class _ServiceStatus(Struct, frozen=True, rename="camel"):
    load_balancer: _LoadBalancer = _LoadBalancer()


_SERVICE_FIELDS = {"cluster_ip": "clusterIP", "cluster_ips": "clusterIPs", "external_ips": "externalIPs"}


class _ServiceAddresses(Struct, frozen=True, rename=_SERVICE_FIELDS):
    cluster_ip: str = ""
    cluster_ips: tuple[str, ...] = ()
    external_ips: tuple[str, ...] = ()


class NetworkedService(Struct, frozen=True):
    """A Service of a factory as the API returns it, with everything that tells its addresses."""

    spec: _ServiceAddresses = _ServiceAddresses()
    status: _ServiceStatus = _ServiceStatus()

    @property
    def places(self) -> Iterator[str]:
        """Yield names and addresses."""
        yield from (self.spec.cluster_ip, *self.spec.cluster_ips, *self.spec.external_ips)
        yield from (place for entry in self.status.load_balancer.ingress for place in (entry.ip, entry.hostname))


@dataclass(frozen=True, kw_only=True)
class FactoryNetwork:
    """Names and networks of a factory; an address is a network of its own. `resolve` returns the addresses of other names.

    `share` is the server of the spec's shared folder, which the site says to lie outside.
    """

    names: frozenset[str]
    networks: tuple[Network, ...]
    resolve: Resolver
    share: str = ""

    def is_outside(self, server: str) -> bool | None:
        """Return True for a server outside of the factory, False for any within; None if its name has no address here."""
        name = server.strip("[]").rstrip(".").lower()
        if not name or name in self.names or name.partition(".")[0] in self.names or _CLUSTER_NAME.fullmatch(name):
            return False
        own = _address(name)
        addresses = [own] if own else [address for text in self.resolve(name) if (address := _address(text))]
        if not addresses:  # the nodes mount the share, so its name has an address there
            return True if name == self.share else None
        return not any(self._has(address) for address in addresses)

    def _has(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        # a kubelet mounts by the addresses of its own machine, so these three lead to the node
        is_own = address.is_loopback or address.is_link_local or address.is_unspecified
        return is_own or any(address in network for network in self.networks)


def read(spec: FactorySpec, kube: ObjectLists, resolve: Resolver) -> FactoryNetwork:
    """Return the network of a live factory, by its spec and by what its nodes and Services show. Raises StepError."""
    shown = [place for node in kube.list(_NODES, NetworkedNode) or () for place in node.places]
    shown += [place for service in kube.list(_SERVICES, NetworkedService) or () for place in service.places]
    shown += [spec.rke2.cluster_cidr, spec.rke2.service_cidr]
    hosts = factory_addresses.addresses(spec).hosts
    named = [host for host in hosts if not _address(host) and not _CLUSTER_NAME.fullmatch(host)]
    resolved = [address for host in named for address in resolve(host)]
    share = spec.share.server.lower() if spec.share else ""
    return _network([*hosts, *resolved, *shown], resolve, share)


def host_addresses(name: str) -> tuple[str, ...]:
    """Return the IP addresses that a name has on this machine, none if it has none."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers))


def _network(places: Iterable[str], resolve: Resolver, share: str) -> FactoryNetwork:
    """Return the network with these names, addresses and networks."""
    names: set[str] = set()
    networks: set[Network] = set()
    for place in filter(None, places):
        try:
            networks.add(ipaddress.ip_network(place, strict=False))
        except ValueError:
            names.add(place.lower())
    return FactoryNetwork(names=frozenset(names), networks=tuple(networks), resolve=resolve, share=share)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
