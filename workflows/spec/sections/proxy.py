"""HTTP proxies of a spec, and the environment variables that plays, RKE2 and pods derive from them."""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.fields import Listed, SecretRef, Section, is_address, problem

ProxyUrl = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.\[\]:-]+(:[0-9]{1,5})?/?$", max_length=300)]
"""URL of a proxy, without a login."""
User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@+\\-]{1,100}$")]
Outside = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:/*-]{1,253}$")]
ALWAYS = ("localhost", "127.0.0.0/8", "::1", ".svc", ".cluster.local")
_MOST_NETWORKS = 16


class Proxies(Section):
    """URLs of HTTP proxies, without a login, and names and networks that are reached without a proxy."""

    http: ProxyUrl | None = Field(
        default=None, description="Proxy for http; default: none.", examples=["http://proxy.example.org:3128"]
    )
    https: ProxyUrl | None = Field(
        default=None, description="Proxy for https; default: the proxy for http.", examples=["http://proxy.example.org:3128"]
    )
    no_proxy: Annotated[tuple[Outside, ...], Listed] = Field(
        default=(),
        description="Names, .domains and networks that are reached without a proxy; networks and machines of the cluster are "
        "added.",
        examples=[[".example.org", "10.0.0.0/8"]],
    )

    @model_validator(mode="after")
    def _one_is_named(self) -> "Proxies":
        if self.http is None and self.https is None:
            raise problem("no proxy is named", "write http: http://HOST:PORT, or leave proxy out")
        return self


class Proxy(Proxies):
    """HTTP proxies through which machines reach package mirrors, release downloads and registries."""

    user: User | None = Field(default=None, description="User of the proxies, if they ask for a login.", examples=["bringup"])
    password: SecretRef | None = Field(
        default=None, description="Password of the user. On machines it is only in RKE2's environment file, readable by root."
    )

    @model_validator(mode="after")
    def _a_login_is_whole(self) -> "Proxy":
        require_whole_login(self.user, self.password)
        return self


def require_whole_login(user: str | None, password: SecretRef | None, what: str = "a login", prefix: str = "") -> None:
    """Raise a validation error if only one of the fields `PREFIXuser` and `PREFIXpassword` is given."""
    if (user is None) != (password is None):
        why = f"{what} has a user and a password, and one of them is missing"
        raise problem(why, f"give {prefix}user and {prefix}password, or neither")


def environment(proxy: Proxies | None, networks: Sequence[str], addresses: Iterable[str]) -> dict[str, str]:
    """Return a process's proxy variables in upper and lower case (apt and curl read lower case); empty without a proxy.

    `networks` are those of pods and Services; `addresses` those of machines and of the load balancer before the servers. They all
    go into NO_PROXY.
    """
    if proxy is None:
        return {}
    outside = dict.fromkeys([*ALWAYS, *networks, *_around(addresses), *proxy.no_proxy])
    named = {"HTTP_PROXY": proxy.http, "HTTPS_PROXY": proxy.https or proxy.http, "NO_PROXY": ",".join(outside)}
    variables = {name: value for name, value in named.items() if value}
    return variables | {name.lower(): value for name, value in variables.items()}


def _around(addresses: Iterable[str]) -> list[str]:
    """Return NO_PROXY entries, as few as possible, that cover all addresses: host names or their domains, and networks."""
    every = list(dict.fromkeys(addresses))
    plain = [address for address in every if not is_address(address)]
    domains = [f".{domain}" for name in plain if (domain := name.partition(".")[2])]
    names = list(dict.fromkeys(domains))[:_MOST_NETWORKS] + [name for name in plain if "." not in name][:_MOST_NETWORKS]
    return [*names, *_networks([ipaddress.ip_address(address) for address in every if is_address(address)])]


def _networks(addresses: Sequence[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> list[str]:
    for narrow, wide in ((32, 128), (24, 64), (16, 48), (8, 32)):
        networks = dict.fromkeys(
            str(ipaddress.ip_network(f"{address}/{narrow if address.version == 4 else wide}", strict=False))
            for address in addresses
        )
        if len(networks) <= _MOST_NETWORKS:
            break
    return [network.removesuffix("/32").removesuffix("/128") for network in networks][:_MOST_NETWORKS]
