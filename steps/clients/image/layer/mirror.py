"""Downloads packages from mirrors: size and digest are checked as the bytes come, and what may pass is tried again."""

import hashlib
import threading
from collections.abc import Callable
from contextlib import closing
from typing import IO, Any, Final
from urllib.parse import urlsplit

import tenacity
import urllib3

from steps import timeouts
from steps.contract.image.recipe import Package
from steps.errors import NotUnderstood, StepError, Unreachable

_CHUNK: Final = 1 << 18
_LATER: Final = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS: Final = 4


class Gone(NotUnderstood):
    """The mirror does not have the package, or does not give it: to ask again would not help."""


class Different(NotUnderstood):
    """What the mirror sends is not the locked package."""


class Mirrors:
    """All mirrors of one recipe, for several threads at once. One that was found to be away is not asked again."""

    def __init__(self, connections: int) -> None:
        self._wait = urllib3.Timeout(connect=timeouts.PACKAGE_CONNECT, read=timeouts.PACKAGE_READ)
        self._connections = connections
        self._pools: dict[str, urllib3.PoolManager] = {}
        self._away: dict[str, str] = {}
        self._lock = threading.Lock()

    def fetch(self, source: str, package: Package, file: IO[bytes]) -> None:
        """Write a package of the repository `source` to an empty file. Raises Gone, Different or Unreachable."""
        if why := self._away.get(source):
            raise Unreachable(why)
        try:
            _patiently(lambda: self._once(f"{source}/{package.path}", package, file))
        except Unreachable as error:
            self._away[source] = str(error)
            raise

    def _once(self, url: str, package: Package, file: IO[bytes]) -> None:
        file.seek(0)
        file.truncate()
        followed = urllib3.Retry(total=_REDIRECTS, connect=0, read=0, status=0, other=0, redirect=_REDIRECTS)
        try:
            answer = self._pool(url).request("GET", url, preload_content=False, decode_content=False, retries=followed)
            with closing(answer):  # read to its end it has given its connection back already
                _taken(answer, url, package, file)
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"{_host(url)} does not answer: {_reason(error)}") from error

    def close(self) -> None:
        """End all connections."""
        for pool in self._pools.values():
            pool.clear()

    def _pool(self, url: str) -> urllib3.PoolManager:
        """The connections to a mirror, through the proxy that the environment names for it."""
        with self._lock:
            proxy = _proxy(url)
            if proxy not in self._pools:
                told: dict[str, Any] = {"maxsize": self._connections, "block": True, "timeout": self._wait}
                self._pools[proxy] = urllib3.ProxyManager(proxy, **told) if proxy else urllib3.PoolManager(**told)
            return self._pools[proxy]


def _patiently(once: Callable[[], None]) -> None:
    tenacity.Retrying(
        stop=tenacity.stop_after_attempt(timeouts.PACKAGE_TRIES),
        wait=tenacity.wait_exponential(multiplier=timeouts.PACKAGE_BACKOFF_FIRST, max=timeouts.PACKAGE_BACKOFF_MAX),
        retry=tenacity.retry_if_exception_type(Unreachable),
        reraise=True,
    )(once)


def _taken(answer: urllib3.BaseHTTPResponse, url: str, package: Package, file: IO[bytes]) -> None:
    """Write the body. Raises Gone, Different, Unreachable; urllib3's own where the connection breaks."""
    if answer.status != 200:
        said = f"{_host(url)} answers {answer.status} {answer.reason or ''}".rstrip() + f" to {urlsplit(url).path}"
        raise Unreachable(said) if answer.status in _LATER else Gone(said)
    seen, size = hashlib.sha256(), 0
    while chunk := answer.read(_CHUNK, decode_content=False):
        size += len(chunk)
        if size > package.size:
            raise Different(f"{_host(url)} sends more than the {package.size} bytes of {package.name}={package.version}")
        seen.update(chunk)
        file.write(chunk)
    if size < package.size:
        raise Unreachable(f"{_host(url)} sent {size} of the {package.size} bytes of {package.name}={package.version}")
    if seen.hexdigest() != package.sha256:
        raise Different(
            f"{_host(url)} sends another {package.name}={package.version} than the locked one: sha256 {seen.hexdigest()}"
        )


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    """What the system says of a connection; what urllib3 says where that is all there is."""
    cause = getattr(error, "reason", None) or error
    below = cause.__cause__ or cause.__context__
    said = below.strerror if isinstance(below, OSError) else None
    return said or (str(cause.args[-1]) if cause.args else type(cause).__name__)


def _proxy(url: str) -> str:
    """The proxy on the way to a URL, as the environment names it; empty for none."""
    from urllib.request import getproxies_environment, proxy_bypass

    parts = urlsplit(url)
    known = getproxies_environment()
    found = known.get(parts.scheme) or known.get("all") or ""
    if not found or proxy_bypass(parts.hostname or ""):
        return ""
    return found if "://" in found else f"http://{found}"


def in_words(error: StepError) -> str:
    """One line about what kept a package away."""
    return " ".join(str(error).split())[:300]
