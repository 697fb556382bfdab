"""Finds the HTTP proxy for a URL in the environment, and splits off its login in the form that urllib3 needs."""

from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

import urllib3


def on_the_way(url: str, otherwise: Callable[[str], str] = lambda _: "") -> str:
    """Return the proxy to use for a URL, from the environment, else from `otherwise`; empty for none.

    NO_PROXY is honoured. Raises ValueError for an unusable URL.
    """
    from urllib.request import proxy_bypass  # imported here: few callers need it

    parts = urlsplit(url)
    host = parts.hostname or ""
    place = host if parts.port is None else f"{host}:{parts.port}"
    proxy = "" if proxy_bypass(place) else in_environment(url) or otherwise(url)
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def in_environment(url: str) -> str:
    """Return the value of the proxy variable for a URL's scheme (`HTTPS_PROXY` or `https_proxy`), else of `ALL_PROXY`; else ""."""
    from urllib.request import getproxies_environment

    known = getproxies_environment()
    return known.get(urlsplit(url).scheme) or known.get("all") or ""


def split_login(proxy: str) -> tuple[str, Mapping[str, str] | None]:
    """Return a proxy without its login, and the login as headers: urllib3 does not send a login in the URL. Raises ValueError."""
    parts = urlsplit(proxy)
    login, _, place = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{place}", urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else None
