"""The HTTP proxy that the environment names on the way to a URL, with its login, for urllib3."""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import urllib3


def on_the_way(url: str) -> str:
    """The proxy on the way to a URL, as the environment names it (in capitals or not); empty for none. Raises ValueError."""
    from urllib.request import getproxies_environment, proxy_bypass  # only who asks pays for it

    parts = urlsplit(url)
    host = parts.hostname or ""
    place = host if parts.port is None else f"{host}:{parts.port}"
    known = getproxies_environment()
    found = known.get(parts.scheme) or known.get("all") or ""
    if not found or proxy_bypass(place):
        return ""
    return found if "://" in found else f"http://{found}"


def apart(proxy: str) -> tuple[str, Mapping[str, str] | None]:
    """A proxy without its login, and the login as headers: urllib3 does not send what stands in the URL. Raises ValueError."""
    parts = urlsplit(proxy)
    login, _, place = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{place}", urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else None
