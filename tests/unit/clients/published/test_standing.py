"""What counts as published already: only what a publication of today would leave as it is."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.clients.published import standing
from steps.contract.image.published import Group, Place
from tests.unit.clients.published.published_trees import RESULTS, image, key_pair, place, published

KEY = "0" * 64
BOOTED = {**RESULTS, "image_boot.boot_uefi": RESULTS["sandbox"]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for text in "abc":
        published(place(root), image(tmp_path / text, text), results=BOOTED)
    return root


def stands(where: Place, *firmware: str) -> str:
    return standing.version(where, "compute", KEY, firmware)[:4]


def test_it_stands(root: Path) -> None:
    assert stands(place(root)) == stands(place(root), "uefi") == "0003"
    assert standing.version(place(root), "compute", "1" * 64) == ""
    assert stands(place(root, Group(name="default"))) == "", "a group less is another version"
    assert stands(place(root, *place(root).groups, Group(name="other"))) == ""


def test_every_firmware_must_have_booted_it(root: Path) -> None:
    assert stands(place(root), "uefi", "bios") == ""
    for odd in ("", "[]", json.dumps({"image_boot.boot_uefi": 1})):
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
