"""A version counts as published already only if publishing again today would change nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.errors import StepError
from steps.nodeimage.contract.boot_tree import BootGroup, PublishTarget
from steps.nodeimage.publishing import image_kind, image_publication, publication_status
from steps.nodeimage.publishing.image_kind import local_tree
from steps.stages.image_status.contract import CHANGED, CURRENT, LEFT, NOTHING, ImageStatus
from tests.unit.clients.published.published_trees import (
    KINDS,
    RESULTS,
    WITHOUT_RIGHTS,
    image,
    key_pair,
    place,
    published,
    state,
    transport,
)

KEY = "0" * 64
BOOTED = {**RESULTS, "image_boot.boot_uefi": RESULTS["sandbox"]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for text in "abc":
        published(place(root), image(tmp_path / text, text), results=BOOTED)
    return root


def stands(where: PublishTarget, *firmware: str) -> str:
    return publication_status.current_version(where, "compute", KEY, firmware)[:4]


def test_it_stands(root: Path) -> None:
    assert stands(place(root)) == stands(place(root), "uefi") == "0003"
    assert publication_status.current_version(place(root), "compute", "1" * 64) == ""
    assert stands(place(root, BootGroup(name="default"))) == "", "a group less is another version"
    assert stands(place(root, *place(root).groups, BootGroup(name="other"))) == ""


def test_every_firmware_must_have_booted_it(root: Path) -> None:
    assert stands(place(root), "uefi", "bios") == ""
    for odd in ("", "[]", json.dumps({"image_boot.boot_uefi": []}), json.dumps({"results": {"image_boot.boot_uefi": 1}})):
        (root / "compute/current/tests.json").write_text(odd)
        assert stands(place(root), "uefi") == "", odd


def test_no_more_versions_than_are_kept_but_those_that_must_stay(root: Path) -> None:
    assert stands(place(root, keep=2)) == ""
    (root / "nodes").mkdir()
    oldest = min(path.name for path in (root / "compute/versions").iterdir())
    (root / "nodes/node001.json").write_text(json.dumps({"node": "node001", "image": "", "version": oldest, "at": 1.0}) + "\n")
    assert stands(place(root, keep=2)) == "0003"


def test_the_signature_must_be_good(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    signed = place(root, key="key", signers=(key_pair(tmp_path),))
    trusting_another = replace(signed, signers=(key_pair(tmp_path / "other"),))
    assert stands(signed) == "", "it is not signed yet"
    published(signed, tmp_path / "c", secrets=tmp_path, results=BOOTED)
    assert stands(signed, "uefi") == "0004"
    assert stands(trusting_another) == stands(replace(trusting_another, key="")) == ""
    (root / "compute/current/SHA256SUMS.sig").unlink()
    assert stands(signed) == ""


def test_what_cannot_be_seen_does_not_stand(root: Path, tmp_path: Path) -> None:
    assert stands(replace(place(root), host="boot.example.org")) == ""
    assert stands(place(tmp_path / "nowhere")) == ""
    (root / "compute/current/vmlinuz").write_bytes(b"short")
    assert stands(place(root)) == ""


def asked(
    root: Path, kind: str = "local", key: str = KEY, where: PublishTarget | None = None, name: str = "compute"
) -> ImageStatus:
    """Return the publication status that a tree reports through a transport, and check that the query wrote nothing."""
    before = state(root)
    with transport(kind, root) as way:
        found = publication_status.query(way, where or place(root), name, key, ("uefi",))
    assert state(root) == before
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_says_whether_it_is_this_very_image(root: Path, kind: str) -> None:
    found = asked(root, kind)
    assert (found.answer, found.version[:4], found.is_current) == (CURRENT, "0003", True)
    assert found.sentence == f"nothing changed: version {found.version} is this image"
    other = asked(root, kind, key="1" * 64)
    assert (other.answer, other.differs) == (CHANGED, f"{found.version} is another image")
    assert asked(root, kind, name="other").answer == NOTHING
    fewer = asked(root, kind, where=place(root, BootGroup(name="default")))
    assert fewer.differs == f"{found.version} has other boot scripts than the spec asks for"


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_read_where_nothing_else_differs(root: Path, kind: str) -> None:
    """A file of the same size: the quick answer cannot see it, a run does, and publishes the image once more."""
    file = root / "compute/current/vmlinuz"
    file.write_bytes(b"x" * file.stat().st_size)
    assert stands(place(root)) == "0003"
    found = asked(root, kind)
    assert (found.answer, "vmlinuz has the digest" in found.differs) == (CHANGED, True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_stopped_publication_left_is_for_the_next_one(root: Path, kind: str) -> None:
    (root / "compute/incoming").mkdir(exist_ok=True)
    (root / "compute/incoming/half").mkdir()
    assert asked(root, kind).differs.endswith("was stopped before its end")
    (root / "compute/incoming/half").rmdir()
    history = root / "compute/history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[:-1]))
    assert asked(root, kind).differs.endswith("was stopped before its end")


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_rollback_left_is_told_before_anything_is_built(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    keys = ("a" * 64, "b" * 64)
    for number, key in enumerate(keys):
        published(place(root), image(tmp_path / key[:1], key[:1], key=key), results=BOOTED)
        assert asked(root, kind, key=key).version.startswith(f"000{number + 1}")
    way = local_tree(root)
    image_publication.roll_back(way, "compute", "", "rollback by ada@boot")
    found = asked(root, kind, key=keys[1])
    assert (found.answer, found.left[:4], found.version[:4], found.left_by) == (LEFT, "0002", "0001", "rollback by ada@boot")
    assert found.left_at > 0
    assert asked(root, kind, key=keys[0]).answer == CURRENT, "what one went back to is current"
    assert asked(root, kind, key="c" * 64).answer == CHANGED, "a new recipe is built"
    more = BootGroup(name="gpu", kernel_arguments=("nouveau.modeset=0",), nodes={"52:54:00:00:00:09": "new9"})
    for where in (place(root, BootGroup(name="default"), more), replace(place(root), url="http://other.example.org/images")):
        assert asked(root, kind, key=keys[1], where=where).answer == LEFT, "a machine or an address mends nothing"
    moved = asked(root, kind, key=keys[1], where=place(root, BootGroup(name="default"), BootGroup(name="gpu")))
    assert moved.answer == CHANGED, "with other kernel arguments it is another version"


ASKS = """
import sys
from pathlib import Path
from tests.unit.clients.published.published_trees import image, place, published, transport
from steps.nodeimage.publishing import publication_status
kind, root, act, key = sys.argv[1:]
try:
    if act == "publish":
        published(place(Path(root)), image(Path(root).parent / "d", "d"), kind)
    else:
        with transport(kind, Path(root)) as way:
            print(publication_status.query(way, place(Path(root)), "compute", key, ("uefi",)).answer)
except Exception as error:
    print(type(error).__name__, int(error.exit_code), error)
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("folder", ["compute", "compute/versions", "boot"])
def test_a_tree_that_may_not_be_written_says_so_before_anything_is_built(root: Path, folder: str, kind: str) -> None:
    def said(act: str, key: str) -> str:
        words = [*WITHOUT_RIGHTS, sys.executable, "-c", ASKS, kind, str(root), act, key]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    (root / "compute/incoming").mkdir(exist_ok=True)
    (root / folder).chmod(0o555)
    assert said("ask", KEY) == CURRENT, "there is nothing to write"
    where = root if kind == "local" else "there"
    assert said("ask", "1" * 64) == f"Refused 65 {where}: this user lacks a right: to write {folder}"
    if folder != "boot":  # its scripts stay as they are
        (root / "compute/incoming").chmod(0o555)
        assert said("publish", KEY).startswith(f"Refused 65 {where}: this user lacks a right: ")
    (root / folder).chmod(0o755)


def test_a_tree_that_cannot_be_asked_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(StepError), image_kind.connect(place(tmp_path / "nowhere"), tmp_path) as way:
        publication_status.query(way, place(tmp_path / "nowhere"), "compute", KEY, ())
