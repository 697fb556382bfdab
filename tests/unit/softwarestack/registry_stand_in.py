"""A stand-in for an OCI registry, in memory: blobs, manifests, pages of tags, logins, redirects, and answers that go wrong.

`tests/stack/test_registry_cache.py` holds it against a real registry.
"""

import base64
import contextlib
import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

TOKEN = "registry-token"
_ROUTE = re.compile(r"/v2/(?P<name>[a-z0-9/._-]+)/(?P<kind>manifests|blobs|tags)/(?P<last>[A-Za-z0-9:._-]+|uploads/[0-9]*)")


class StandInRegistry(ThreadingHTTPServer):
    """A registry of one machine. Tests set what it asks for and how it fails.

    `login` is `USER:PASSWORD`, for scheme `basic` or `bearer`, and `realm` the URL of another token server. `storage` is the URL to
    which reads of blobs are redirected. `page` is the most tags of a page. `refuse` maps a method and a part of a path to the
    statuses of the next answers, `bodies` a path to an answer with status 200. `before` is called with each request before it has
    an effect; if it raises ConnectionAbortedError, the request has none. `immutable` refuses a second manifest for a tag.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _RegistryRequests)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.login, self.scheme, self.realm, self.storage, self.page = "", "basic", "", "", 1000
        self.refuse: dict[tuple[str, str], list[int]] = {}
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.immutable = False
        self.bodies: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and Authorization header of each request."""
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, except for a client that is gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """URL of the registry."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def tags(self) -> list[str]:
        """Return all tags, in order."""
        return sorted(tag for tag in self.manifests if not tag.startswith("sha256:"))


class _RegistryRequests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: StandInRegistry

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def answer(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle_request(self) -> None:
        server, path = self.server, urlsplit(self.path).path
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        server.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
        try:
            server.before(self.command, self.path)
        except ConnectionAbortedError:
            self.close_connection = True
            return
        for (method, part), statuses in server.refuse.items():
            if method == self.command and part in self.path and statuses:
                self.answer(statuses.pop(0), b"<html>refused by the test</html>")
                return
        if path in server.bodies:
            self.answer(200, server.bodies[path])
        elif path == "/token":
            self.token()
        elif path.startswith("/storage/"):
            self.answer(200, server.blobs[unquote(path.removeprefix("/storage/"))])
        elif server.login and not self.is_permitted():
            challenge = (
                f'Bearer realm="{server.realm or f"{server.url}/token"}",service="stand-in",scope="repository:cache:pull,push"'
            )
            self.answer(401, WWW_Authenticate=challenge if server.scheme == "bearer" else 'Basic realm="stand-in"')
        elif path == "/v2/":
            self.answer(200, b"{}")
        elif match := _ROUTE.fullmatch(path):
            {"manifests": self.manifest, "blobs": self.blob, "tags": self.tags}[match["kind"]](match["last"], data)
        else:
            self.answer(404)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_request  # noqa: N815  # names of the base class

    def is_permitted(self) -> bool:
        authorization = self.headers.get("Authorization", "")
        basic = f"Basic {base64.b64encode(self.server.login.encode()).decode()}"
        return authorization == (f"Bearer {TOKEN}" if self.server.scheme == "bearer" else basic)

    def token(self) -> None:
        basic = f"Basic {base64.b64encode(self.server.login.encode()).decode()}"
        if self.headers.get("Authorization") != basic:
            self.answer(401)
            return
        self.answer(200, json.dumps({"token": TOKEN, "expires_in": 60}).encode())

    def manifest(self, reference: str, data: bytes) -> None:
        server = self.server
        if self.command == "PUT":
            with server.lock:
                if server.immutable and reference in server.manifests:
                    self.answer(412)
                    return
                document = json.loads(data)
                named = [document["config"], *document["layers"]]
                if any(part["digest"] not in server.blobs for part in named):
                    self.answer(400, b'{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN"}]}')
                    return
                server.manifests[reference] = (self.headers["Content-Type"], data)
            self.answer(201)
        elif (stored := server.manifests.get(reference)) is None:
            self.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        else:
            self.answer(200, stored[1], Content_Type=stored[0])

    def blob(self, last: str, data: bytes) -> None:
        server = self.server
        if self.command == "POST":
            self.answer(202, Location=f"{urlsplit(self.path).path}1?_state=a")
        elif self.command == "DELETE":
            self.answer(204)
        elif self.command == "PUT":
            wanted = parse_qs(urlsplit(self.path).query)["digest"][0]
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != wanted:
                self.answer(400, b'{"errors":[{"code":"DIGEST_INVALID"}]}')
                return
            server.blobs[wanted] = data
            self.answer(201)
        elif last not in server.blobs:
            self.answer(404)
        elif server.storage:
            self.answer(307, Location=f"{server.storage}/storage/{quote(last)}?signature=s")
        else:
            self.answer(200, server.blobs[last])

    def tags(self, _last: str, _data: bytes) -> None:
        query = parse_qs(urlsplit(self.path).query)
        size, after = min(int(query["n"][0]), self.server.page), query.get("last", [""])[0]
        rest = [tag for tag in self.server.tags() if tag > after]
        path = urlsplit(self.path).path
        more = {"Link": f'<{path}?last={rest[size - 1]}&n={size}>; rel="next"'} if len(rest) > size else {}
        self.answer(200, json.dumps({"name": "cache", "tags": rest[:size] or None}).encode(), **more)


@contextlib.contextmanager
def serving() -> Iterator[StandInRegistry]:
    """Serve a registry during the block."""
    with StandInRegistry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
