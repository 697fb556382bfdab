"""Sources that Argo CD reads: Git repositories (by Git's own HTTP backend) and a Helm repository, served outside the box."""

import base64
import contextlib
import hashlib
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import yaml
from kubelab import box

USER, PASSWORD = "deploy", "not-a-secret"
"""Login with which repositories can be read and pushed to; all other requests are answered with 401."""

CERTIFICATE, CA = "certificate.pem", "ca.pem"
BRANCH = "main"
BACKEND = ("git", "-c", "http.receivepack=true", "http-backend")


@dataclass(frozen=True)
class Repository:
    """A bare Git repository and its address."""

    folder: Path
    url: str

    def commit(self, files: Mapping[str, str], *, tag: str = "") -> str:
        """Write files on top of the branch in one commit, tag it where a name is given, and return the commit."""
        parent = self.git("rev-parse", "--verify", "--quiet", BRANCH, check=False)
        lines = [f"commit refs/heads/{BRANCH}", "committer tests <tests@example.invalid> 1700000000 +0000", "data 4", "test"]
        stream = "\n".join([*lines, *([f"from {parent}"] if parent else []), ""])
        for path, text in files.items():
            stream += f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n"
        self.git("fast-import", "--quiet", stdin=stream)
        if tag:
            self.git("tag", tag, BRANCH)
        return self.git("rev-parse", BRANCH)

    def read(self, path: str, revision: str = BRANCH) -> str:
        """A file's text at a revision. Raises CalledProcessError where there is none."""
        return self.git("show", f"{revision}:{path}")

    def git(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run git on the repository and return its output."""
        command = ["git", "--git-dir", str(self.folder), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=check).stdout.strip()


@dataclass(frozen=True)
class Sources:
    """A server for Git repositories (`/git/NAME.git`, with a password) and charts (`/charts`, without)."""

    folder: Path
    url: str

    @property
    def certificate(self) -> Path:
        """Return the certificate of the CA that signed the server's certificate and nothing else."""
        return self.folder / CA

    @property
    def charts(self) -> str:
        """The Helm repository's address."""
        return f"{self.url}/charts"

    def repository(self, name: str) -> Repository:
        """A new Git repository."""
        folder = self.folder / "git" / f"{name}.git"
        subprocess.run(["git", "init", "--quiet", "--bare", f"--initial-branch={BRANCH}", str(folder)], check=True)
        return Repository(folder, f"{self.url}/git/{name}.git")

    def publish(self, chart: Path, name: str = "", version: str = "") -> None:
        """Put a chart's folder into the Helm repository; under another name and version as a stand-in for that chart."""
        kept = self.folder / "charts"
        kept.mkdir(exist_ok=True)
        about = yaml.safe_load((chart / "Chart.yaml").read_text())
        about |= {"name": name or about["name"], "version": version or about["version"]}
        packed = _packed(chart, about)
        file = f"{about['name']}-{about['version']}.tgz"
        (kept / file).write_bytes(packed)
        index = kept / "index.yaml"
        entries = json.loads(index.read_text())["entries"] if index.exists() else {}
        row = about | {"urls": [file], "digest": hashlib.sha256(packed).hexdigest(), "created": "2026-01-01T00:00:00Z"}
        entries.setdefault(about["name"], []).append(row)
        index.write_text(json.dumps({"apiVersion": "v1", "entries": entries}))


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Sources]:
    """Serve a folder by HTTPS at this machine's end of the cable to the box, where the box and this process reach it."""
    key, certificate = folder / "key.pem", folder / CERTIFICATE
    _sign(key, certificate, folder / CA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Handler(_Handler):
        root = folder

    server = _Server((box.OUTSIDE, 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, name="sources")
    thread.start()
    try:
        yield Sources(folder, f"https://{box.OUTSIDE}:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_ca(certificate: Path) -> None:
    """A CA's certificate; its key lies beside it as .key."""
    _openssl("-subj", "/CN=sources CA", "-keyout", str(certificate.with_suffix(".key")), "-out", str(certificate))


def _sign(key: Path, certificate: Path, ca: Path) -> None:
    """A key and a certificate for this end of the cable, signed by a CA of its own, as sites have them."""
    make_ca(ca)
    signed = ["-CA", str(ca), "-CAkey", str(ca.with_suffix(".key")), "-addext", f"subjectAltName=IP:{box.OUTSIDE}"]
    _openssl("-subj", "/CN=sources", "-keyout", str(key), "-out", str(certificate), *signed)


def _openssl(*options: str) -> None:
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*new, *options], check=True, capture_output=True)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """Argo CD asks for all Applications at once. Of more connections than fit in here some are reset, and it asks again minutes
    later."""


class _Handler(BaseHTTPRequestHandler):
    root: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """A file of the Helm repository, or Git's answer."""
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/git/"):
            self._git(path)
            return
        file = self.root / "charts" / Path(path).name
        found = path.startswith("/charts/") and file.is_file()
        self._answer(200 if found else 404, file.read_bytes() if found else b"not found\n")

    def do_POST(self) -> None:
        """Git's answer; nothing else takes a body."""
        self._git(unquote(urlsplit(self.path).path))

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not news."""

    def _git(self, path: str) -> None:
        body = self._body()
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        if given != base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode():
            self._answer(401, b"who are you?\n", {"WWW-Authenticate": 'Basic realm="git"'})
            return
        about = {
            "GIT_PROJECT_ROOT": str(self.root / "git"),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path.removeprefix("/git"),
            "QUERY_STRING": urlsplit(self.path).query,
            "REQUEST_METHOD": self.command,
            "REMOTE_USER": USER,
            "REMOTE_ADDR": self.client_address[0],
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        done = subprocess.run(BACKEND, input=body, capture_output=True, env=os.environ | about, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self._answer(int(fields.pop("Status", "200").split()[0]), content, fields)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            return b"".join(_chunks(self.rfile))
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, content: bytes, fields: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (dict(fields or {}) | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _chunks(stream: io.BufferedIOBase | BinaryIO) -> Iterator[bytes]:
    """The parts of a chunked body."""
    while size := int(stream.readline().split(b";")[0], 16):
        yield stream.read(size)
        stream.readline()
    stream.readline()


def _packed(chart: Path, about: Mapping[str, Any]) -> bytes:
    """A chart as Helm packs it: a gzipped tar of one folder with the chart's name."""
    made, text = io.BytesIO(), json.dumps(about).encode()
    with tarfile.open(fileobj=made, mode="w:gz") as target:
        entry = tarfile.TarInfo(f"{about['name']}/Chart.yaml")
        entry.size = len(text)
        target.addfile(entry, io.BytesIO(text))
        for path in sorted(chart.rglob("*")):
            if path.is_file() and path.name != "Chart.yaml":
                target.add(path, arcname=f"{about['name']}/{path.relative_to(chart)}")
    return made.getvalue()
