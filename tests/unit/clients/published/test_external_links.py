"""Publishing fails if a link or boot script would lead out of the tree, and whatever is published passes the gate."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from steps.clients.releases import preflight
from steps.contract.verdict import Status
from steps.errors import Refused
from steps.nodeimage.contract import image_manifest, script_links
from steps.nodeimage.contract.boot_tree import BootGroup
from steps.nodeimage.publishing import publication_status
from steps.nodeimage.publishing.image_kind import local_tree
from steps.stages.image_publish import gate as image_publish
from steps.stages.image_publish.contract import Published, PublishedExpectation
from steps.stages.image_status.contract import CURRENT, ImageStatus
from tests.unit.clients.published.published_trees import KINDS, image, order, place, published, state, transport, wrong

KEY = "0" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for text in "ab":
        assert judged(published(place(root), image(tmp_path / text, text))) is Status.PASS
    return root


def judged(seen: Published) -> Status:
    return image_publish.tree(seen, PublishedExpectation(groups=("default", "gpu"))).status


def starting(folder: Path, *arguments: str) -> Path:
    """The packed image in a folder, which starts with these kernel arguments."""
    path = folder / image_manifest.MANIFEST
    path.write_bytes(
        image_manifest.encode(msgspec.structs.replace(image_manifest.decode(path.read_bytes()), kernel_arguments=arguments))
    )
    return folder


def asked(root: Path, kind: str, key: str = KEY) -> ImageStatus:
    with transport(kind, root) as way:
        return publication_status.query(way, place(root), "compute", key, ())


def is_current(root: Path) -> bool:
    return bool(publication_status.current_version(place(root), "compute", KEY))


VERIFIED = {
    "imgverify vmlinuz http://boot/vmlinuz.sig || goto failed": ("http://boot/vmlinuz.sig",),
    "imgverify --signer ca vmlinuz http://boot/vmlinuz.sig": ("http://boot/vmlinuz.sig",),
    "imgverify -s ca --keep initrd.img initrd.sig || shell": ("initrd.sig",),
    "imgverify http://factory/vmlinuz x.sig": ("http://factory/vmlinuz", "x.sig"),
    "imgverify --signer=ca --timeout 9 http://factory/a http://boot/a.sig && boot": ("http://factory/a", "http://boot/a.sig"),
    "imgverify a": ("a",),
}
"""Lines of a boot script that has loaded vmlinuz and initrd.img, and the addresses that they add."""


@pytest.mark.parametrize("line", VERIFIED)
def test_ipxe_loads_what_it_verifies_unless_it_has_it(line: str) -> None:
    loaded = ("http://boot/7/vmlinuz", "http://boot/7/other")
    text = f"kernel {loaded[0]} quiet -n a || goto failed\ninitrd --name initrd.img {loaded[1]}\n{line}\n"
    assert script_links.addresses(text) == (*loaded, *VERIFIED[line])


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_that_a_manifest_repeats_leads_nowhere(root: Path, tmp_path: Path, kind: str) -> None:
    """As a service of the image is given one; nothing is loaded from what stands in a manifest."""
    folder = starting(image(tmp_path / "c", "c"), "console=ttyS0", "cloud-config-url=http://cfg.example.org/n.yaml")
    assert judged(published(place(root), folder, kind)) is Status.PASS
    assert published(place(root), folder, kind).unchanged
    assert asked(root, kind).answer == CURRENT
    assert is_current(root)
    assert wrong(root) == []


@pytest.mark.parametrize("argument", ["ks=http://cfg.example.org/ks", "url=/srv/x"])
@pytest.mark.parametrize("kind", KINDS)
def test_scripts_that_would_lead_out_are_never_booted(root: Path, tmp_path: Path, kind: str, argument: str) -> None:
    folder = starting(image(tmp_path / "c", "c"), argument)
    new = tmp_path / "new"
    new.mkdir()
    for where in (root, new):
        before = state(where)
        with pytest.raises(
            Refused, match=rf"leads out of itself, so nothing is published: .* leads to {argument.partition('=')[2]}"
        ):
            published(place(where), folder, kind)
        assert state(where) == before, "nothing was written"


def link(root: Path) -> None:
    (root / "iso").symlink_to("/srv/iso")


def own_script(root: Path) -> None:
    (root / "boot/rescue.ipxe").write_text("#!ipxe\nchain http://rescue.example.org/menu.ipxe\n")


@pytest.mark.parametrize("act", [link, own_script])
@pytest.mark.parametrize("kind", KINDS)
def test_what_no_publication_mends_is_told_before_one_is_built(
    root: Path, tmp_path: Path, kind: str, act: Callable[[Path], None]
) -> None:
    act(root)
    before = state(root)
    with pytest.raises(Refused, match="leads out of itself"):
        published(place(root), image(tmp_path / "c", "c"), kind)
    for key in (KEY, "1" * 64):
        with pytest.raises(Refused, match="leads out of itself"):
            asked(root, kind, key)
    assert not is_current(root)
    assert judged(published(place(root), tmp_path / "b", kind)) is Status.FAIL, "and what is there already is not judged good"
    assert state(root) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_by_hard_links_hinders_no_later_publication(root: Path, tmp_path: Path, kind: str) -> None:
    shutil.copytree(root, tmp_path / "backup", copy_function=os.link, symlinks=True)
    with pytest.raises(Refused, match="another name of the same bytes"):
        asked(root, kind)
    assert not is_current(root), "the gate does not pass that"
    assert asked(root, kind, "1" * 64).differs.endswith("is another image"), "and another image may be built"
    assert judged(published(place(root), image(tmp_path / "c", "c"), kind)) is Status.PASS
    assert is_current(root)
    assert asked(root, kind).answer == CURRENT
    assert any("another name of the same bytes" in one for one in wrong(root)), "whoever verifies the tree is told"


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_version_that_leads_out_can_be_left_by_publishing(root: Path, tmp_path: Path, kind: str) -> None:
    script = root / "compute/current/boot/gpu.ipxe"
    script.write_text(script.read_text().replace("nouveau.modeset=0", "ks=http://cfg.example.org/ks"))
    assert not is_current(root)
    assert judged(published(place(root), image(tmp_path / "c", "c"), kind)) is Status.PASS
    assert asked(root, kind).answer == CURRENT


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_stopped_publication_left_leads_nowhere(root: Path, tmp_path: Path, kind: str) -> None:
    """A publication first removes the leftovers of an interrupted one, even a half-written boot script, and passes the gate."""
    half = root / "compute/incoming/5f"
    half.mkdir(parents=True)
    (half / "gpu.ipxe").write_text("#!ipxe\nchain http://boot.example.org/ima")
    (half / "current").symlink_to("/srv/elsewhere")
    assert asked(root, kind).differs.endswith("was stopped before its end")
    assert judged(published(place(root), image(tmp_path / "c", "c"), kind)) is Status.PASS


@pytest.mark.parametrize("gone", ["before", "current"])
def test_a_version_that_somebody_removed_is_nothing_to_keep(root: Path, tmp_path: Path, gone: str) -> None:
    first, second = sorted((root / "compute/versions").iterdir())
    shutil.rmtree(first if gone == "before" else second)
    text = "b" if gone == "before" else "c"
    seen = published(place(root), image(tmp_path / text, text))
    assert (judged(seen), seen.before) == (Status.PASS, "")
    assert judged(published(place(root), tmp_path / text)) is Status.PASS
    assert asked(root, "local").answer == CURRENT


def test_a_manifest_of_another_digest_than_the_name_says_does_not_stand(root: Path) -> None:
    starting(root / "compute/current", "quiet")
    for script in (root / "compute/current/boot").iterdir():
        script.write_text(script.read_text().replace("console=ttyS0", "quiet"))
    assert not is_current(root)


def test_what_is_foreseen_is_what_comes(root: Path, tmp_path: Path) -> None:
    """New, of other groups with fewer machines, and once more what is there: the paths and scripts that it is judged by."""
    names = {f"52:54:00:00:00:0{number}": f"n{number}" for number in range(4)}
    for nodes, text in ((names, "c"), (dict(list(names.items())[:2]), "d"), ({}, "d")):
        where = place(root, BootGroup(name="default"), BootGroup(name="gpu", nodes=nodes))
        wanted = order(where, image(tmp_path / text, text))
        found = local_tree(root).look("compute")
        with transport("local", root) as way:
            seen = published(where, tmp_path / text)
            now = way.look("compute")
        expected = preflight.planned_tree(found, wanted.release, seen.version)
        scripts = {path: data for path, data in now.contents.items() if path.endswith(".ipxe")}
        assert {path: data for path, data in expected.contents.items() if path.endswith(".ipxe") and path in scripts} == scripts
        files = {path for path, entry in now.entries.items() if entry.is_file}
        apart = {path for path in files - expected.entries.keys() if "incoming" not in path}
        assert {path.rpartition("/")[2] for path in apart} <= {"SHA256SUMS", "history.jsonl"}
        assert expected.current == now.current == seen.version
