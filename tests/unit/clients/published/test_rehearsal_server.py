"""The server for rehearsals: files of the tree alone, and reports that become `nodes/*.json`."""

import http.client
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from steps.clients.releases import usage
from steps.nodeimage.contract.boot_tree import BootGroup, NodeSeen
from steps.nodeimage.publishing import boot_server, image_kind, node_reports
from steps.nodeimage.publishing.image_kind import local_tree
from steps.nodeimage.publishing.image_versions import manifest_of
from tests.unit.clients.published.published_trees import image, place, published, state
from workflows.nodeimage import recipe_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (tmp_path / "secret").write_text("outside")
    for text in "ab":
        published(place(root), image(tmp_path / text, text))
    return root


@pytest.fixture
def server(root: Path) -> Iterator[tuple[str, int]]:
    with boot_server.server(root) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield "127.0.0.1", made.server_address[1]
        finally:
            made.shutdown()
            thread.join()


def asked(server: tuple[str, int], path: str, body: bytes | None = None, how: str = "POST") -> tuple[int, bytes]:
    link = http.client.HTTPConnection(*server)
    link.request("GET" if body is None else how, path, body)
    answer = link.getresponse()
    found = answer.status, answer.read()
    link.close()
    return found


def report(node: str, digest: str, mac: str = "52:54:00:00:00:01") -> bytes:
    words = {"mac": mac, "address": "10.0.0.7", "kernel": "6.1.0", "root": "overlay", "clock": "1", "uptime": "30", "image": digest}
    named = {"node": node} if node else {}
    lines = [f"{name} {quote(value, safe=':')}" for name, value in {**named, **words}.items()]
    return "\n".join(["bringup-report 1", *lines, "end 0", ""]).encode()


@pytest.mark.parametrize(("named", "name"), [(" systemd.hostname=gpu001", "gpu001"), ("", "mac-")])
def test_a_node_in_production_puts_what_it_runs(server: tuple[str, int], root: Path, tmp_path: Path, named: str, name: str) -> None:
    (tmp_path / "medium/live").mkdir(parents=True)
    shutil.copy(root / "compute/current/root.squashfs", tmp_path / "medium/live")
    puts(server, tmp_path, named)
    (row,) = node_reports.nodes((local_tree(root).look("compute"),), now=time.time())
    assert row.node.startswith(name)
    assert row.stand is usage.UsageState.CURRENT
    assert row.at > 0
    assert row.age < 60


def puts(server: tuple[str, int], folder: Path, arguments: str) -> None:
    """A node that was started with such arguments, and has its root below `folder`, tells what it runs."""
    (folder / "cmdline").write_text(f"boot=live bringup.report=http://127.0.0.1:{server[1]}/nodes {arguments}\n")
    command = ["bash", recipe_files.BOOT / "report.sh", folder / "cmdline", "0", folder / "medium"]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_node_says_which_of_the_versions_with_its_root_it_booted(server: tuple[str, int], root: Path, tmp_path: Path) -> None:
    """Kernel arguments alone were changed, to see which nodes still run without."""
    (tmp_path / "medium/live").mkdir(parents=True)
    shutil.copy(root / "compute/current/root.squashfs", tmp_path / "medium/live")
    booted = local_tree(root).look("compute").current
    lines = (root / "compute/current/boot/default.ipxe").read_text().splitlines()
    (words,) = [line for line in lines if line.startswith("kernel ")]
    later = published(
        place(root, BootGroup(name="default", kernel_arguments=("iommu=pt",)), BootGroup(name="gpu")), image(tmp_path / "b", "b")
    ).version
    puts(server, tmp_path, f"{words} systemd.hostname=n1")
    puts(server, tmp_path, f"{words.replace(booted, later)} systemd.hostname=n2")
    other = re.sub('"mac":"[^"]*"', '"mac":"52:54:00:00:00:02"', (root / "nodes/n2.json").read_text())
    (root / "nodes/n2.json").write_text(other)
    tree = local_tree(root).look("compute")
    found = [(row.node, row.version, row.stand.value) for row in node_reports.nodes((tree,), now=time.time())]
    assert found == [("n1", booted, "older"), ("n2", later, "current")]
    assert [row.nodes for row in node_reports.versions(tree, now=time.time())][:2] == [("n2",), ("n1",)]
    assert usage.in_use(image_kind.image_kind(), tree) == (booted, later)


@pytest.mark.parametrize(
    "fetch", ["", "fetch=http://x/live/root.squashfs", 'fetch=http://x/versions/0001-"x/root.squashfs', "fetch=http://x/versions/1"]
)
def test_a_root_of_no_published_tree_has_no_version(server: tuple[str, int], root: Path, tmp_path: Path, fetch: str) -> None:
    puts(server, tmp_path, f"{fetch} systemd.hostname=n1")
    told = msgspec.json.decode((root / "nodes/n1.json").read_bytes(), type=NodeSeen)
    assert (told.node, told.version) == ("n1", "")


@pytest.mark.parametrize("path", ["/nodes/../x.json", "/nodes/a/b.json", "/boot/boot.ipxe", "/nodes/A.json", "/nodes/.json"])
def test_nothing_else_can_be_put(server: tuple[str, int], root: Path, path: str) -> None:
    before = state(root)
    assert asked(server, path, b"{}", "PUT")[0] == 400
    assert asked(server, "/nodes/big.json", b"x" * 5000, "PUT")[0] == 400
    assert state(root) == before


@pytest.mark.parametrize("path", ["/nodes/n1.json", "/report"])
@pytest.mark.parametrize("length", ["50", "\u00b2", "-1", ""])
def test_what_was_cut_off_is_not_kept(server: tuple[str, int], root: Path, path: str, length: str) -> None:
    before = state(root)
    method = "POST" if path == "/report" else "PUT"
    with socket.create_connection(server) as way:
        way.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode("latin-1") + b'{"no')
        way.shutdown(socket.SHUT_WR)
        assert b" 400 " in way.makefile("rb").readline()
    assert state(root) == before
    assert asked(server, "/%00")[0] == 404


def test_what_a_node_loads(server: tuple[str, int], root: Path) -> None:
    assert asked(server, "/boot/gpu.ipxe")[1] == (root / "boot/gpu.ipxe").read_bytes()
    assert asked(server, "/compute/current/boot/gpu.ipxe")[0] == 200
    assert asked(server, "/compute/current/vmlinuz") == (200, (root / "compute/current/vmlinuz").read_bytes())


def test_nothing_else(server: tuple[str, int], root: Path) -> None:
    (root / "out").symlink_to(root.parent / "secret")
    (root / "compute/incoming/5f").mkdir()
    (root / "compute/incoming/5f/vmlinuz").write_text("half")
    for path in ("/../secret", "/%2e%2e/secret", "/out", "/compute/incoming/5f/vmlinuz", "/compute/", "/tests"):
        assert asked(server, path)[0] == 404, path


def test_reports_say_what_runs_where(server: tuple[str, int], root: Path) -> None:
    tree = local_tree(root).look("compute")
    digests = [part.digest for name in tree.versions for part in [manifest_of(tree, name).part("root.squashfs")]]  # type: ignore[union-attr]
    assert asked(server, "/report", report("node001", digests[0]))[0] == 200
    assert asked(server, "/report", report("node002", digests[1], "52:54:00:00:00:02"))[0] == 200
    assert asked(server, "/report", report("node003", "sha256:" + "0" * 64, "52:54:00:00:00:03"))[0] == 200
    assert asked(server, "/report", report("", digests[1], "52:54:00:00:00:04"))[0] == 200
    assert asked(server, "/report", report("node002", digests[0], "52:54:00:00:00:02"))[0] == 200
    found = {row.node: row.stand.value for row in node_reports.nodes((local_tree(root).look("compute"),), now=time.time())}
    assert found == {"node001": "older", "node002": "older", "node003": "unknown", "mac-52-54-00-00-00-04": "current"}
    listed = node_reports.versions(local_tree(root).look("compute"), now=time.time())
    assert [row.nodes for row in listed] == [("mac-52-54-00-00-00-04",), ("node001", "node002")]


@pytest.mark.parametrize("body", [b"", b"nonsense\n", report("../../etc/passwd", "x"), report("n", "x", "mac")])
def test_reports_that_are_none(server: tuple[str, int], root: Path, body: bytes) -> None:
    assert asked(server, "/report", body)[0] == 400
    assert not (root / "nodes").exists() or list((root / "nodes").iterdir()) == []
