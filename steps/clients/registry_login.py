"""Login to an OCI registry: the challenge of an answer with status 401, and the Authorization header that meets it.

Source: https://distribution.github.io/distribution/spec/auth/token/
"""

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_TOKEN: Final = 1 << 20
"""Most bytes of a token server's answer; tokens have a few kB."""
_SCHEME: Final = re.compile(r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*(.*)", re.DOTALL)
_PARAMETER: Final = re.compile(r'([a-z_]{1,30})="([^"]{0,2000})"')
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,100000}")


class LoginChallenge(Struct, frozen=True, kw_only=True):
    """A registry's demand for a login: its scheme in lower case (`basic`, `bearer`), token server, service and scope."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""

    @property
    def token_url(self) -> str:
        """URL at which the token server gives a token for this challenge."""
        wanted = {name: value for name, value in (("service", self.service), ("scope", self.scope)) if value}
        return f"{self.realm}{'&' if '?' in self.realm else '?'}{urlencode(wanted)}" if wanted else self.realm


class _TokenAnswer(Struct):
    """Answer of a token server; OAuth 2 calls the token `access_token`."""

    token: str = ""
    access_token: str = ""


def challenge(header: str) -> LoginChallenge:
    """Return the challenge in a header WWW-Authenticate; its scheme is empty if there is none."""
    match = _SCHEME.match(header[:8000])
    if match is None:
        return LoginChallenge(scheme="")
    values: Mapping[str, str] = dict(_PARAMETER.findall(match[2]))
    known = {name: values.get(name, "") for name in ("realm", "service", "scope")}
    return LoginChallenge(scheme=match[1].lower(), **known)


def is_local(url: str) -> bool:
    """Return True if the server of a URL runs on this machine: at localhost, or at a loopback address."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # another name, or no URL
        return False


def is_confidential(url: str) -> bool:
    """Return True if nobody on the way to a URL can read what is sent: it is reached by TLS, or on this machine."""
    return url.startswith("https://") or (url.startswith("http://") and is_local(url))


def bearer(data: bytes) -> str:
    """Return the Authorization header for a token server's answer; empty if the answer has no token."""
    try:
        answer = msgspec.json.decode(data, type=_TokenAnswer)
    except UNREADABLE_JSON:
        return ""
    token = answer.token or answer.access_token
    return f"Bearer {token}" if _TOKEN.fullmatch(token) else ""
