"""Publishing: versions that are never overwritten, a pointer, boot scripts, retention; the same by path and by shell session."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from steps.contract.verdict import Status
from steps.errors import BadTask, Refused
from steps.nodeimage.contract import image_manifest
from steps.nodeimage.contract.boot_tree import BootGroup
from steps.nodeimage.contract.image_tests import ImageTestOutcome, ImageTestResult
from steps.nodeimage.publishing import image_publication, image_versions
from steps.stages.image_publish import gate as image_publish
from steps.stages.image_publish.contract import PublishedExpectation
from tests.unit.clients.published.published_trees import (
    KINDS,
    RESULTS,
    URL,
    Meanwhile,
    image,
    key_pair,
    order,
    place,
    published,
    silent,
    state,
    transport,
    wrong,
)

WANTED = PublishedExpectation(groups=("default", "gpu"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_version_is_whole_and_passes_its_gate(tmp_path: Path, root: Path, kind: str) -> None:
    seen = published(place(root), image(tmp_path / "a", "a"), kind)
    verdict = image_publish.tree(seen, WANTED)
    assert verdict.status is Status.PASS, verdict.reason
    assert seen.version.startswith("0001-")
    assert seen.before == ""
    assert os.readlink(root / "compute/current") == f"versions/{seen.version}"
    assert wrong(root, kind=kind) == []
    names = {path.name for path in (root / "compute/current/").iterdir()}
    statements = {"provenance.json", "test-result.json"}
    assert names == {*image_manifest.PARTS, image_manifest.MANIFEST, "tests.json", "SHA256SUMS", "boot", *statements}
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=root / "compute/current", check=False).returncode == 0
    assert json.loads((root / "compute/current/tests.json").read_bytes())["results"]["sandbox"][0]["outcome"] == "pass"
    script = (root / "compute/current/boot/gpu.ipxe").read_text()
    assert f"{URL}/compute/versions/{seen.version}/vmlinuz " in script
    assert " nouveau.modeset=0 " in script
    assert f"{URL}/compute/current/boot/gpu.ipxe" in (root / "boot/gpu.ipxe").read_text()


def test_the_manifest_says_the_commit_and_how_each_test_ended_and_is_equal_for_an_equal_build(tmp_path: Path) -> None:
    found = []
    for name, seconds in (("one", 0.2), ("other", 7.5)):
        (tmp_path / name).mkdir()
        ran = [ImageTestResult(name="gcc_compiles", outcome=ImageTestOutcome.PASS, seconds=seconds, output=f"in {seconds} s")]
        failing = ImageTestResult(name="gcc_compiles", outcome=ImageTestOutcome.FAIL)
        results = {"image_sandbox.tests": ran, "image_boot.boot_bios": [failing, *ran]}
        published(place(tmp_path / name), image(tmp_path / f"{name}-built", "a"), results=results, origin="3f2a, on bringup 1")
        found.append((tmp_path / name / "compute/current" / image_manifest.MANIFEST).read_bytes())
        assert wrong(tmp_path / name) == []
    said = json.loads(found[0])
    assert found[0] == found[1]
    assert said["origin"] == "3f2a, on bringup 1"
    assert said["outcomes"] == {
        "image_boot.boot_bios": {"gcc_compiles": "fail"},
        "image_sandbox.tests": {"gcc_compiles": "pass"},
    }, "one that failed on one of several machines has failed"


@pytest.mark.parametrize("kind", KINDS)
def test_both_transports_see_and_write_the_same(tmp_path: Path, root: Path, kind: str) -> None:
    other = "shell" if kind == "local" else "local"
    published(place(root), image(tmp_path / "a", "a"), kind)
    with transport(kind, root) as one, transport(other, root) as another:
        assert one.look("compute", ("all",)) == another.look("compute", ("all",))
    assert published(place(root), image(tmp_path / "a", "a"), other).unchanged


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_current_already_is_not_written_again(tmp_path: Path, root: Path, kind: str) -> None:
    first = published(place(root), image(tmp_path / "a", "a"), kind)
    was = state(root)
    again = published(place(root), image(tmp_path / "again", "a"), kind)
    assert state(root) == was
    assert again.unchanged
    assert again.version == first.version
    assert image_publish.tree(again, WANTED).status is Status.PASS


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_key_and_bytes_are_one_image_wherever_the_recipe_came_from(tmp_path: Path, root: Path, kind: str) -> None:
    """A store that is cold packs it anew, at another commit and with other versions of tools that gave the same bytes."""
    first = published(place(root), image(tmp_path / "a", "a", tools={"zstd": "1.5.4"}), kind, origin="commit 1")
    was = state(root)
    again = published(place(root), image(tmp_path / "again", "a", tools={"zstd": "1.5.6"}), kind, origin="commit 2")
    assert state(root) == was
    assert (again.unchanged, again.version, again.origin) == (True, first.version, "commit 1")
    assert image_publish.tree(again, WANTED).status is Status.PASS


def test_the_same_key_with_other_bytes_is_another_version(tmp_path: Path, root: Path) -> None:
    first = published(place(root), image(tmp_path / "a", "a"))
    second = published(place(root), image(tmp_path / "b", "b"))
    assert (second.unchanged, second.before) == (False, first.version)


@pytest.mark.parametrize("kind", KINDS)
def test_versions_follow_each_other_and_old_ones_go(tmp_path: Path, root: Path, kind: str) -> None:
    seen = [published(place(root), image(tmp_path / text, text), kind) for text in "abcd"]
    names = [one.version for one in seen]
    assert [one.before for one in seen] == ["", *names[:-1]]
    assert seen[-1].versions == tuple(names[1:])
    assert seen[-1].removed == (names[0],)
    assert [one["to"] for one in map(json.loads, (root / "compute/history.jsonl").read_text().splitlines())] == names
    assert wrong(root, kind=kind) == []
    assert image_publish.tree(seen[-1], WANTED).status is Status.PASS


def test_a_version_that_a_node_runs_stays(tmp_path: Path, root: Path) -> None:
    first = published(place(root), image(tmp_path / "a", "a"))
    (root / "nodes").mkdir()
    with transport("local", root) as way:
        had = image_versions.manifest_of(way.look("compute"), first.version)
    assert had
    part = had.part(image_manifest.ROOT)
    assert part
    (root / "nodes/node001.json").write_text(json.dumps({"node": "node001", "image": part.digest, "at": 1.0}) + "\n")
    (root / "nodes/node002.json").write_text("no report")
    seen = [published(place(root, keep=2), image(tmp_path / text, text)) for text in "bcd"][-1]
    assert first.version in seen.versions
    assert seen.in_use == (first.version,)
    assert len(seen.versions) == 3
    assert image_publish.tree(seen, PublishedExpectation(groups=("default",), keep=2)).status is Status.PASS


def test_numbers_are_never_used_twice(tmp_path: Path, root: Path) -> None:
    last = [published(place(root), image(tmp_path / text, text)) for text in "ab"][-1]
    with transport("local", root) as way:
        image_publication.roll_back(way, "compute", "1", "me")
    for path in sorted((root / "compute/versions" / last.version).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (root / "compute/versions" / last.version).rmdir()
    assert published(place(root), image(tmp_path / "c", "c")).version.startswith("0003-")


def test_an_image_that_is_there_but_not_current_is_not_copied_again(tmp_path: Path, root: Path) -> None:
    first = published(place(root), image(tmp_path / "a", "a"))
    published(place(root), image(tmp_path / "b", "b"))
    was = state(root / "compute/versions")
    back = published(place(root), image(tmp_path / "a", "a"))
    assert back.version == first.version
    assert not back.unchanged
    assert state(root / "compute/versions") == was


def test_other_scripts_make_another_version_of_the_same_image(tmp_path: Path, root: Path) -> None:
    first = published(place(root), image(tmp_path / "a", "a"))
    more = BootGroup(name="gpu", kernel_arguments=("iommu=pt",))
    second = published(place(root, BootGroup(name="default"), more), image(tmp_path / "a", "a"))
    one, other = (
        image_manifest.decode((root / f"compute/versions/{seen.version}/manifest.json").read_bytes()) for seen in (first, second)
    )
    assert one.is_same(other)
    assert second.version.startswith("0002-")
    assert " iommu=pt " in (root / "compute/current/boot/gpu.ipxe").read_text()


def test_a_test_that_it_never_passed_makes_another_version_of_the_same_image(tmp_path: Path, root: Path) -> None:
    first = published(place(root), image(tmp_path / "a", "a"))
    more = {**RESULTS, "image_boot.boot_bios": []}
    second = published(place(root), image(tmp_path / "a", "a"), results=more)
    one, other = (
        image_manifest.decode((root / f"compute/versions/{seen.version}/manifest.json").read_bytes()) for seen in (first, second)
    )
    assert one.is_same(other)
    assert second.version.startswith("0002-")
    assert published(place(root), image(tmp_path / "a", "a")).unchanged, "fewer tests were passed as well"


def test_a_version_that_was_damaged_is_published_anew(tmp_path: Path, root: Path) -> None:
    first = published(place(root), image(tmp_path / "a", "a"))
    (root / "compute/versions" / first.version / "vmlinuz").write_bytes(b"x")
    second = published(place(root), image(tmp_path / "a", "a"))
    assert second.version.startswith("0002-")
    assert image_publish.tree(second, WANTED).status is Status.PASS


def test_an_entry_that_was_lost_is_written_again(tmp_path: Path, root: Path) -> None:
    published(place(root), image(tmp_path / "a", "a"))
    (root / "boot/gpu.ipxe").unlink()
    was = state(root / "compute/versions")
    seen = published(place(root), image(tmp_path / "a", "a"))
    assert not seen.unchanged
    assert (root / "boot/gpu.ipxe").exists()
    assert state(root / "compute/versions") == was


def test_signed_versions(tmp_path: Path, root: Path) -> None:
    public = key_pair(tmp_path)
    where = place(root, key="key", signers=(public,))
    seen = published(where, image(tmp_path / "a", "a"), secrets=tmp_path)
    assert seen.signature == "good"
    assert wrong(root, signers=(public,)) == []
    assert published(where, image(tmp_path / "a", "a"), secrets=tmp_path).unchanged
    sums = root / "compute/current/SHA256SUMS"
    sums.write_bytes(sums.read_bytes().replace(b"0", b"1"))
    assert any("no trusted key" in one for one in wrong(root, signers=(public,)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_nobody_trusts_is_refused_before_anything_is_written(tmp_path: Path, root: Path, kind: str) -> None:
    """Once production boots it, `image verify` would call it forged, and the next build make one more of the kind."""
    published(place(root), image(tmp_path / "a", "a"), kind)
    (tmp_path / "other").mkdir()
    mine, other, was = key_pair(tmp_path), key_pair(tmp_path / "other"), state(root)
    with pytest.raises(
        BadTask, match=r"key signs as ED25519 SHA256:\S+, which is none of the keys that this place trusts"
    ) as caught:
        published(place(root, key="key", signers=(other,)), image(tmp_path / "b", "b"), kind, secrets=tmp_path)
    assert "publish.signers" in caught.value.hint
    assert state(root) == was
    both = place(root, key="key", signers=(other, mine))
    assert published(both, image(tmp_path / "b", "b"), kind, secrets=tmp_path).signature == "good"


def test_a_version_is_published_anew_once_it_must_be_signed(tmp_path: Path, root: Path) -> None:
    published(place(root), image(tmp_path / "a", "a"))
    where = place(root, key="key", signers=(key_pair(tmp_path),))
    assert published(where, image(tmp_path / "a", "a"), secrets=tmp_path).signature == "good"


def test_packages_that_changed_are_told(tmp_path: Path, root: Path) -> None:
    def package(name: str, version: str) -> image_manifest.PackageOf:
        return image_manifest.PackageOf(name=name, version=version, architecture="amd64", sha256="0" * 64, layer="base")

    published(place(root), image(tmp_path / "a", "a", packages=(package("gcc", "12"), package("htop", "3"))))
    seen = published(place(root), image(tmp_path / "b", "b", packages=(package("gcc", "13"), package("jq", "1"))))
    assert (seen.packages_added, seen.packages_removed, seen.packages_changed) == (("jq=1",), ("htop=3",), ("gcc 12 → 13",))


def test_a_group_that_nodes_load_cannot_vanish(tmp_path: Path, root: Path) -> None:
    published(place(root), image(tmp_path / "a", "a"))
    was = state(root / "compute/versions")
    with pytest.raises(Refused, match=r"boot/gpu\.ipxe, but the spec has no group gpu"):
        published(place(root, BootGroup(name="default")), image(tmp_path / "b", "b"))
    assert state(root / "compute/versions") == was


def test_a_group_of_another_image_is_not_taken(tmp_path: Path, root: Path) -> None:
    published(place(root), image(tmp_path / "a", "a"))
    with pytest.raises(Refused, match="group gpu boots the image compute"):
        published(place(root, BootGroup(name="gpu")), image(tmp_path / "b", "b", name="login"))
    assert not (root / "login").exists()


def test_two_images_share_a_root(tmp_path: Path, root: Path) -> None:
    published(place(root), image(tmp_path / "a", "a"))
    published(place(root, BootGroup(name="login")), image(tmp_path / "b", "b", name="login"))
    assert wrong(root) == []
    assert wrong(root, "login") == []


@pytest.mark.parametrize("kind", KINDS)
def test_two_images_that_enter_a_root_at_once(tmp_path: Path, root: Path, kind: str) -> None:
    """The start script knows the entries of both images, whichever came first; a group that the other just took is refused."""
    other = image(tmp_path / "b", "b", name="login")
    image(tmp_path / "a", "a")
    with transport(kind, root) as inner:
        way = Meanwhile(inner, lambda: published(place(root, BootGroup(name="default")), other))
        image_publication.publish_through(way, order(place(root, BootGroup(name="gpu")), tmp_path / "a"), silent)
    assert wrong(root) == []
    assert "default.ipxe" in (root / "boot/boot.ipxe").read_text()

    (tmp_path / "more").mkdir()
    with transport(kind, tmp_path / "more") as inner:
        way = Meanwhile(inner, lambda: published(place(tmp_path / "more", BootGroup(name="gpu")), other))
        with pytest.raises(Refused, match=r"boot/gpu\.ipxe is there already"):
            image_publication.publish_through(way, order(place(tmp_path / "more", BootGroup(name="gpu")), tmp_path / "a"), silent)
    assert "/login/current/" in (tmp_path / "more/boot/gpu.ipxe").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_is_not_what_its_manifest_says_is_never_named(tmp_path: Path, root: Path, kind: str) -> None:
    folder = image(tmp_path / "a", "a")
    data = (folder / "vmlinuz").read_bytes()
    (folder / "vmlinuz").write_bytes(b"X" + data[1:])
    with pytest.raises(BadTask, match="vmlinuz has the digest"):
        published(place(root), folder, kind)
    assert not (root / "compute/current").is_symlink()
    assert list(root.glob("compute/versions/*")) == []
    (folder / "vmlinuz").write_bytes(data[1:])
    with pytest.raises(BadTask, match="vmlinuz is not the file of"):
        published(place(root), folder, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_root_that_is_not_there_is_not_made(tmp_path: Path, kind: str) -> None:
    """A mount that is missing must not fill the disk below it."""
    with pytest.raises(BadTask, match="no such folder"):
        published(place(tmp_path / "unmounted"), image(tmp_path / "a", "a"), kind)


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ((BootGroup(name="../etc"),), "cannot be the name of a group"),
        ((BootGroup(name="gpu", kernel_arguments=("a\nchain http://evil",)),), "cannot stand in an iPXE script"),
        ((BootGroup(name="gpu", kernel_arguments=("||",)),), "cannot stand in an iPXE script"),
        ((BootGroup(name="gpu", nodes={"52:54:00": "n"}),), "no MAC address"),
    ],
)
def test_what_a_boot_script_cannot_take_is_refused_before_anything_is_written(
    tmp_path: Path, root: Path, groups: tuple[BootGroup, ...], sentence: str
) -> None:
    with pytest.raises(BadTask, match=sentence):
        published(place(root, *groups), image(tmp_path / "a", "a"))
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_servers_may_read_it_whatever_the_umask_is(tmp_path: Path, root: Path, kind: str) -> None:
    was = os.umask(0o077)
    try:
        published(place(root), image(tmp_path / "a", "a"), kind)
    finally:
        os.umask(was)
    modes = {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir()}
    assert modes == {0o755}
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o644}
