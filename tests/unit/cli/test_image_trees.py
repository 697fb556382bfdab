"""Commands about published images, on trees of small files."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.unit.clients.published.published_trees import image, key_pair, place, published, state
from workflows.cli import image_tree_commands
from workflows.cli.image_trees import NoTree

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for text in "abc":
        published(place(root), image(tmp_path / text, text), origin=f"{COMMIT} with changes, on bringup 1 ({text})")
    return root


def call(*words: object) -> int:
    app = typer.Typer()
    image_tree_commands.register(app)
    return int(app(args=[str(word) for word in words], standalone_mode=False) or 0)


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    assert call(*words, "-o", "json") == code
    return json.loads(capsys.readouterr().out)


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
    (root / "compute/versions" / min(path.name for path in (root / "compute/versions").iterdir())).rename(tmp_path / "unsigned")
    assert call("verify", root, "--signer", tmp_path / "key.pub") == 0
    assert "not checked" not in capsys.readouterr().out


def test_rollback(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "rollback", "--tree", root, "--as", "ada")["current"].startswith("0002-")
    assert (root / "compute/current").readlink().name.startswith("0002-")
    assert json.loads((root / "compute/history.jsonl").read_text().splitlines()[-1])["by"] == "rollback by ada"
    assert call("rollback", "2", "--tree", root) == 0
    assert "is current already" in capsys.readouterr().out


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
    assert "2026-11-22" in capsys.readouterr().out


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


def test_detach_check(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("detach-check", root) == 0
    assert "stands by itself" in capsys.readouterr().out
    found = said(capsys, "detach-check", root, "--url", "http://other.example.org", code=65)
    assert {one["place"].rpartition("/")[2] for one in found["problems"]} >= {"gpu.ipxe", "default.ipxe"}
    (root / "boot/x.img").symlink_to("/srv/factory/x.img")
    found = said(capsys, "detach-check", root, "--factory-folder", "/srv/factory", code=65)
    assert found["problems"] == [{"place": "boot/x.img", "why": "leads to /srv/factory/x.img: a folder of the factory"}]


def test_a_tree_in_the_store_of_the_factory_does_not_stand_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path))
    root = tmp_path / "store/tree"
    root.mkdir(parents=True)
    published(place(root), image(tmp_path / "a", "a"))
    assert "the tree itself lies in the store" in said(capsys, "detach-check", root, code=65)["problems"][0]["why"]


def test_a_way_round_by_a_link_leads_into_the_store_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path / "home"))
    inner, outer = tmp_path / "home/store/tree", tmp_path / "tree"
    inner.mkdir(parents=True)
    published(place(inner), image(tmp_path / "a", "a"))
    outer.symlink_to(inner)
    assert "the tree itself lies in the store" in said(capsys, "detach-check", outer, code=65)["problems"][0]["why"]
    (tmp_path / "other").symlink_to(tmp_path / "home")
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path / "other"))
    assert "the tree itself lies in the store" in said(capsys, "detach-check", inner, code=65)["problems"][0]["why"]


def test_detach_check_says_what_it_compared(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("detach-check", root) == 0
    told = capsys.readouterr().out
    assert "no host was named to look for (--factory-host)" in told
    assert "not looked into: the settings in compute/versions/" in told, "its roots are no squashfs"
    assert call("detach-check", root, "--factory-host", "builder.example.org") == 0
    assert "hosts builder.example.org" in capsys.readouterr().out


def test_settings_in_a_packed_root_that_name_the_factory_are_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = sorted(root.glob("compute/versions/*/root.squashfs"))[-1]
    etc = root.parent / "packing/etc"
    (etc / "apt").mkdir(parents=True)
    (etc / "apt/sources.list").write_text("deb http://builder.example.org/debian bookworm main\n")
    (etc / "fstab").write_text("# nfs.builder.example.org:/x\nnfs.example.org:/srv/factory/home /home nfs defaults 0 0\n")
    (etc / "key").write_bytes(b"\xff\x00")
    packed.unlink()
    subprocess.run(["mksquashfs", str(etc.parent), str(packed), "-quiet", "-no-progress"], check=True, capture_output=True)
    words = ("--factory-host", "builder.example.org", "--factory-folder", "/srv/factory/")
    found = {one["place"].rpartition(":")[2]: one["why"] for one in said(capsys, "detach-check", root, *words, code=65)["problems"]}
    assert found == {
        "/etc/apt/sources.list": "leads to builder.example.org: a host of the factory",
        "/etc/fstab": "leads to /srv/factory: a folder of the factory",
    }


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
    assert call("detach-check", spec) == 0
