"""The example's lines for nginx, by nginx itself: what nodes load is served, what they report is kept, and nothing else is."""

import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steps.nodeimage.publishing.image_kind import local_tree
from tests.boot.published import servers
from tests.hosts.hostlab.waiting import until
from tests.unit.clients.published.published_trees import image, place, published

EXAMPLE = Path(__file__).parents[3] / "workflows/examples/images/boot-server/nginx.conf"
ROOT = "/srv/bringup/images"
SECONDS = 20.0
REPORT = json.dumps({"node": "node001", "image": "sha256:0", "at": 1.0}) + "\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nginx: the installed one, else Debian's unpacked here."""
    return servers.program("nginx", "nginx", tmp_path_factory.mktemp("nginx"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a temporary folder that the user of nginx may enter."""
    with tempfile.TemporaryDirectory(prefix="bringup-nginx-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def running(program: Path, folder: Path, root: Path) -> Iterator[int]:
    """nginx with the example, as its head says, at a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    text = EXAMPLE.read_text().replace("listen 80;", f"listen 127.0.0.1:{port};").replace(ROOT, str(root))
    (folder / "bringup.conf").write_text(text.replace("10.0.0.0/22", "127.0.0.0/8"))
    lines = servers.nginx_lines(folder, folder / "bringup.conf", "www-data" if os.geteuid() == 0 else "")
    (folder / "nginx.conf").write_text(lines)
    command = [program, "-c", folder / "nginx.conf", "-e", folder / "errors"]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    with subprocess.Popen(command) as server:
        try:
            assert until(lambda: server.poll() is None and _answers(port), SECONDS), (folder / "errors").read_text()
            yield port
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def asked(port: int, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request(method, path, body)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_nodes_load_and_report_and_nothing_else_is_to_be_had(program: Path, folder: Path) -> None:
    root = folder / "images"
    root.mkdir()
    published(place(root), image(folder / "packed", "a"))
    commands = re.findall(r"#\s+(mkdir -p .*; chown .*)", EXAMPLE.read_text())
    assert len(commands) == 1, "the example says what to make for reports"
    subprocess.run(["sh", "-ec", commands[0].replace(ROOT, str(root))], check=True)
    (root / "compute/incoming").mkdir(exist_ok=True)
    (root / "compute/incoming/half").write_text("not for nodes")
    (folder / "secret").write_text("outside")
    os.lchown(root / "compute/current", 65534, 65534)  # switched by another user than who published, as root does in an emergency
    with running(program, folder, root) as port:
        for name in ("boot/boot.ipxe", "boot/gpu.ipxe", "compute/current/boot/gpu.ipxe", "compute/current/vmlinuz"):
            assert asked(port, "GET", f"/images/{name}") == (200, (root / name).read_bytes()), name
        assert asked(port, "GET", "/images/compute/incoming/half")[0] == 404
        assert asked(port, "GET", "/images/../secret")[0] in (400, 404)
        assert asked(port, "PUT", "/images/nodes/node001.json", REPORT)[0] == 201
        assert asked(port, "PUT", "/images/nodes/node001.json", REPORT)[0] == 204
        for name in ("boot/gpu.ipxe", "nodes/../boot/gpu.ipxe", "compute/current/vmlinuz", "nodes/Node.json", "nodes/x.txt"):
            assert asked(port, "PUT", f"/images/{name}", REPORT)[0] in (403, 404, 405), name
        assert asked(port, "PUT", "/images/nodes/node001.json", "x" * 5000)[0] == 413
        assert asked(port, "DELETE", "/images/nodes/node001.json")[0] in (403, 405)
    tree = local_tree(root).look("compute")
    assert tree.nodes == {"node001.json": REPORT.encode()}
    assert tree.current
