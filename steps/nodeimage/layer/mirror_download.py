"""Download of packages from mirrors: size and digest are checked as the bytes come, and transient errors are retried."""

import hashlib
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import IO, Any, Final
from urllib.parse import urlsplit

import tenacity
import urllib3

from steps import timeouts
from steps.clients import bounded_answers, http_proxies
from steps.contract import plain_text
from steps.errors import BadTask, NotUnderstood, StepError, Unreachable
from steps.nodeimage.contract.resolved_recipe import Package
from steps.nodeimage.layer import mirror_settings

_CHUNK: Final = 1 << 18
_WANTS_LOGIN: Final = 401
_LATER: Final = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS: Final = 4
_LONGEST_KIND: Final = 40
MOST_ODD: Final = 8
"""Number of packages in a row for which a mirror may answer with an error or a wrong page before it is asked for no more.

One broken object must not block others, and a mirror in maintenance must not be asked a thousand times.
"""


class Gone(NotUnderstood):
    """Error: the mirror does not have the package or refuses it, and a retry would not help."""


class Different(NotUnderstood):
    """Error: the mirror sends bytes that are not the locked package."""


class _ShortAnswer(Different):
    """Error: the mirror sent a complete answer that is shorter than the package.

    Some mirrors and proxies send such pages with status 200 for an error. A retry may help; the mirror is not away.
    """


class _MirrorBusy(Unreachable):
    """Error: the mirror answers that it cannot give this package now (such as HTTP 503)."""


class Mirrors:
    """HTTP client for the mirrors of one recipe, used by several threads. A mirror that did not answer is not asked again."""

    def __init__(self, connections: int, patience: float = timeouts.PACKAGE_READ) -> None:
        self._patience = patience
        self._wait = urllib3.Timeout(connect=timeouts.PACKAGE_CONNECT, read=timeouts.PACKAGE_READ)
        self._connections = connections
        self._pools: dict[tuple[str, str], urllib3.PoolManager] = {}
        self._given_up: dict[str, _ShortAnswer | Unreachable] = {}
        self._odd: Counter[str] = Counter()
        self._apt_proxies: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def fetch(self, source: str, package: Package, file: IO[bytes]) -> None:
        """Download a package from the repository at URL `source` into an empty file.

        Raises Gone, Different, Unreachable or BadTask.
        """
        if why := self._given_up.get(source):
            raise type(why)(str(why))
        try:
            _patiently(lambda: self._once(f"{source}/{package.path}", package, file))
        except (_ShortAnswer, Unreachable) as error:
            self._failed(source, error)
            raise
        self._odd[source] = 0

    def _failed(self, source: str, error: _ShortAnswer | Unreachable) -> None:
        if not isinstance(error, (_ShortAnswer, _MirrorBusy)):
            self._given_up[source] = error
            return
        self._odd[source] += 1
        if self._odd[source] >= MOST_ODD:
            self._given_up[source] = type(error)(f"{error}; it did so {MOST_ODD} times, and is not asked for others")

    def _once(self, url: str, package: Package, file: IO[bytes]) -> None:
        file.seek(0)
        file.truncate()
        # redirects alone: `_patiently` retries all else
        followed = urllib3.Retry(total=_REDIRECTS, connect=0, read=0, status=0, other=0, redirect=_REDIRECTS)
        try:
            # never decoded: a mirror may label a package as gzip, and the digest is that of its bytes as they are
            answer = self._pool(url).request("GET", url, preload_content=False, decode_content=False, retries=followed)
            try:
                take(answer, url, package, file, self._patience)
            finally:  # one that was not read to its end is broken, and must not be reused
                answer.close()
                answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"{_host(url)} does not answer{self._through(url)}: {_reason(error)}") from error

    def close(self) -> None:
        """Close all connections to mirrors."""
        for pool in self._pools.values():
            pool.clear()

    def _pool(self, url: str) -> urllib3.PoolManager:
        """Return the connections to a URL's mirror, through its proxy. Raises BadTask for an unusable proxy or certificate file."""
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
    def _apt(self) -> mirror_settings.AptSettings:
        return mirror_settings.read()

    def _proxy(self, url: str) -> str:
        """Return the proxy for a URL from the environment, else from apt's settings; empty for none."""
        return http_proxies.on_the_way(url, self._apt_proxy)

    def _apt_proxy(self, url: str) -> str:
        """Return the proxy for a URL from apt's settings, read once per host as apt does, because a slow program may answer."""
        place = urlsplit(url)[:2]
        if place not in self._apt_proxies:
            self._apt_proxies[place] = self._apt.proxy(url)
        return self._apt_proxies[place]

    def _through(self, url: str) -> str:
        proxy = self._proxy(url)
        return f" through proxy {urlsplit(proxy).netloc.rpartition('@')[2]}, which {_namer(url)}" if proxy else ""

    def _connected(self, proxy: str, authorities: str) -> urllib3.PoolManager:
        options: dict[str, Any] = {"maxsize": self._connections, "block": True, "timeout": self._wait}
        if authorities:  # besides those of the system: a package is known by its digest
            options["ssl_context"] = ssl.create_default_context()
            options["ssl_context"].load_verify_locations(authorities)
        bare, login = http_proxies.split_login(proxy) if proxy else ("", None)
        pool = urllib3.ProxyManager(bare, proxy_headers=login, **options) if proxy else urllib3.PoolManager(**options)
        pool.pool_classes_by_scheme = bounded_answers.pool_classes(timeouts.PACKAGE_READ)
        return pool


def _namer(url: str) -> str:
    """Return who names the proxy for a URL, as words for a message: the environment or apt's settings."""
    return "the environment names" if http_proxies.in_environment(url) else "apt's settings name"


def _patiently(once: Callable[[], None]) -> None:
    tenacity.Retrying(
        stop=tenacity.stop_after_attempt(timeouts.PACKAGE_TRIES),
        wait=tenacity.wait_exponential(multiplier=timeouts.PACKAGE_BACKOFF_FIRST, max=timeouts.PACKAGE_BACKOFF_MAX),
        retry=tenacity.retry_if_exception_type((_ShortAnswer, Unreachable)),
        reraise=True,
    )(once)


def take(answer: urllib3.BaseHTTPResponse, url: str, package: Package, file: IO[bytes], patience: float) -> None:
    """Write the body of an answer to the file, if it is the package. Raises Gone, Different, Unreachable, or errors of urllib3."""
    if answer.status != 200:
        message = f"{_host(url)} answers {answer.status} {answer.reason or ''}".rstrip() + f" to {urlsplit(url).path}"
        message += "; no login is sent, nor is that of apt's auth.conf" if answer.status == _WANTS_LOGIN else ""
        raise _MirrorBusy(message) if answer.status in _LATER else Gone(message)
    digest, size = hashlib.sha256(), 0
    deadline = time.monotonic() + patience + package.size / timeouts.PACKAGE_LEAST_RATE
    while chunk := answer.read1(_CHUNK, decode_content=False):
        size += len(chunk)
        if time.monotonic() > deadline:
            raise Unreachable(
                f"{_host(url)} sends {package.name}={package.version} too slowly: {size} of {package.size} bytes so far"
            )
        if size > package.size:
            raise Different(f"{_host(url)} sends more than the {package.size} bytes of {package.name}={package.version}")
        digest.update(chunk)
        file.write(chunk)
    if size < package.size:
        raise _short(answer, url, size, package)
    if digest.hexdigest() != package.sha256:
        named = f"{package.name}={package.version}"
        raise Different(f"{_host(url)} sends another {named} than the locked one: sha256 {digest.hexdigest()}")


def _short(answer: urllib3.BaseHTTPResponse, url: str, size: int, package: Package) -> _ShortAnswer | Unreachable:
    """Return the error for an answer with too few bytes: _ShortAnswer if it was complete, else Unreachable.

    If the answer gives its length, urllib3 has already raised before this point.
    """
    what = f"the {package.size} bytes of {package.name}={package.version}"
    if "Content-Length" not in answer.headers and "chunked" not in answer.headers.get("Transfer-Encoding", "").lower():
        return Unreachable(f"{_host(url)} sent {size} of {what}")
    kind = plain_text.line(answer.headers.get("Content-Type", ""))[:_LONGEST_KIND]
    return _ShortAnswer(f"{_host(url)} answers with {size} bytes{f' of {kind}' if kind else ''} for {what}")


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    """Return the system's reason for a failed connection, which is nested in urllib3's errors (twice with a proxy)."""
    cause: BaseException = getattr(error, "reason", None) or error
    below: BaseException | None = cause
    while (below := below and (below.__cause__ or below.__context__)) is not None:
        if isinstance(below, OSError) and below.strerror:
            return below.strerror
    return str(cause.args[-1]) if cause.args else type(cause).__name__


def in_words(error: StepError) -> str:
    """Return the reason why a package could not be fetched in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]
