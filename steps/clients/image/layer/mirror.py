"""Downloads packages from mirrors: size and digest are checked as the bytes come, and what may pass is tried again."""

import hashlib
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import IO, Any, Final
from urllib.parse import urlsplit

import tenacity
import urllib3

from steps import timeouts
from steps.clients import http_proxies
from steps.clients.image.layer import apt_settings
from steps.contract import plain
from steps.contract.image.recipe import Package
from steps.errors import BadTask, NotUnderstood, StepError, Unreachable

_CHUNK: Final = 1 << 18
_WANTS_LOGIN: Final = 401
_LATER: Final = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS: Final = 4
_LONGEST_KIND: Final = 40
MOST_ODD: Final = 8
"""Packages one after the other for which a mirror that answers gives an error or a page, before it is not asked for the others: one
object that it cannot give keeps no other away, and a mirror in maintenance is not asked a thousand times."""


class Gone(NotUnderstood):
    """The mirror does not have the package, or does not give it: to ask again would not help."""


class Different(NotUnderstood):
    """What the mirror sends is not the locked package."""


class Page(Different):
    """A whole answer that is shorter than the package, as the pages are that some mirrors and proxies send with 200 for an error.
    To ask again may help; the mirror is not away."""


class Busy(Unreachable):
    """The mirror answers that it cannot give this package now."""


class Mirrors:
    """All mirrors of one recipe, for several threads at once. One that was found to be away is not asked again."""

    def __init__(self, connections: int) -> None:
        self._wait = urllib3.Timeout(connect=timeouts.PACKAGE_CONNECT, read=timeouts.PACKAGE_READ)
        self._connections = connections
        self._pools: dict[tuple[str, str], urllib3.PoolManager] = {}
        self._given_up: dict[str, Page | Unreachable] = {}
        self._odd: Counter[str] = Counter()
        self._told: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def fetch(self, source: str, package: Package, file: IO[bytes]) -> None:
        """Write a package of the repository `source` to an empty file. Raises Gone, Different or Unreachable."""
        if why := self._given_up.get(source):
            raise type(why)(str(why))
        try:
            _patiently(lambda: self._once(f"{source}/{package.path}", package, file))
        except (Page, Unreachable) as error:
            self._failed(source, error)
            raise
        self._odd[source] = 0

    def _failed(self, source: str, error: Page | Unreachable) -> None:
        if not isinstance(error, (Page, Busy)):
            self._given_up[source] = error
            return
        self._odd[source] += 1
        if self._odd[source] >= MOST_ODD:
            self._given_up[source] = type(error)(f"{error}; it did so {MOST_ODD} times, and is not asked for others")

    def _once(self, url: str, package: Package, file: IO[bytes]) -> None:
        file.seek(0)
        file.truncate()
        followed = urllib3.Retry(total=_REDIRECTS, connect=0, read=0, status=0, other=0, redirect=_REDIRECTS)
        try:
            answer = self._pool(url).request("GET", url, preload_content=False, decode_content=False, retries=followed)
            with _given_back(answer):
                _taken(answer, url, package, file)
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"{_host(url)} does not answer{self._through(url)}: {_reason(error)}") from error

    def close(self) -> None:
        """End all connections."""
        for pool in self._pools.values():
            pool.clear()

    def _pool(self, url: str) -> urllib3.PoolManager:
        """The connections to a mirror, through the proxy on the way to it. Raises BadTask where that is none."""
        with self._lock:
            authorities = self._apt.authorities(url)
            try:
                proxy = self._proxy(url)
                if (proxy, authorities) not in self._pools:
                    self._pools[proxy, authorities] = self._connected(proxy, authorities)
            except ValueError as error:
                raise BadTask(f"the proxy that {_namer(url)} for {_host(url)} is none ({type(error).__name__})") from None
            except OSError as error:
                raise BadTask(
                    f"{authorities}, apt's CAInfo for {_host(url)}, holds no certificates: {error.strerror or error}"
                ) from error
            return self._pools[proxy, authorities]

    @cached_property
    def _apt(self) -> apt_settings.Settings:
        return apt_settings.read()

    def _proxy(self, url: str) -> str:
        """The proxy that the environment names on the way to a mirror, else that of apt's settings; empty for none."""
        return http_proxies.on_the_way(url, self._told_by_apt)

    def _told_by_apt(self, url: str) -> str:
        """The proxy of apt's settings, asked once for a host as apt does: a program may be what says it, and be slow."""
        parts = urlsplit(url)
        place = (parts.scheme, parts.netloc)
        if place not in self._told:
            self._told[place] = self._apt.proxy(url)
        return self._told[place]

    def _through(self, url: str) -> str:
        proxy = self._proxy(url)
        return f" through proxy {urlsplit(proxy).netloc.rpartition('@')[2]}, which {_namer(url)}" if proxy else ""

    def _connected(self, proxy: str, authorities: str) -> urllib3.PoolManager:
        told: dict[str, Any] = {"maxsize": self._connections, "block": True, "timeout": self._wait}
        if authorities:  # besides those of the system: a package is known by its digest
            told["ssl_context"] = ssl.create_default_context()
            told["ssl_context"].load_verify_locations(authorities)
        if not proxy:
            return urllib3.PoolManager(**told)
        bare, login = http_proxies.apart(proxy)
        return urllib3.ProxyManager(bare, proxy_headers=login, **told)


def _namer(url: str) -> str:
    """Who names the proxy on the way to a mirror."""
    return "the environment names" if http_proxies.in_environment(url) else "apt's settings name"


def _patiently(once: Callable[[], None]) -> None:
    tenacity.Retrying(
        stop=tenacity.stop_after_attempt(timeouts.PACKAGE_TRIES),
        wait=tenacity.wait_exponential(multiplier=timeouts.PACKAGE_BACKOFF_FIRST, max=timeouts.PACKAGE_BACKOFF_MAX),
        retry=tenacity.retry_if_exception_type((Page, Unreachable)),
        reraise=True,
    )(once)


@contextmanager
def _given_back(answer: urllib3.BaseHTTPResponse) -> Iterator[None]:
    """Its connection goes back to the pool, closed where the answer was not read to its end: nobody gets one that is not back."""
    try:
        yield
    finally:
        answer.close()
        answer.release_conn()


def _taken(answer: urllib3.BaseHTTPResponse, url: str, package: Package, file: IO[bytes]) -> None:
    """Write the body. Raises Gone, Different, Unreachable; urllib3's own where the connection breaks."""
    if answer.status != 200:
        said = f"{_host(url)} answers {answer.status} {answer.reason or ''}".rstrip() + f" to {urlsplit(url).path}"
        said += "; no login is sent, nor is that of apt's auth.conf" if answer.status == _WANTS_LOGIN else ""
        raise Busy(said) if answer.status in _LATER else Gone(said)
    seen, size = hashlib.sha256(), 0
    while chunk := answer.read(_CHUNK, decode_content=False):
        size += len(chunk)
        if size > package.size:
            raise Different(f"{_host(url)} sends more than the {package.size} bytes of {package.name}={package.version}")
        seen.update(chunk)
        file.write(chunk)
    if size < package.size:
        raise _short(answer, url, size, package)
    if seen.hexdigest() != package.sha256:
        raise Different(
            f"{_host(url)} sends another {package.name}={package.version} than the locked one: sha256 {seen.hexdigest()}"
        )


def _short(answer: urllib3.BaseHTTPResponse, url: str, size: int, package: Package) -> Page | Unreachable:
    """Why too few bytes came: of an answer that says where it ends, urllib3 has told already where that was not reached."""
    what = f"the {package.size} bytes of {package.name}={package.version}"
    if "Content-Length" not in answer.headers and "chunked" not in answer.headers.get("Transfer-Encoding", "").lower():
        return Unreachable(f"{_host(url)} sent {size} of {what}")
    kind = plain.line(answer.headers.get("Content-Type", ""))[:_LONGEST_KIND]
    return Page(f"{_host(url)} answers with {size} bytes{f' of {kind}' if kind else ''} for {what}")


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    """What the system says of a connection, which lies below what urllib3 says (twice where a proxy is on the way)."""
    cause: BaseException = getattr(error, "reason", None) or error
    below: BaseException | None = cause
    while (below := below and (below.__cause__ or below.__context__)) is not None:
        if isinstance(below, OSError) and below.strerror:
            return below.strerror
    return str(cause.args[-1]) if cause.args else type(cause).__name__


def in_words(error: StepError) -> str:
    """One line about what kept a package away."""
    return " ".join(str(error).split())[:300]
