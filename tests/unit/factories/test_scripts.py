"""The check scripts of a factory in a shell: a registry stand-in takes and gives what the distribution specification says."""

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from workflows.stages import manifest_objects

NC = """import socket, sys, threading
connection = socket.create_connection((sys.argv[-2], int(sys.argv[-1])), timeout=10)
connection.sendall(sys.stdin.buffer.read())
while data := connection.recv(65536):
    sys.stdout.buffer.write(data)
"""
"""A stand-in for busybox's nc: it sends its input, and prints what comes until the other side closes."""

USER = {"REGISTRY_USER": "factory", "REGISTRY_PASSWORD": "long" * 20}
LOGIN = base64.b64encode(":".join(USER.values()).encode()).decode()
"""A login that is long enough for base64 to wrap it."""


class RegistryStandIn(ThreadingHTTPServer):
    """A registry in memory, with uploads as CNCF distribution carries them out; `faults` disturb it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.faults: set[str] = set()


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RegistryStandIn

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def refuses(self) -> bool:
        """Answer 401 if the registry wants a login and the request has another one, or none."""
        if "wants_login" not in self.server.faults or self.headers.get("Authorization") == f"Basic {LOGIN}":
            return False
        self.answer(401)
        return True

    def do_POST(self) -> None:
        self.body()
        if self.refuses():
            return
        if "read_only" in self.server.faults:
            self.answer(405)
            return
        place = f"http://{self.headers['Host']}{self.path}1234?_state=abc"
        self.answer(202, Location=place)

    def do_PUT(self) -> None:
        data = self.body()
        if self.refuses():
            return
        if match := re.search(r"/blobs/uploads/1234\?_state=abc&digest=(sha256:[0-9a-f]{64})$", self.path):
            correct = match[1] == f"sha256:{hashlib.sha256(data).hexdigest()}"
            if "loses_blobs" not in self.server.faults:
                self.server.blobs[match[1]] = data
            self.answer(201 if correct else 400)
        elif match := re.search(r"/manifests/([^/]+)$", self.path):
            parts = [json.loads(data)["config"], *json.loads(data)["layers"]]
            sizes = {part["digest"]: part["size"] for part in parts}
            known = "loses_blobs" in self.server.faults or {name: len(self.server.blobs[name]) for name in sizes} == sizes
            self.server.manifests[match[1]] = data
            self.answer(201 if known else 400)
        else:
            self.answer(404)

    def do_GET(self) -> None:
        if self.refuses():
            return
        kind, _, name = self.path.removeprefix("/v2/bringup-check/artefact/").partition("/")
        content = {"manifests": self.server.manifests, "blobs": self.server.blobs}[kind].get(name)
        self.answer(404 if content is None else 200, content or b'{"errors":[]}')


@pytest.fixture
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(folder: Path, script: str, **environment: str) -> dict[str, Any]:
    """Run a check script and return its report."""
    tool, log = folder / "nc", folder / "termination-log"
    tool.write_text(f"#!{sys.executable} -I\n{NC}")
    tool.chmod(0o755)
    text = manifest_objects.script(script).replace("/dev/termination-log", str(log)).replace("/share", str(folder / "share"))
    full = {"PATH": f"{folder}:{os.environ['PATH']}", "NODE_NAME": "f1", "NONCE": "0a1b-2c3d", **environment}
    done = subprocess.run(["/bin/sh", "-c", text, "check"], env=full, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(log.read_bytes())
    return report


def push_and_pull(folder: Path, registry: RegistryStandIn, index: str, **login: str) -> dict[str, Any]:
    port = str(registry.server_address[1])
    where = {"REGISTRY_HOST": "127.0.0.1", "REGISTRY_PORT": port, "REPOSITORY": "bringup-check/artefact", "WAIT_SECONDS": "0"}
    where["IMAGE_TAG"] = "image"
    return run(folder, "registry_push_pull.sh", JOB_COMPLETION_INDEX=index, **where, **login)


def test_one_pod_pushes_and_another_pulls(tmp_path: Path, registry: RegistryStandIn) -> None:
    first, second = (push_and_pull(tmp_path, registry, index) for index in ("0", "1"))
    assert (first["pulled"], first["error"]) == ("0a1b-2c3d", "")
    assert first["pushed"] == f"sha256:{hashlib.sha256(registry.manifests['0a1b-2c3d']).hexdigest()}"
    assert (second["pushed"], second["pulled"], second["wanted"]) == ("", "0a1b-2c3d", "0a1b-2c3d")
    _runs(tmp_path, registry, first["image"])


def _runs(folder: Path, registry: RegistryStandIn, digest: str) -> None:
    """Run the program of the pushed image, whose only layer is a plain tar, and whose manifest has the reported digest."""
    manifest = registry.manifests["image"]
    assert digest == f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    parts = json.loads(manifest)
    config, (layer,) = json.loads(registry.blobs[parts["config"]["digest"]]), parts["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    assert config["config"] == {"Entrypoint": ["/exit"], "Labels": {"check": "0a1b-2c3d"}}
    with tarfile.open(fileobj=io.BytesIO(registry.blobs[layer["digest"]])) as tree:
        tree.extractall(folder / "image", filter="data")
    subprocess.run([folder / "image/exit"], check=True, timeout=60)


@pytest.mark.parametrize(
    ("fault", "index", "error"),
    [("read_only", "0", "begin of an upload: 405"), ("", "1", "manifest of tag: 404"), ("loses_blobs", "0", "blob sha256:")],
)
def test_a_report_says_what_failed(tmp_path: Path, registry: RegistryStandIn, fault: str, index: str, error: str) -> None:
    registry.faults.add(fault)
    report = push_and_pull(tmp_path, registry, index)
    assert report["pulled"] == ""
    assert report["error"].startswith(error)


def test_pods_log_in_where_a_registry_wants_that(tmp_path: Path, registry: RegistryStandIn) -> None:
    registry.faults.add("wants_login")
    assert push_and_pull(tmp_path, registry, "0")["error"] == "begin of an upload: 401"
    assert push_and_pull(tmp_path, registry, "0", **USER)["pulled"] == "0a1b-2c3d"


def test_a_shared_folder_gives_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    first, second = (run(tmp_path, "shared_volume.sh", JOB_COMPLETION_INDEX=index, WAIT_SECONDS="0") for index in ("0", "1"))
    assert (first["wrote"], first["read"], first["error"]) == ("0a1b-2c3d", "0a1b-2c3d", "")
    assert (second["wrote"], second["read"], second["error"]) == ("", "0a1b-2c3d", "")


def test_a_folder_of_ones_own_has_no_file(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    report = run(tmp_path, "shared_volume.sh", JOB_COMPLETION_INDEX="1", WAIT_SECONDS="0")
    assert (report["read"], report["error"]) == ("", "no file after 0 s")
