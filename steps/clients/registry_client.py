"""A client of one repository in an OCI registry: blobs by digest, manifests by tag, and the list of tags.

Source: https://github.com/opencontainers/distribution-spec/blob/main/spec.md. The facts about registries that this module rests on
are in `steps/docs/facts/registry.md`.
"""

import contextlib
import itertools
import re
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Final, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
import urllib3
from msgspec import Struct

from steps import timeouts
from steps.clients import bounded_answers, certificates, http_proxies, registry_login, request_retries
from steps.contract.canonical import UNREADABLE_JSON, digest_bytes
from steps.errors import NotUnderstood, Refused, Unreachable

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
ANY_MANIFEST: Final = (
    f"{MANIFEST}, {INDEX}, application/vnd.docker.distribution.manifest.v2+json,"
    " application/vnd.docker.distribution.manifest.list.v2+json, */*"
)
"""Every form of a manifest: to who asks for one form alone, registries say that a tag with another form does not exist."""
LARGEST_MANIFEST: Final = 4 << 20
"""Most bytes of a manifest, the limit that registries have themselves."""
MOST_TAGS: Final = 200_000
PAGE: Final = 1000
"""Most tags of a repository that are read, and tags that are asked for at a time."""
_LARGEST_PAGE: Final = 32 << 20
_MOST_ERROR: Final = 64 << 10
_MOST_REDIRECTS: Final = 3
_CHUNK: Final = 1 << 20
_NEXT: Final = re.compile(r'<([^>]{1,4000})>;\s*rel="?next"?')
_REDIRECTED: Final = (301, 302, 303, 307, 308)
_PORTS: Final = {"http": 80, "https": 443}
_HINT: Final = "see that the registry is up and reachable from here"
_SPACE: Final = re.compile(r"\s+")
Result = TypeVar("Result")


class RegistryUnavailable(Unreachable):
    """Raised if a registry does not answer, breaks an answer off, or says that it cannot answer now."""


class RegistryDenied(Refused):
    """Raised if a registry does not permit a request (401, 403), or shows a certificate that is not trusted."""


class RegistryMisread(NotUnderstood):
    """Raised if a registry answers in another way than the specification says."""


class BlobDiffers(RegistryMisread):
    """Raised if a blob has another digest or another size than it should."""


class RegistryLimits(Struct, frozen=True, kw_only=True):
    """Tries of one request, and times in seconds.

    `backoff` is the first pause between two tries, `patience` the time for which an upload is tried at least, `silence` the longest
    wait for the next byte, `answer` that for the answer to an upload, and `transfer` the limit of one blob as a whole.
    """

    tries: int = timeouts.REGISTRY_TRIES
    backoff: float = timeouts.REGISTRY_BACKOFF
    patience: float = timeouts.REGISTRY_PATIENCE
    silence: float = timeouts.REGISTRY_SILENCE
    answer: float = timeouts.REGISTRY_ANSWER
    transfer: float = timeouts.REGISTRY_TRANSFER


@dataclass(frozen=True, kw_only=True)
class RegistryRepository:
    """A repository: URL of its registry (`https://registry.example.org:5000`), name, login, and CA certificates.

    Without `authorities` those that this machine trusts verify the registry's certificate.
    """

    url: str
    name: str
    username: str = ""
    password: str = field(default="", repr=False)
    authorities: tuple[str, ...] = field(default=(), repr=False)


class _TagPage(Struct, frozen=True):
    tags: tuple[str, ...] | None = None


class RegistryClient:
    """Access to one repository. All methods raise RegistryUnavailable, RegistryDenied and RegistryMisread."""

    def __init__(self, repository: RegistryRepository, limits: RegistryLimits = RegistryLimits()) -> None:
        self._repository, self._limits = repository, limits
        self._base = f"{repository.url}/v2/{repository.name}"
        self._authorization = ""
        self._own = _pool(repository.url, repository.authorities)

    @property
    def place(self) -> str:
        """Registry and repository, for people, such as `registry.example.org:5000/hpc/cache`."""
        return f"{urlsplit(self._repository.url).netloc}/{self._repository.name}"

    def require_registry(self) -> None:
        """Raise unless a registry answers at the address: any other server says of everything that it is not there."""

        def read() -> None:
            what = f"API version of {self.place}"
            answer = self._send(self._own, "GET", f"{self._repository.url}/v2/", what, authorization=self._authorization)
            data = self._body(answer, what)
            if answer.status != 401:  # a registry that asks for a login is one
                _require(answer, (200,), f"request of {what}", data)

        self._tried(read)

    def require_push(self) -> None:
        """Raise unless the login may push. An upload is begun and cancelled, since no request asks for rights."""

        def write() -> None:
            what = f"upload to {self.place}"
            begun = self._request("POST", f"{self._base}/blobs/uploads/", what)
            _require(begun, (202,), f"begin of an {what}", self._body(begun, what))
            place = urlsplit(_target(begun, self._base, what))
            url = f"{self._repository.url}{place.path}{'?' if place.query else ''}{place.query}"
            # where a registry knows no cancelling, its own clean-up ends the upload
            self._body(self._request("DELETE", url, what), what)

        self._tried(write)

    def manifest(self, reference: str) -> bytes | None:
        """Return the manifest with a tag or digest, in whatever form it is; None if there is none."""

        def read() -> bytes | None:
            what = f"manifest {reference} of {self.place}"
            answer = self._request("GET", f"{self._base}/manifests/{reference}", what, headers={"Accept": ANY_MANIFEST})
            data = self._body(answer, what, LARGEST_MANIFEST)
            return None if _is_absent(answer, (200,), what, data) else data

        return self._tried(read)

    def put_manifest(self, reference: str, kind: str, data: bytes) -> None:
        """Store a manifest of a media type under a tag or its digest. Its blobs must be there."""

        def write() -> None:
            what = f"manifest {reference} of {self.place}"
            answer = self._request("PUT", f"{self._base}/manifests/{reference}", what, headers={"Content-Type": kind}, body=data)
            _require(answer, (201,), f"PUT of {what}", self._body(answer, what))

        self._tried(write, self._limits.patience)

    def blob(self, digest: str, most: int) -> bytes | None:
        """Return a blob of at most `most` bytes, whose digest was checked; None if there is none."""

        def read() -> bytes | None:
            what = f"blob {digest} of {self.place}"
            answer = self._followed("GET", digest, what)
            data = self._body(answer, what, most)
            if _is_absent(answer, (200,), what, data):
                return None
            if digest_bytes(data) != digest:
                raise BlobDiffers(f"{what} has the digest {digest_bytes(data)}")
            return data

        return self._tried(read)

    def download(self, digest: str, size: int, out: IO[bytes]) -> bool:
        """Write a blob of `size` bytes to a file, from its start; return False if there is none. The digest is not checked."""

        def read() -> bool:
            out.seek(0)
            out.truncate()
            what = f"blob {digest} of {self.place}"
            answer = self._followed("GET", digest, what)
            if answer.status != 200:
                return not _is_absent(answer, (200,), what, self._body(answer, what))
            self._stream(answer, what, size, out)
            return True

        return self._tried(read)

    def upload(self, digest: str, size: int, source: IO[bytes]) -> None:
        """Upload a blob from the start of a file, unless the repository has it."""

        def write() -> None:
            what = f"blob {digest} of {self.place}"
            known = self._followed("HEAD", digest, what)
            if not _is_absent(known, (200,), what, self._body(known, what)):
                return
            begun = self._request("POST", f"{self._base}/blobs/uploads/", what)
            _require(begun, (202,), f"begin of the upload of {what}", self._body(begun, what))
            # the path alone: behind a proxy registries name another scheme or host, to which no login may go
            place = urlsplit(_target(begun, self._base, what))
            query = "&".join(filter(None, (place.query, urlencode({"digest": digest}))))
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            source.seek(0)
            answer = self._request("PUT", f"{self._repository.url}{place.path}?{query}", what, headers=headers, body=source)
            _require(answer, (201,), f"upload of {what}", self._body(answer, what))

        self._tried(write, self._limits.patience)

    def tags(self) -> Iterator[str]:
        """Yield the tags of the repository, page by page; none if there is no such repository."""
        url, count, what = f"{self._base}/tags/list?n={PAGE}", 0, f"list of tags of {self.place}"
        while url:
            page, url = self._tried(lambda url=url: self._page(url, what))  # type: ignore[misc]
            count += len(page)
            if count > MOST_TAGS:
                raise RegistryMisread(f"{what}: it has more than {MOST_TAGS} tags", hint="remove tags that nobody needs")
            yield from page

    def _page(self, url: str, what: str) -> tuple[tuple[str, ...], str]:
        """Return the tags of a page, and the URL of the next one; empty after the last."""
        answer = self._request("GET", url, what)
        data = self._body(answer, what, _LARGEST_PAGE)
        if _is_absent(answer, (200,), what, data):
            return (), ""
        try:
            tags = msgspec.json.decode(data, type=_TagPage).tags or ()
        except UNREADABLE_JSON as error:
            raise RegistryMisread(f"{what}: the answer is no list of tags: {error}") from error
        match = _NEXT.search(answer.headers.get("Link", ""))
        place = urlsplit(urljoin(url, match[1])) if match else None
        following = f"{self._repository.url}{place.path}?{place.query}" if place else ""
        # a page without tags, and one that leads to itself, end the list: a registry could go on for ever
        return tags, following if tags and following != url else ""

    def _tried(self, call: Callable[[], Result], patience: float = 0.0) -> Result:
        """Call, and again with growing pauses while the registry is unavailable: all tries, and for `patience` seconds at least."""
        try:
            return call()
        except Unreachable as error:
            return _again(call, error, self._limits, patience)

    def _request(
        self, method: str, url: str, what: str, headers: dict[str, str] | None = None, body: bytes | IO[bytes] | None = None
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, log in if the registry asks for it, and return the answer, whose body is not read."""
        sent = self._authorization  # another thread may log in meanwhile
        answer = self._send(self._own, method, url, what, headers, body, authorization=sent)
        if answer.status == 401:
            data = self._body(answer, what)
            if not (authorization := self._login(answer.headers.get("WWW-Authenticate", ""), what, sent)):
                _require(answer, (), f"request of {what}", data)
            self._authorization = authorization
            if body is not None and not isinstance(body, bytes):
                body.seek(0)
            answer = self._send(self._own, method, url, what, headers, body, authorization=authorization)
        return answer

    def _send(
        self,
        pool: urllib3.PoolManager,
        method: str,
        url: str,
        what: str,
        headers: dict[str, str] | None = None,
        body: bytes | IO[bytes] | None = None,
        *,
        authorization: str = "",
    ) -> urllib3.BaseHTTPResponse:
        sent = dict(headers or {})
        if authorization:
            sent["Authorization"] = authorization
        with _errors_of(what):
            # a registry computes the digest of a large upload before it answers
            silence = self._limits.answer if method == "PUT" else self._limits.silence
            wait = urllib3.Timeout(connect=timeouts.REGISTRY_CONNECT, read=silence)
            return pool.request(method, url, body=body, headers=sent, timeout=wait, redirect=False, preload_content=False)

    def _followed(self, method: str, digest: str, what: str) -> urllib3.BaseHTTPResponse:
        """Request a blob, and follow redirects: registries send readers to object storage, which must not see the login."""
        url, is_own = f"{self._base}/blobs/{digest}", True
        answer = self._request(method, url, what)
        for number in itertools.count():
            if answer.status not in _REDIRECTED:
                break
            self._body(answer, what)
            if number == _MOST_REDIRECTS:
                raise RegistryMisread(f"{what}: the registry leads on and on, at last to {urlsplit(url).netloc[:100]}")
            url = _target(answer, url, what)
            if urlsplit(url).scheme != "https" and not self._repository.url.startswith("http:"):
                raise RegistryMisread(f"{what}: the registry leads from https to {urlsplit(url).netloc[:100]} without TLS")
            # another server that leads back to the registry chooses the path there, so the login is not sent then either
            is_own = is_own and _origin(url) == _origin(self._repository.url)
            if is_own:
                answer = self._request(method, url, what)
                continue
            with _pool(url, self._repository.authorities, others=True) as pool:
                answer = self._send(pool, method, url, what)
        return answer

    def _login(self, header: str, what: str, refused: str) -> str:
        """Return the Authorization header that meets a challenge; empty if there is none but the one that was refused."""
        challenge, repository = registry_login.challenge(header), self._repository
        if repository.username and not registry_login.is_confidential(repository.url):
            hint = "reach the registry by TLS, or leave out username and password"
            raise RegistryDenied(f"{what}: the login would cross the network in clear", hint=hint)
        basic = urllib3.make_headers(basic_auth=f"{repository.username}:{repository.password}") if repository.username else {}
        if challenge.scheme == "basic":
            login = basic.get("authorization", "")
            return login if login != refused else ""
        if challenge.scheme != "bearer":
            return ""
        is_plain = challenge.realm.startswith("http://") and repository.url.startswith("http:") and not basic
        if not is_plain and not registry_login.is_confidential(challenge.realm):
            raise RegistryMisread(f"{what}: the registry's token server {challenge.realm[:100]!r} is not reached by https")
        with _pool(challenge.realm, repository.authorities, others=True) as pool:
            token = f"a token for {self.place}"
            answer = self._send(pool, "GET", challenge.token_url, token, dict(basic))
            data = self._body(answer, token, registry_login.MOST_TOKEN)
        _require(answer, (200,), f"request of {token}", data)
        if not (authorization := registry_login.bearer(data)):
            raise RegistryMisread(f"the answer to the request of {token} has none")
        return authorization

    def _body(self, answer: urllib3.BaseHTTPResponse, what: str, most: int = _MOST_ERROR) -> bytes:
        limit = most if answer.status < 300 else _MOST_ERROR
        with _errors_of(what):
            return bounded_answers.read(answer, what, most_bytes=limit, deadline=time.monotonic() + self._limits.answer)

    def _stream(self, answer: urllib3.BaseHTTPResponse, what: str, size: int, out: IO[bytes]) -> None:
        """Write the body of an answer to a file. It must not have more bytes than `size`."""
        deadline, received, is_whole = time.monotonic() + self._limits.transfer, 0, False
        try:
            with _errors_of(what):
                while chunk := answer.read1(_CHUNK, decode_content=False):
                    if (received := received + len(chunk)) > size:
                        raise BlobDiffers(f"{what} has more than the {size} bytes that its entry says")
                    if time.monotonic() > deadline:
                        raise RegistryUnavailable(f"{what} comes too slowly: {received} of {size} bytes so far", hint=_HINT)
                    out.write(chunk)
            is_whole = True
        finally:
            if is_whole:
                answer.release_conn()
            else:
                answer.close()
        out.flush()


def _pool(url: str, authorities: tuple[str, ...], *, others: bool = False) -> urllib3.PoolManager:
    """Return a pool of connections to a server, by the proxy that the environment names. Raises RegistryMisread for a bad URL.

    A server on this machine is never asked by a proxy: logins go there without TLS, and the proxy would have another localhost.
    With `others` the machine's own CA certificates count beside `authorities`: the server is not the registry itself.
    """
    more: dict[str, Any] = {"retries": False}
    if authorities:
        more["ssl_context"] = _context(authorities, others=others)
    try:
        proxy = "" if registry_login.is_local(url) else http_proxies.on_the_way(url)
        bare, login = http_proxies.split_login(proxy) if proxy else ("", None)
        pool = urllib3.ProxyManager(bare, 1, proxy_headers=login, **more) if proxy else urllib3.PoolManager(1, **more)
    except (urllib3.exceptions.LocationValueError, ValueError) as error:
        raise RegistryMisread(f"{url[:100]!r} cannot be reached: {type(error).__name__}") from error
    pool.pool_classes_by_scheme = bounded_answers.pool_classes(timeouts.REGISTRY_ANSWER)
    return pool


def _target(answer: urllib3.BaseHTTPResponse, url: str, what: str) -> str:
    """Return the address to which the answer to a URL leads. Raises RegistryMisread if it is none."""
    try:
        target = urljoin(url, answer.headers.get("Location", ""))
        _origin(target)
    except ValueError as error:
        raise RegistryMisread(f"{what}: the registry leads to an address that is none ({error})"[:300]) from error
    return target


def _origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL. Raises ValueError for an unusable one."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def _context(authorities: tuple[str, ...], *, others: bool) -> ssl.SSLContext:
    context = certificates.trusting_context(authorities)
    if others:
        context.load_default_certs()
    return context


@contextlib.contextmanager
def _errors_of(what: str) -> Iterator[None]:
    """Turn errors of urllib3 into those of this module."""
    try:
        yield
    except urllib3.exceptions.SSLError as error:
        cause = error.args[0] if error.args else None
        if not isinstance(cause, ssl.SSLCertVerificationError):  # cut off, or no TLS at all
            raise RegistryUnavailable(f"{what}: no TLS with the registry: {_short(str(error))}", hint=_HINT) from error
        hint = "give the CA certificates that sign the registry's, or correct its name"
        raise RegistryDenied(f"{what}: the registry's certificate is not trusted: {cause.verify_message}", hint=hint) from error
    except (urllib3.exceptions.LocationValueError, UnicodeError) as error:
        raise RegistryMisread(f"{what}: the registry leads to an address that is none ({type(error).__name__})") from error
    except urllib3.exceptions.HTTPError as error:
        raise RegistryUnavailable(f"{what}: the registry does not answer: {_short(str(error))}", hint=_HINT) from error


def _is_absent(answer: urllib3.BaseHTTPResponse, statuses: tuple[int, ...], what: str, data: bytes) -> bool:
    """Return True if an answer says that there is no such thing. Raises unless its status is that, or one of `statuses`."""
    if answer.status == 404:
        return True
    _require(answer, statuses, f"request of {what}", data)
    return False


def _require(answer: urllib3.BaseHTTPResponse, statuses: tuple[int, ...], what: str, data: bytes) -> None:
    """Raise the error that the status of an answer means, unless it is one of `statuses`."""
    if answer.status in statuses:
        return
    text = f"the registry answered {answer.status} to the {what}: {_short(data[:300].decode(errors='replace'))}".rstrip(": ")
    if answer.status in (401, 403):
        raise RegistryDenied(text, hint="see the login, and what it may do in this repository")
    if answer.status in (408, 429) or answer.status >= 500:
        raise RegistryUnavailable(text, hint=_HINT)
    raise RegistryMisread(text, hint="see that the address is that of a registry, and its log")


def _short(text: str) -> str:
    return _SPACE.sub(" ", text).strip()[:300]


def _again(call: Callable[[], Result], first: Unreachable, limits: RegistryLimits, patience: float) -> Result:
    """Retry a call whose first try failed with `first`; return its result or raise its last error."""
    import tenacity

    stop = tenacity.stop_all(tenacity.stop_after_attempt(limits.tries), tenacity.stop_after_delay(patience))
    wait = tenacity.wait_exponential(limits.backoff, max=timeouts.REGISTRY_BACKOFF_MAX)
    return request_retries.after_failure(call, first, stop=stop, wait=wait)
