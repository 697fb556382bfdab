"""`bringup image detach-check`: whatever leads into the factory is named, and what could not be looked into proves nothing."""

import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.image_commands import UNREAD, call, made, said
from tests.unit.clients.published.published_trees import image, place, published


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return made(tmp_path)


def test_detach_check(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("detach-check", root, UNREAD) == 0
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
    assert call("detach-check", root, UNREAD) == 0
    told = capsys.readouterr().out
    assert "no host was named to look for (--factory-host)" in told
    assert "not looked into: the settings in compute/versions/" in told
    assert call("detach-check", root, "--factory-host", "builder.example.org", UNREAD) == 0
    assert "hosts builder.example.org" in capsys.readouterr().out


def test_what_could_not_be_looked_into_proves_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("detach-check", root) == 65
    told = capsys.readouterr().out
    assert "whether it stands by itself cannot be told" in told
    assert "stands by itself:" not in told
    found = said(capsys, "detach-check", root, code=65)
    assert (found["ok"], found["problems"], len(found["unread"])) == (False, [], 3)
    assert "root.squashfs" in found["unread"][0]
    assert said(capsys, "detach-check", root, UNREAD)["unread"] == found["unread"]
    packed(root)
    assert said(capsys, "detach-check", root)["unread"] == []


def test_a_root_that_is_damaged_was_not_looked_into(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed(root)
    one = next(root.glob("compute/versions/*/root.squashfs"))
    with one.open("r+b") as file:
        file.seek(96)  # behind its head: the first file's bytes
        file.write(bytes(40))
    assert len(said(capsys, "detach-check", root, code=65)["unread"]) == 1


def test_a_tree_on_a_host_of_the_factory_does_not_stand_by_itself(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--factory-host", "Boot.example.org", UNREAD)
    found = said(capsys, "detach-check", root, *words, code=65)["problems"]
    assert {one["place"].rpartition("/")[2] for one in found} >= {"gpu.ipxe", "default.ipxe", "boot.ipxe"}
    assert all(one["why"].endswith("a host of the factory") for one in found)


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        ("log.host=factory.example.org", "leads to factory.example.org: a host of the factory"),
        ("store=/srv/factory/x", "leads to /srv/factory: a folder of the factory"),
        ("nfsroot=factory.example.org,vers=3", "leads to factory.example.org: a host of the factory"),
    ],
)
@pytest.mark.parametrize("name", ["boot/gpu.ipxe", "manifest.json"])
def test_a_word_of_the_factory_in_a_script_or_manifest_leads_there(
    name: str, argument: str, why: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = root / "compute/current" / name
    text = file.read_text()
    script = ("kernel ", f"# factory.example.org\nkernel {argument} ")
    file.write_text(text.replace(*(script if name.endswith(".ipxe") else ('"name":', f'"a":"{argument}","name":')), 1))
    words = ("--factory-host", "factory.example.org", "--factory-folder", "/srv/factory", UNREAD)
    found = [one["why"] for one in said(capsys, "detach-check", root, *words, code=65)["problems"]]
    assert why in found, found


def packed(root: Path) -> None:
    """Real roots in place of the few bytes."""
    etc = root.parent / "packing/etc"
    etc.mkdir(parents=True)
    (etc / "hostname").write_text("node\n" * 4000)
    (etc / "secret").write_text("for root\n")
    (etc / "secret").chmod(0)
    for one in root.glob("compute/versions/*/root.squashfs"):
        one.unlink()
        subprocess.run(["mksquashfs", str(etc.parent), str(one), "-quiet", "-no-progress"], check=True, capture_output=True)


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
