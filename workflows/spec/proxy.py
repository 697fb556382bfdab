"""HTTP proxies: what a spec says, and the environment of it that plays and RKE2 get on machines, and pods that fetch for images."""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.addresses import is_address
from workflows.spec.fields import Listed, SecretRef, Section, problem

ProxyUrl = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.\[\]:-]+(:[0-9]{1,5})?/?$", max_length=300)]
"""A proxy's URL, without a login: that is given beside it, by reference."""
User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@+\\-]{1,100}$")]
Outside = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:/*-]{1,253}$")]
ALWAYS = ("localhost", "127.0.0.0/8", "::1", ".svc", ".cluster.local")
_MOST_NETWORKS = 16


class Proxies(Section):
    """HTTP proxies without a login."""

    http: ProxyUrl | None = Field(default=None, description="Proxy for http.", examples=["http://proxy.example.org:3128"])
    https: ProxyUrl | None = Field(
        default=None, description="Proxy for https; default: that for http.", examples=["http://proxy.example.org:3128"]
    )
    no_proxy: Annotated[tuple[Outside, ...], Listed] = Field(
        default=(),
        description="Names, .domains and networks reached without; the cluster's own networks and machines are added.",
        examples=[[".example.org", "10.0.0.0/8"]],
    )

    @model_validator(mode="after")
    def _one_is_named(self) -> "Proxies":
        if self.http is None and self.https is None:
            raise problem("no proxy is named", "write http: http://HOST:PORT, or leave proxy out")
        return self


class Proxy(Proxies):
    """HTTP proxies by which machines reach package mirrors, release downloads and registries."""

    user: User | None = Field(default=None, description="User, where the proxies want a login.", examples=["bringup"])
    password: SecretRef | None = Field(
        default=None,
        description="Its password. On machines it lies in RKE2's own environment file alone, for root to read.",
    )

    @model_validator(mode="after")
    def _a_login_is_whole(self) -> "Proxy":
        require_whole_login(self.user, self.password)
        return self


def require_whole_login(user: str | None, password: SecretRef | None, what: str = "a login", prefix: str = "") -> None:
    """Raise where a login has only one of its two fields, `PREFIXuser` and `PREFIXpassword`."""
    if (user is None) != (password is None):
        why = f"{what} has a user and a password, and one of them is missing"
        raise problem(why, f"give {prefix}user and {prefix}password, or neither")


def environment(proxy: Proxies | None, networks: Sequence[str], addresses: Iterable[str]) -> dict[str, str]:
    """The variables of a process, in both cases (apt and curl read small letters); empty without a proxy.

    `networks` are those of pods and Services, `addresses` those of machines and of what stands in front of the servers.
    """
    if proxy is None:
        return {}
    outside = dict.fromkeys([*ALWAYS, *networks, *_around(addresses), *proxy.no_proxy])
    named = {"HTTP_PROXY": proxy.http, "HTTPS_PROXY": proxy.https or proxy.http, "NO_PROXY": ",".join(outside)}
    given = {name: value for name, value in named.items() if value}
    return given | {name.lower(): value for name, value in given.items()}


def _around(addresses: Iterable[str]) -> list[str]:
    """Few entries that hold all addresses: names as they are or by their domain, IP addresses by as small networks as will do."""
    every = list(dict.fromkeys(addresses))
    plain = [address for address in every if not is_address(address)]
    domains = [f".{domain}" for name in plain if (domain := name.partition(".")[2])]
    names = list(dict.fromkeys(domains))[:_MOST_NETWORKS] + [name for name in plain if "." not in name][:_MOST_NETWORKS]
    return [*names, *_networks([ipaddress.ip_address(address) for address in every if is_address(address)])]


def _networks(addresses: Sequence[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> list[str]:
    for narrow, wide in ((32, 128), (24, 64), (16, 48), (8, 32)):
        found = dict.fromkeys(
            str(ipaddress.ip_network(f"{address}/{narrow if address.version == 4 else wide}", strict=False))
            for address in addresses
        )
        if len(found) <= _MOST_NETWORKS:
            break
    return [network.removesuffix("/32").removesuffix("/128") for network in found][:_MOST_NETWORKS]
