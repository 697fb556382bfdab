"""The HTTP proxy that the environment names on the way to a URL, with its login, for urllib3."""

from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

import urllib3


def on_the_way(url: str, otherwise: Callable[[str], str] = lambda _: "") -> str:
    """The proxy on the way to a URL, as the environment names it, else `otherwise`; empty for none, and for what the environment
    wants to be reached without. Raises ValueError."""
    from urllib.request import proxy_bypass  # only who asks pays for it

    parts = urlsplit(url)
    host = parts.hostname or ""
    place = host if parts.port is None else f"{host}:{parts.port}"
    found = "" if proxy_bypass(place) else in_environment(url) or otherwise(url)
    return found if not found or "://" in found else f"http://{found}"


def in_environment(url: str) -> str:
    """What the environment names (in capitals or not) for URLs of this scheme, as it stands there."""
    from urllib.request import getproxies_environment

    known = getproxies_environment()
    return known.get(urlsplit(url).scheme) or known.get("all") or ""


def apart(proxy: str) -> tuple[str, Mapping[str, str] | None]:
    """A proxy without its login, and the login as headers: urllib3 does not send what stands in the URL. Raises ValueError."""
    parts = urlsplit(proxy)
    login, _, place = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{place}", urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else None
