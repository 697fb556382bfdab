"""Rollback: one rename to a version that is whole, and the history says who."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.contract import release_layout
from steps.contract.release_layout import Switch
from steps.errors import BadTask, Refused
from steps.nodeimage.contract.boot_tree import BootGroup
from steps.nodeimage.publishing import image_publication
from tests.unit.clients.published.published_trees import KINDS, RESULTS, image, place, published, state, transport, wrong


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for text in "abc":
        published(place(root), image(tmp_path / text, text))
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_back_and_back_again(root: Path, kind: str, tmp_path: Path) -> None:
    with transport(kind, root) as way:
        was = state(root / "compute/versions")
        assert image_publication.roll_back(way, "compute", "", "ada").to.startswith("0002-")
        assert image_publication.roll_back(way, "compute", "", "ada").to.startswith("0001-")
        with pytest.raises(BadTask, match="no version before"):
            image_publication.roll_back(way, "compute", "", "ada")
        assert image_publication.roll_back(way, "compute", "3", "ada").to.startswith("0003-")
        assert state(root / "compute/versions") == was
    assert json.loads((root / "compute/history.jsonl").read_text().splitlines()[-1])["by"] == "ada"
    assert wrong(root) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_version_is_refused(root: Path, kind: str) -> None:
    broken = next((root / "compute/versions").glob("0002-*"))
    (broken / "root.squashfs").write_bytes(b"half")
    current = (root / "compute/current").readlink()
    with transport(kind, root) as way, pytest.raises(Refused, match=r"0002-\w+ is not whole: .*root\.squashfs has 4 bytes"):
        image_publication.roll_back(way, "compute", "", "ada")
    assert (root / "compute/current").readlink() == current


@pytest.mark.parametrize(("version", "sentence"), [("9", "has no version 9"), ("../../etc", "has no version"), ("0002", "")])
def test_versions_are_named_whole_or_by_number(root: Path, version: str, sentence: str) -> None:
    with transport("local", root) as way:
        if not sentence:
            assert image_publication.roll_back(way, "compute", version, "ada").to.startswith("0002-")
            return
        with pytest.raises(BadTask, match=sentence) as caught:
            image_publication.roll_back(way, "compute", version, "ada")
        assert "0001-" in caught.value.hint


def test_what_is_current_already_is_not_written_again(root: Path) -> None:
    was = state(root)
    with transport("local", root) as way:
        done = image_publication.roll_back(way, "compute", "3", "ada")
    assert done.to == done.before
    assert state(root) == was


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_current_and_not_whole_is_not_called_good(root: Path, kind: str) -> None:
    file = root / "compute/current/vmlinuz"
    file.write_bytes(b"x" * file.stat().st_size)
    with transport(kind, root) as way, pytest.raises(Refused, match=r"0003-\w+ is not whole: .*vmlinuz has the digest") as caught:
        image_publication.roll_back(way, "compute", "3", "ada")
    assert "go back to another one: 0001-" in caught.value.hint
    assert "0003-" not in caught.value.hint


def switches(words: str) -> list[Switch]:
    """A history by its numbers; `<` before one is a rollback to it."""
    found: list[Switch] = []
    for word in words.split():
        found.append(Switch(to=word.lstrip("<"), before=found[-1].to if found else "", rollback=word.startswith("<")))
    return found


@pytest.mark.parametrize(
    ("way", "current", "there", "expected"),
    [
        ("", "", "", ""),
        ("1", "1", "1", ""),
        ("1 2", "2", "12", "1"),
        ("1 2 <1", "1", "12", ""),
        ("1 2 <1 3", "3", "123", "1"),
        ("1 2 3 <2 4", "4", "1234", "2"),
        ("1 2", "9", "12", "2"),
        ("1 2 1", "1", "12", "2"),
        ("1 2 3 2", "2", "123", "3"),
        ("1 2 3 <2", "2", "123", "1"),
        ("1 2 3 2 <3", "3", "123", "1"),
        ("1 2 3 2 <3 <1", "1", "123", ""),
        ("1 2 3 1 4", "4", "1234", "1"),
        ("1 2 3 1 4 <1", "1", "1234", "3"),
        ("1 2 3 <1 <3", "3", "123", ""),
        ("1 2 3 <1 2", "2", "123", "1"),
        ("1 2 3 <2 4", "4", "134", "1"),
        ("1 2 3 2", "2", "12", "1"),
    ],
)
def test_a_rollback_goes_to_what_was_current_before_and_never_to_what_another_left(
    way: str, current: str, there: str, expected: str
) -> None:
    assert release_layout.previous(switches(way), current, there) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_publication_left_is_gone_back_to_and_kept_for_that(root: Path, tmp_path: Path, kind: str) -> None:
    """As when the last change of a recipe is taken back, and that is what was wrong."""
    seen = published(place(root, keep=1), tmp_path / "b", kind)
    assert (seen.version[:4], seen.before[:4]) == ("0002", "0003")
    assert seen.versions == (seen.version, seen.before)
    with transport(kind, root) as way:
        assert image_publication.roll_back(way, "compute", "", "ada").to == seen.before
        with pytest.raises(Refused, match=f"{seen.version} was left by a rollback"):
            published(place(root, keep=1), tmp_path / "b", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_build_does_not_undo_a_rollback(root: Path, tmp_path: Path, kind: str) -> None:
    with transport(kind, root) as way:
        bad = [image_publication.roll_back(way, "compute", "", f"rollback by {name}").before for name in ("ada", "eve")]
    was = state(root / "compute/versions")
    for text, version, who in (("c", bad[0], "ada"), ("b", bad[1], "eve")):
        with pytest.raises(Refused, match=rf"^{version} was left by a rollback \(by {who}, 20\d\d-.* UTC\)") as caught:
            published(place(root), tmp_path / text, kind)
        assert "bringup image build --again" in caught.value.hint
    assert state(root / "compute/versions") == was
    assert (root / "compute/current").readlink().name.startswith("0001-")
    assert [path.name for path in (root / "compute/incoming").iterdir() if path.stat().st_size] == []
    again = published(place(root), tmp_path / "c", kind, again=True)
    assert (again.version, again.unchanged) == (bad[0], False)
    assert published(place(root), tmp_path / "c", kind).unchanged, "what was published on purpose stays"


def test_what_a_rollback_left_is_not_copied_anew_either(root: Path, tmp_path: Path) -> None:
    """Not where its files were damaged meanwhile, nor where more tests were made; other boot scripts are another thing."""
    with transport("local", root) as way:
        left = image_publication.roll_back(way, "compute", "", "rollback by ada").before
    for results in (RESULTS, {**RESULTS, "image_boot.boot_bios": []}):
        with pytest.raises(Refused, match=f"{left} was left by a rollback"):
            published(place(root), tmp_path / "c", results=results)
    (root / "compute/versions" / left / "vmlinuz").write_bytes(b"x")
    with pytest.raises(Refused, match=f"{left} was left by a rollback"):
        published(place(root), tmp_path / "c")
    groups = (BootGroup(name="default"), BootGroup(name="gpu", kernel_arguments=("iommu=pt",)))
    assert published(place(root, *groups), tmp_path / "c").version.startswith("0004-")


GPU = BootGroup(name="gpu", kernel_arguments=("nouveau.modeset=0",))
NOT_MENDED = {
    "a machine more": lambda where: replace(
        where, groups=(BootGroup(name="default"), replace(GPU, nodes={"52:54:00:00:00:09": "n9"}))
    ),
    "a group more": lambda where: replace(where, groups=(*where.groups, BootGroup(name="login", kernel_arguments=("iommu=pt",)))),
    "the report": lambda where: replace(where, report="http://other.example.org/images"),
    "the address": lambda where: replace(where, url="http://other.example.org/images"),
}
"""Changes of a publish target that leave the way its image starts as it was."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", NOT_MENDED)
def test_what_a_rollback_left_does_not_come_back_with_a_change_of_something_else(
    root: Path, tmp_path: Path, kind: str, change: str
) -> None:
    where = NOT_MENDED[change](place(root))
    with transport(kind, root) as way:
        left = image_publication.roll_back(way, "compute", "", "rollback by ada").before
    was = state(root / "compute/versions")
    with pytest.raises(Refused, match=f"{left} was left by a rollback"):
        published(where, tmp_path / "c", kind)
    assert state(root / "compute/versions") == was
    assert published(where, tmp_path / "b", kind).version.startswith("0004-"), "what one went back to is changed like any other"


def test_what_was_published_on_purpose_is_changed_like_any_other(root: Path, tmp_path: Path) -> None:
    with transport("local", root) as way:
        left = image_publication.roll_back(way, "compute", "", "rollback by ada").before
    more = NOT_MENDED["a machine more"](place(root))
    assert published(more, tmp_path / "c", again=True).version.startswith("0004-")
    assert published(place(root), tmp_path / "c").version == left, "without that machine it is what it was"


def test_a_rollback_that_left_nothing_but_a_machine_is_not_undone_either(root: Path, tmp_path: Path) -> None:
    """Both versions are the same bytes; with one more change it is another thing than what was left."""
    more = replace(GPU, nodes={"52:54:00:00:00:09": "n9"})
    published(place(root, BootGroup(name="default"), more), tmp_path / "c")
    with transport("local", root) as way:
        left = image_publication.roll_back(way, "compute", "", "rollback by ada").before
    with pytest.raises(Refused, match=f"{left} was left by a rollback"):
        published(place(root, BootGroup(name="default"), more), tmp_path / "c")
    other = replace(GPU, nodes={"52:54:00:00:00:0a": "n10"})
    assert published(place(root, BootGroup(name="default"), other), tmp_path / "c").version.startswith("0005-")


def test_what_a_publication_left_is_published_again(root: Path, tmp_path: Path) -> None:
    assert published(place(root), tmp_path / "a").version.startswith("0001-")
    assert published(place(root), tmp_path / "c").version.startswith("0003-")


def test_a_rollback_strands_no_group(root: Path, tmp_path: Path) -> None:
    groups = tuple(BootGroup(name=name) for name in ("default", "gpu", "login", "mgmt"))
    published(place(root, *groups), image(tmp_path / "d", "d"))
    was = state(root / "compute/versions")
    with transport("local", root) as way:
        with pytest.raises(
            Refused, match=r"^0003-\w+ has no boot script for login, mgmt: their nodes could boot nothing"
        ) as caught:
            image_publication.roll_back(way, "compute", "", "ada")
        assert "remove boot/login.ipxe, boot/mgmt.ipxe by hand" in caught.value.hint
        assert state(root / "compute/versions") == was
        assert wrong(root) == []
        for name in ("login", "mgmt"):
            (root / f"boot/{name}.ipxe").unlink()
        assert image_publication.roll_back(way, "compute", "", "ada").to.startswith("0003-")
    assert wrong(root) == []


def test_a_group_that_boots_nothing_now_holds_no_rollback_back(root: Path, tmp_path: Path) -> None:
    (root / "boot/late.ipxe").write_text((root / "boot/gpu.ipxe").read_text().replace("boot/gpu", "boot/late"))
    with transport("local", root) as way:
        assert image_publication.roll_back(way, "compute", "", "ada").to.startswith("0002-")


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_that_nodes_fetch_from_another_address_must_be_named(root: Path, tmp_path: Path, kind: str) -> None:
    """Rolling back to a version with another address needs its number: only an operator knows whether that address still works."""
    old, new = place(root).url, "http://other.example.org/images"
    published(replace(place(root), url=new), image(tmp_path / "d", "d"), kind)
    was = state(root / "compute/versions")
    with transport(kind, root) as way:
        with pytest.raises(Refused, match=rf"^nodes would fetch 0003-\w+ from {old}, .*; now it is {new}$") as caught:
            image_publication.roll_back(way, "compute", "", "ada")
        assert "bringup image rollback 3" in caught.value.hint
        assert (root / "compute/current").readlink().name.startswith("0004-")
        done = image_publication.roll_back(way, "compute", "3", "ada")
        assert (done.to[:4], done.elsewhere) == ("0003", old)
        assert image_publication.roll_back(way, "compute", "3", "ada").elsewhere == old
        assert image_publication.roll_back(way, "compute", "4", "ada").elsewhere == ""
    assert state(root / "compute/versions") == was
