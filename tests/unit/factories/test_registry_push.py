"""Pushes of OCI archives to a registry in memory, which is a stand-in for CNCF distribution; about 1 CPU second."""

import dataclasses
import gzip
import hashlib
import io
import json
import re
import ssl
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from steps.contract.delivery import certificates
from tests.unit.factories.conftest import STARTER
from tests.unit.steps import authority
from workflows.app.factories import factory_specs, registry_certificate, registry_listing, registry_push
from workflows.app.factories.registry_certificate import UnusableCertificate
from workflows.app.factories.registry_push import INDEX, MANIFEST, NotPushed, RegistryEndpoint
from workflows.spec import load_factory
from workflows.spec.pipelines.factory_spec import BuilderImage

IMAGE = BuilderImage(archive="builder.tar", name="builders/spack", tag="0.23")


class PushedRegistry(ThreadingHTTPServer):
    """A registry in memory: blobs need the right digest, and manifests need their blobs. `elsewhere` misleads uploads."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _PushRequests)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.elsewhere = ""

    @property
    def at(self) -> RegistryEndpoint:
        """Return where it is pushed to."""
        return RegistryEndpoint(url=f"http://127.0.0.1:{self.server_address[1]}")


class _PushRequests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PushedRegistry

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/v2/" else 404)

    def do_HEAD(self) -> None:
        self.answer(200 if self.path.rpartition("/")[2] in self.server.blobs else 404)

    def do_POST(self) -> None:
        self.answer(202, Location=self.server.elsewhere or f"{self.path}1?_state=a")

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        own = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if match := re.fullmatch(r"/v2/builders/spack/blobs/uploads/1\?_state=a&digest=sha256%3A([0-9a-f]{64})", self.path):
            self.server.blobs[own] = data
            self.answer(201 if own == f"sha256:{match[1]}" else 400)
            return
        document = json.loads(data)
        parts = document.get("manifests") or [document["config"], *document["layers"]]
        known = {*self.server.blobs, *self.server.manifests}
        self.server.manifests |= {self.path.rpartition("/")[2]: data, own: data}
        self.answer(201 if {part["digest"] for part in parts} <= known else 400)


@pytest.fixture
def registry() -> Iterator[PushedRegistry]:
    with PushedRegistry() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Archive:
    """An OCI archive in the making."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def blob(self, data: bytes, kind: str) -> dict[str, Any]:
        """Add a blob and return its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def document(self, document: dict[str, Any], kind: str) -> dict[str, Any]:
        """Add a JSON document as a blob and return its descriptor."""
        return self.blob(json.dumps(document).encode(), kind)

    def image(self, layer: bytes = b"layer") -> dict[str, Any]:
        """Add an image of one layer and return its descriptor."""
        config = self.document({"os": "linux"}, "application/vnd.oci.image.config.v1+json")
        layers = [self.blob(layer, "application/vnd.oci.image.layer.v1.tar")]
        return self.document({"schemaVersion": 2, "config": config, "layers": layers}, MANIFEST)

    def write(self, path: Path, *manifests: dict[str, Any]) -> Path:
        """Write the archive with an index of these manifests."""
        with tarfile.open(path, "w") as archive:
            for name, data in {**self.files, "index.json": json.dumps({"manifests": manifests}).encode()}.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return path


def test_an_image_is_pushed_once(registry: PushedRegistry, tmp_path: Path) -> None:
    archive = Archive()
    entry = archive.image()
    path = archive.write(tmp_path / "builder.tar", entry)
    pushed = registry_push.push(registry.at, path, IMAGE)
    assert (pushed.digest, pushed.uploaded) == (entry["digest"], 2)
    assert hashlib.sha256(registry.manifests["0.23"]).hexdigest() == entry["digest"].removeprefix("sha256:")
    assert registry_push.archive_digest(path) == pushed.digest
    again = registry_push.push(registry.at, path, IMAGE)
    assert again.sentence == f"builders/spack:0.23 is in the registry already: {entry['digest']}"


def test_an_index_of_platforms_is_pushed_with_its_images(registry: PushedRegistry, tmp_path: Path) -> None:
    archive = Archive()
    images = [archive.image(b"amd64"), archive.image(b"arm64")]
    entry = archive.document({"schemaVersion": 2, "manifests": images}, INDEX)
    pushed = registry_push.push(registry.at, archive.write(tmp_path / "builder.tar", entry), IMAGE)
    assert pushed.uploaded == 3
    assert {image["digest"] for image in images} <= set(registry.manifests)


def test_a_hostile_or_broken_archive_is_refused(registry: PushedRegistry, tmp_path: Path) -> None:
    good = Archive()
    entry = good.image()
    path = tmp_path / "builder.tar"
    cases = {
        "no sha256 digest": (good, [{**entry, "digest": "sha256:../../etc/passwd"}]),
        "has 2 images": (good, [entry, entry]),
        "has 0 images": (good, []),
        "no OCI archive that can be pushed": (Archive(), [entry]),
    }
    for problem, (archive, manifests) in cases.items():
        with pytest.raises(NotPushed, match=problem):
            registry_push.push(registry.at, archive.write(path, *manifests), IMAGE)
    path.write_text("no tar")
    with pytest.raises(NotPushed, match="no OCI archive that can be pushed"):
        registry_push.push(registry.at, path, IMAGE)
    assert not registry.manifests


def test_a_blob_that_was_altered_and_an_upload_that_leads_elsewhere_are_refused(registry: PushedRegistry, tmp_path: Path) -> None:
    archive = Archive()
    entry = archive.image()
    name = next(name for name, data in archive.files.items() if data == b"layer")
    path = tmp_path / "builder.tar"
    registry.elsewhere = "http://192.0.2.7/uploads/1"
    with pytest.raises(NotPushed, match=r"wants uploads at http://192\.0\.2\.7"):
        registry_push.push(registry.at, archive.write(path, entry), IMAGE)
    registry.elsewhere = ""
    archive.files[name] = b"other"
    with pytest.raises(NotPushed, match="answered 400 in place of 201 to blob"):
        registry_push.push(registry.at, archive.write(path, entry), IMAGE)


def test_an_upload_never_leaves_the_scheme_of_the_registry(registry: PushedRegistry, tmp_path: Path) -> None:
    archive = Archive()
    path = archive.write(tmp_path / "builder.tar", archive.image())
    registry.elsewhere = registry.at.url.replace("http:", "https:") + "/v2/builders/spack/blobs/uploads/1?_state=a"
    assert registry_push.push(registry.at, path, IMAGE).uploaded == 2


class _UnboundedRequests(_PushRequests):
    def do_GET(self) -> None:
        body, headers = (
            (gzip.compress(bytes(8 << 20)), {"Content-Encoding": "gzip"}) if "zip" in self.path else (bytes(8 << 20), {})
        )
        if "catalog" in self.path:
            body = b'{"repositories": []}'
            headers = {"Link": f'<{self.path.partition("&")[0]}&last={time.monotonic_ns()}>; rel="next"'}
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)


def test_a_server_that_answers_without_an_end_is_no_registry(registry: PushedRegistry) -> None:
    registry.RequestHandlerClass = _UnboundedRequests
    with pytest.raises(NotPushed, match="more than 4 MiB"):
        registry_push.require_verified(registry.at)
    with pytest.raises(NotPushed, match="compressed"):
        registry_push.require_verified(RegistryEndpoint(url=f"{registry.at.url}/zip"))
    with pytest.raises(registry_listing.NotListed, match="in more than 5 pages"):
        list(registry_listing.references(registry.at, 5))


def test_a_registry_that_is_away_is_named(tmp_path: Path) -> None:
    archive = Archive()
    path = archive.write(tmp_path / "builder.tar", archive.image())
    with PushedRegistry() as server:
        away = server.at
    with pytest.raises(NotPushed, match=f"{away.url} does not take builders/spack:0.23"):
        registry_push.push(away, path, IMAGE)


def test_a_certificate_that_nodes_would_refuse_is_named(registry: PushedRegistry, tmp_path: Path) -> None:
    """The server's certificate is for 127.0.0.1."""
    own, other = (certificates(authority.root(tmp_path, name).read_text()) for name in ("own", "other"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server(tmp_path, "registry", tmp_path / "own.pem"))
    registry.socket = context.wrap_socket(registry.socket, server_side=True, do_handshake_on_connect=False)
    at = RegistryEndpoint(url=registry.at.url.replace("http:", "https:"), name="127.0.0.1", authorities=own)
    registry_push.require_verified(at)
    with pytest.raises(NotPushed, match=r"as 127\.0\.0\.1: .*certificate verify failed.*registry\.tls\.ca"):
        registry_push.require_verified(dataclasses.replace(at, authorities=other))
    with pytest.raises(NotPushed, match=r"nodes cannot pull from .* as registry\.example\.org: "):
        registry_push.require_verified(dataclasses.replace(at, name="registry.example.org"))


def test_validate_refuses_what_nodes_would_refuse(tmp_path: Path) -> None:
    """The certificate is for 127.0.0.1, and CA `own` signed it."""
    own = authority.root(tmp_path, "own")
    authority.root(tmp_path, "other")
    authority.server(tmp_path, "registry", own)

    def issues(name: str, **files: str) -> list[str]:
        tls = {kind: {"file": file} for kind, file in ({"certificate": "registry.pem", "key": "registry.key"} | files).items()}
        section = json.dumps({"tls": tls | {"name": name}})[1:-1]
        (tmp_path / "factory.yaml").write_text(STARTER.read_text().replace("registry: {", f"registry: {{{section}, "))
        return [issue.problem for issue in factory_specs.issues(tmp_path / "factory.yaml") if issue.path.startswith("registry.tls")]

    assert issues("127.0.0.1", ca="own.pem") == issues("127.0.0.1") == issues("localhost", key="not-here.key") == []
    assert "nodes would refuse registry.pem for 127.0.0.1: unable to get" in issues("127.0.0.1", ca="other.pem")[0]
    for files in ({"ca": "own.pem"}, {}):
        assert "nodes would refuse registry.pem for localhost: Hostname mismatch" in issues("localhost", **files)[0]
    assert "KEY_VALUES_MISMATCH" in issues("127.0.0.1", key="other.key")[0]
    assert "the secret file registry.key holds a private key" in issues("127.0.0.1", ca="registry.key")[0]
    with pytest.raises(UnusableCertificate, match=r"^registry\.tls\.certificate: registry\.pem and registry\.key cannot be used"):
        registry_certificate.require_accepted(load_factory(tmp_path / "factory.yaml"), tmp_path)


def test_a_registry_with_tls_is_asked_even_if_nothing_is_pushed(tmp_path: Path) -> None:
    """Nothing listens at the registry's port of this machine."""
    text = STARTER.read_text().replace("start: 10.20.0.11", "start: 127.0.0.1")
    assert list(registry_push.push_images(load_factory(text), tmp_path)) == []
    tls = "{certificate: {file: c.pem}, key: {file: k.pem}}"
    with pytest.raises(NotPushed, match=r"the registry at https://127\.0\.0\.1:30500 does not answer"):
        list(registry_push.push_images(load_factory(text.replace("registry: {", f"registry: {{tls: {tls}, ")), tmp_path))


def test_missing_archives_are_told_before_anything_is_built(tmp_path: Path) -> None:
    image = "{archive: builder.tar, name: builders/spack, tag: '0.23'}"
    spec = load_factory(STARTER.read_text().replace("registry: {", f"registry: {{images: [{image}], "))
    with pytest.raises(registry_push.NoArchive, match=r"^registry.images\[0\].archive: there is no file builder.tar$"):
        registry_push.require_archives(spec, tmp_path)
    (tmp_path / "builder.tar").write_text("")
    registry_push.require_archives(spec, tmp_path)
