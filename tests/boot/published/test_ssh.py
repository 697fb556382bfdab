"""Publishing over SSH: as on a path; and a host that is not known, one without room, a connection that ends or falls silent."""

import hashlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import ssh_server
from ssh_server import Server

from steps.clients.releases.release_tree import ALL
from steps.contract.verdict import Status
from steps.errors import StepError, StoreBusy, Unreachable
from steps.nodeimage.contract import image_manifest
from steps.nodeimage.contract.boot_tree import BootGroup, PublishTarget
from steps.nodeimage.publishing import image_kind, image_publication
from steps.stages.image_publish import gate as image_publish
from steps.stages.image_publish.contract import Published, PublishedExpectation
from tests.unit.clients.published.published_trees import ended, forked, image, order, silent, wrong

WANTED = PublishedExpectation(groups=("default",), signed=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "images of this site"
    root.mkdir()
    return root


def place(server: Server, root: Path, **changes: Any) -> PublishTarget:
    told: dict[str, Any] = {
        "root": str(root),
        "url": "http://boot.example.org/images",
        "host": "127.0.0.1",
        "user": "root",
        "port": server.port,
        "groups": (BootGroup(name="default"),),
        "key": "key",
        "signers": ((server.folder / "key.pub").read_text(),),
        "ssh_key": "key",
        "known_hosts": "known",
    }
    return PublishTarget(**(told | changes))


def published(server: Server, where: PublishTarget, folder: Path) -> Published:
    return image_publication.publish(order(where, folder, server.folder, {}), silent)


def large(folder: Path, mebibytes: int) -> Path:
    """An image whose root has so many MiB."""
    image(folder, folder.name)
    data = os.urandom(1 << 20) * mebibytes
    (folder / image_manifest.ROOT).write_bytes(data)
    part = image_manifest.ImageFile(name=image_manifest.ROOT, digest="sha256:" + hashlib.sha256(data).hexdigest(), size=len(data))
    told = image_manifest.decode((folder / image_manifest.MANIFEST).read_bytes())
    parts = tuple(part if one.name == part.name else one for one in told.parts)
    (folder / image_manifest.MANIFEST).write_bytes(image_manifest.encode(msgspec.structs.replace(told, parts=parts)))
    return folder


def test_publish_go_back_and_verify(server: Server, root: Path, tmp_path: Path) -> None:
    where = place(server, root)
    seen = [published(server, where, image(tmp_path / text, text)) for text in ("a", "a", "b", "c", "d")]
    for one in seen:
        verdict = image_publish.tree(one, WANTED)
        assert verdict.status is Status.PASS, verdict.reason
    assert [one.unchanged for one in seen] == [False, True, False, False, False]
    assert len(seen[-1].versions) == 3
    with image_kind.connect(where, server.folder) as way:
        assert image_publication.roll_back(way, "compute", "", "ada", where.signers, server.folder / "key").to == seen[3].version
        assert image_kind.problems(way.look("compute", (ALL,)), where.signers) == ()
    assert (root / "compute/current").readlink() == Path("versions", seen[3].version)
    assert wrong(root, signers=where.signers) == []


def test_a_large_image_takes_one_connection_and_its_copy(server: Server, root: Path, tmp_path: Path) -> None:
    folder = large(tmp_path / "large", 200)
    began = time.monotonic()
    seen = published(server, place(server, root), folder)
    print(f"200 MiB by SSH in {time.monotonic() - began:.1f} s")
    assert image_publish.tree(seen, WANTED).status is Status.PASS
    assert (server.folder / "sshd.log").read_text().count("Accepted publickey") == 1


@pytest.mark.parametrize("known", ["nobody", "another"])
def test_a_host_that_is_not_known_gets_nothing(server: Server, root: Path, tmp_path: Path, known: str) -> None:
    other = f"[127.0.0.1]:{server.port} {(server.folder / 'stranger.pub').read_text()}"
    (server.folder / "known").write_text("" if known == "nobody" else other)
    with pytest.raises(Unreachable, match=r"[Hh]ost key"):
        published(server, place(server, root), image(tmp_path / "a", "a"))
    assert list(root.iterdir()) == []


def test_who_may_not_log_in_is_told_so(server: Server, root: Path, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="Permission denied"):
        published(server, place(server, root, ssh_key="stranger"), image(tmp_path / "a", "a"))


def test_no_room(server: Server, root: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", root], check=True)
    try:
        published(server, place(server, root), image(tmp_path / "a", "a"))
        with pytest.raises(StoreBusy, match="No space left"):
            published(server, place(server, root), large(tmp_path / "large", 8))
        seen = published(server, place(server, root), image(tmp_path / "b", "b"))
        assert image_publish.tree(seen, WANTED).status is Status.PASS, "what did not fit is gone"
    finally:
        subprocess.run(["umount", root], check=True)


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("most", [3_000, 14_000, 30_000, 200_000, 3_000_000])
def test_a_connection_that_ends(server: Server, root: Path, tmp_path: Path, most: int) -> None:
    _cut(server, root, tmp_path, most, silent=False)


def test_a_connection_that_falls_silent(server: Server, root: Path, tmp_path: Path) -> None:
    _cut(server, root, tmp_path, 1_000_000, silent=True)


def _cut(server: Server, root: Path, tmp_path: Path, most: int, *, silent: bool) -> None:
    """A publication of which so much arrives, in a process of its own as an engine's try is; and the next try."""
    first = published(server, place(server, root), image(tmp_path / "a", "a"))
    folder = large(tmp_path / "large", 4)

    def attempt() -> None:
        with ssh_server.through(server, most, silent=silent) as port, pytest.raises(StepError):
            published(server, place(server, root, port=port), folder)

    assert ended(forked(attempt)) == 0
    assert (root / "compute/current").readlink() == Path("versions", first.version)
    seen = published(server, place(server, root), folder)
    assert image_publish.tree(seen, WANTED).status is Status.PASS
    assert wrong(root) == []
