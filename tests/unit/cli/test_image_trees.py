"""Commands about published images, on trees of small files."""

import json
import os
import shutil
import socket
import time
from pathlib import Path

import pytest
import typer
from msgspec.structs import replace

from steps.errors import BadTask, Refused
from tests.unit.cli.image_commands import COMMIT, UNREAD, call, made, said
from tests.unit.clients.published.published_trees import image, key_pair, place, published, state
from workflows.app.images.published_trees import NoTree
from workflows.spec import SpecErrors


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return made(tmp_path)


def test_list_says_what_is_there(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = said(capsys, "list", root)
    assert [row["version"][:4] for row in rows] == ["0003", "0002", "0001"]
    assert [row["current"] for row in rows] == [True, False, False]
    assert rows[0]["by"] == "run-1"
    assert [row["origin"][-3:] for row in rows] == ["(c)", "(b)", "(a)"]
    assert rows[0]["tests"]["sandbox"][0] == {"name": "gcc_compiles", "outcome": "pass", "seconds": 0.2}
    assert call("list", root / "compute") == 0
    out = capsys.readouterr().out
    assert f"{rows[0]['version']} (current)" in out
    assert COMMIT not in out, "twelve digits are enough for people"
    assert "not whole" not in out


@pytest.mark.parametrize("gone", ["vmlinuz", "boot/gpu.ipxe", "SHA256SUMS", "manifest.json", "tests.json"])
def test_list_marks_a_version_that_is_not_whole(root: Path, gone: str, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "compute/current" / gone).unlink()
    assert [row["whole"] for row in said(capsys, "list", root)] == [False, True, True]
    assert call("list", root) == 0
    assert capsys.readouterr().out.count("(current) (not whole)") == 1


def test_one_version_is_whole_and_more_are(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for old in sorted((root / "compute/versions").iterdir())[:2]:
        shutil.rmtree(old)
    assert call("verify", root) == 0
    assert "1 version of 1 image is whole" in capsys.readouterr().out


def test_verify_names_what_is_wrong_and_ends_with_65(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    was = state(root)
    assert call("verify", root) == 0
    assert "3 versions of 1 image are whole" in capsys.readouterr().out
    assert state(root) == was
    (root / "compute/current/vmlinuz").unlink()
    (root / "compute/versions/left").mkdir()
    found = said(capsys, "verify", root, code=65)
    assert [one["why"] for one in found["problems"]][:1] == ["is no version"]
    assert found["versions"][0]["origin"].startswith(COMMIT)
    assert any(one["place"].endswith("/vmlinuz") and one["why"] == "is missing" for one in found["problems"])


def test_verify_with_a_key_asks_for_signatures(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000\n")
    assert call("verify", root, "--signer", tmp_path / "key.pub") == 65
    assert capsys.readouterr().out.count("is not signed") == 3


@pytest.mark.parametrize("data", [b"\xb7\x00\xff", b"", b"-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n", b"ssh-ed25519\n"])
def test_a_file_without_a_public_key_is_told_by_its_name(root: Path, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "key.pub").write_bytes(data)
    with pytest.raises(typer.BadParameter, match=r"--signer /\S+/key\.pub: there is no SSH public key in it; name a \.pub file"):
        call("verify", root, "--signer", tmp_path / "key.pub")


def test_verify_says_which_signatures_nobody_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    published(place(root), image(tmp_path / "a", "a"))
    assert call("verify", root) == 0
    assert "not checked" not in capsys.readouterr().out, "there is none"
    signed = place(root, key="key", signers=(key_pair(tmp_path),))
    published(signed, image(tmp_path / "b", "b"), secrets=tmp_path)
    assert call("verify", root) == 0
    assert "are whole, signatures not checked: name a trusted key with --signer" in capsys.readouterr().out
    assert {one["signature"] for one in said(capsys, "verify", root)["versions"]} == {"unknown", "none"}
    (root / "compute/versions" / min(path.name for path in (root / "compute/versions").iterdir())).rename(tmp_path / "unsigned")
    assert call("verify", root, "--signer", tmp_path / "key.pub") == 0
    assert "not checked" not in capsys.readouterr().out


def test_rollback(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "rollback", "--tree", root, "--as", "ada")["current"].startswith("0002-")
    assert (root / "compute/current").readlink().name.startswith("0002-")
    assert json.loads((root / "compute/history.jsonl").read_text().splitlines()[-1])["by"] == "rollback by ada"
    assert call("rollback", "2", "--tree", root) == 0
    assert "is current already" in capsys.readouterr().out


def test_a_tree_that_moved_says_so_of_older_versions(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = "http://other.example.org/images"
    published(replace(place(root), url=new), image(tmp_path / "d", "d"))
    told = f"nodes that boot it fetch from {place(root).url}, where the tree was then"
    for words in (("verify", root), ("detach-check", root, UNREAD)):
        assert [one.partition(": ")[2] for one in said(capsys, *words)["moved"]] == [told, told]
        assert call(*words) == 0
        assert capsys.readouterr().out.count(told) == 2
    assert call("rollback", "3", "--tree", root) == 0
    assert f"nodes fetch it from {place(root).url}, where the tree was when it was published" in capsys.readouterr().out
    assert said(capsys, "rollback", "3", "--tree", root)["elsewhere"] == place(root).url
    for words in (("verify", root), ("verify", root, "--url", new), ("detach-check", root, UNREAD)):
        found = said(capsys, *words)["moved"]
        assert f"{(root / 'compute/current').resolve().relative_to(root)}: {told}" in found
        assert len(found) == 2
    assert call("verify", root, "--url", place(root).url) == 65, "nodes that start are told another address"
    capsys.readouterr()
    (root / "compute/incoming/left").mkdir()
    assert said(capsys, "rollback", "--tree", root)["current"].startswith("0003-"), "who was stopped before it was done goes on"
    for entry in (root / "boot").iterdir():
        entry.write_text(entry.read_text().replace(new, "http://third.example.org/images"))
    assert call("verify", root) == 65, "no version was ever there"


def test_a_rollback_goes_to_what_a_trusted_key_signed_or_says_that_nobody_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (tmp_path / "other").mkdir()
    signed = place(root, key="key", signers=(key_pair(tmp_path),))
    key_pair(tmp_path / "other")
    for text in "ab":
        published(signed, image(tmp_path / text, text), secrets=tmp_path)
    was = (root / "compute/current").readlink()
    with pytest.raises(Refused, match="has a signature that no trusted key made"):
        call("rollback", "--tree", root, "--signer", tmp_path / "other/key.pub")
    assert (root / "compute/current").readlink() == was
    assert said(capsys, "rollback", "--tree", root, "--signer", tmp_path / "key.pub")["signature"] == "good"
    assert call("rollback", "2", "--tree", root) == 0
    assert "signatures not checked: name a trusted key with --signer" in capsys.readouterr().out
    assert call("rollback", "2", "--tree", root) == 0
    assert "nothing is written; signatures not checked" in capsys.readouterr().out
    published(place(root), image(tmp_path / "c", "c"))
    with pytest.raises(Refused, match="is not signed"):
        call("rollback", "3", "--tree", root, "--signer", tmp_path / "key.pub")
    assert call("rollback", "3", "--tree", root) == 0
    assert "not checked" not in capsys.readouterr().out, "it has none"


def test_a_rollback_of_the_only_version_names_no_other(root: Path) -> None:
    versions = root / "compute/versions"
    for version in versions.iterdir():
        if version.name != (root / "compute/current").readlink().name:
            shutil.rmtree(version)
    with pytest.raises(BadTask) as refused:
        call("rollback", "--tree", root)
    assert refused.value.hint == "it is the only one; publish another first"


def test_nodes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("nodes", root) == 0
    assert "no node has reported" in capsys.readouterr().out
    versions = sorted(path.name for path in (root / "compute/versions").iterdir())
    (root / "nodes").mkdir()
    for node, version in (("node001", versions[-1]), ("node002", versions[0]), ("node003", "0099-aaaaaaaaaaaa")):
        (root / f"nodes/{node}.json").write_text(
            json.dumps({"node": node, "image": "", "version": version, "at": 1795385131.0}) + "\n"
        )
    assert {row["node"]: row["stand"] for row in said(capsys, "nodes", root)} == {
        "node001": "current",
        "node002": "older",
        "node003": "unknown",
    }
    assert call("nodes", root) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["node", "status", "version", "image", "booted", "last", "report", "mac"]
    assert "2026-11-22" in lines[0]


def test_a_node_that_is_silent_for_long_is_stale(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version = os.readlink(root / "compute/current").rpartition("/")[2]
    (root / "nodes").mkdir()
    for node, days in (("node001", 0), ("node002", 6), ("node003", 8)):
        file = root / f"nodes/{node}.json"
        file.write_text(json.dumps({"node": node, "image": "", "version": version, "at": 1795385131.0}) + "\n")
        os.utime(file, (time.time() - days * 86400,) * 2)
    rows = said(capsys, "nodes", root)
    assert [row["stand"] for row in rows] == ["current", "current", "stale"]
    assert [row["age"] // 86400 for row in rows] == [0, 6, 8]
    assert [row["version"] for row in rows] == [version] * 3, "what it ran then"
    assert rows[2]["told"] == int((root / "nodes/node003.json").stat().st_mtime)
    assert [row["stand"] for row in said(capsys, "nodes", root, "--days", "2")] == ["current", "stale", "stale"]
    assert [row["stand"] for row in said(capsys, "nodes", root, "--days", "9")] == ["current"] * 3
    assert call("nodes", root) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("node003"))
    assert "stale" in line
    assert "8 d ago" in line
    listed = said(capsys, "list", root)[0]
    assert (listed["nodes"], listed["stale"]) == (["node001", "node002", "node003"], ["node003"])
    assert call("list", root) == 0
    assert "3 (1 stale)" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("list", "/nonexistent"), ("verify",), ("nodes",)])
def test_what_is_no_tree(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(NoTree):
        call(*words, *([tmp_path] if len(words) == 1 else []))


def test_a_spec_says_where_the_tree_is(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "image.yaml"
    spec.write_text(
        "apiVersion: bringup/v1\nkind: Image\nname: compute\nowner: hpc\nrevision: '1'\nrecipe: compute\n"
        f"publish:\n  root: {root}\n  url: http://boot.example.org/images\n  groups: {{default: {{}}, gpu: {{}}}}\n"
    )
    assert call("verify", spec) == 0
    assert "are whole" in capsys.readouterr().out
    assert call("detach-check", spec, UNREAD) == 0


NO_PLACES = [("--port", "99999"), ("--port", "-1"), ("--address", "192.0.2.7"), ("--address", "no such host")]


@pytest.mark.parametrize("place", NO_PLACES)
def test_an_address_that_cannot_be_listened_on_is_one_sentence(root: Path, place: tuple[str, str]) -> None:
    with pytest.raises(typer.BadParameter, match=r"cannot listen on .*; name another|Input should be"):
        call("serve", root, *place)


def test_a_port_that_is_taken_is_one_sentence(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(typer.BadParameter, match=rf"cannot listen on 127\.0\.0\.1:{port}: address already in use"):
            call("serve", root, "--port", port)


def test_a_file_of_another_kind_is_one_error(tmp_path: Path) -> None:
    for kind, problem in (("ImageRecipe", "this is a recipe"), ("Cluster", "this is the spec of a cluster")):
        (tmp_path / "it.yaml").write_text(f"apiVersion: bringup/v1\nkind: {kind}\nname: x\n")
        with pytest.raises(SpecErrors) as caught:
            call("list", tmp_path / "it.yaml")
        (one,) = caught.value.errors
        assert (one.path, one.line, one.problem.startswith(problem)) == ("kind", 2, True)
