"""Machines that groups name: each has a script of its own, which goes with the version, and one script finds it for all."""

import json
import os
import tempfile
import time
from pathlib import Path

import pytest

from steps.clients.releases import usage
from steps.contract.verdict import Status
from steps.errors import BadTask, Refused
from steps.nodeimage.contract.boot_tree import BootGroup
from steps.nodeimage.publishing import image_kind, image_publication, node_reports, publication_status
from steps.stages.image_publish import gate as image_publish
from steps.stages.image_publish.contract import Published, PublishedExpectation
from tests.unit import small_image
from tests.unit.clients.published.published_trees import KINDS, URL, Meanwhile, image, place, published, state, transport, wrong
from workflows import examples

FIRST, SECOND = "52:54:00:00:00:01", "52:54:00:00:00:02"
NO_CARD = "00:00:00:00:00:00"
"""The all-zero MAC address that a tunnel interface reports; it identifies no machine."""
OWN, OTHER = "mac-52-54-00-00-00-01.ipxe", "mac-52-54-00-00-00-02.ipxe"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def groups(**nodes: str) -> tuple[BootGroup, ...]:
    """Groups `gpu` and `default`; `nodes` says which MAC address is called what in the first."""
    return BootGroup(name="gpu", nodes={mac: name for name, mac in nodes.items()}), BootGroup(name="default")


def verdict(seen: Published) -> Status:
    return image_publish.tree(seen, PublishedExpectation(groups=("gpu", "default"))).status


@pytest.mark.parametrize("kind", KINDS)
def test_a_machine_is_led_to_the_script_of_its_group_in_the_version_that_is_current(tmp_path: Path, root: Path, kind: str) -> None:
    seen = published(place(root, *groups(gpu001=FIRST)), image(tmp_path / "a", "a"), kind)
    assert verdict(seen) is Status.PASS
    assert wrong(root, kind=kind) == []
    start = (root / "boot/boot.ipxe").read_text()
    assert f"iseq ${{netX/mac}} {FIRST} && goto own ||" in start
    assert f"chain --autofree --replace {URL}/boot/mac-${{netX/mac:hexhyp}}.ipxe || goto failed" in start
    assert f"chain --autofree --replace {URL}/boot/default.ipxe ||" in start
    assert f"chain --autofree --replace {URL}/compute/current/boot/{OWN} || goto failed" in (root / "boot" / OWN).read_text()
    script = (root / "compute/current/boot" / OWN).read_text()
    assert f"chain --autofree --replace {URL}/compute/versions/{seen.version}/boot/gpu.ipxe || goto failed" in script
    assert f"chain --autofree --replace {URL}/boot/boot.ipxe ||" in script, "what is its own may have changed meanwhile"


def test_the_default_sends_machines_of_other_groups_back(tmp_path: Path, root: Path) -> None:
    """The default script sends a machine of another group back to the start: a failed fetch must not make it boot the default."""
    published(place(root, *groups(gpu001=FIRST)), image(tmp_path / "a", "a"))
    lines = (root / "compute/current/boot/default.ipxe").read_text().splitlines()
    assert lines.index(f"iseq ${{netX/mac}} {FIRST} && goto elsewhere ||") < lines.index("goto load") < lines.index(":elsewhere")
    assert f"chain --autofree --replace {URL}/boot/boot.ipxe ||" in lines


def test_a_machine_that_can_load_nothing_begins_where_it_is_led_to_what_is_current(tmp_path: Path, root: Path) -> None:
    """Only a DHCP server leads to a group that names no machine and is not the default: nothing else would lead there again."""
    published(place(root, *groups(gpu001=FIRST), BootGroup(name="rack7")), image(tmp_path / "a", "a"))
    for name, url in (("gpu", f"{URL}/boot/boot.ipxe"), ("default", f"{URL}/boot/boot.ipxe"), ("rack7", f"{URL}/boot/rack7.ipxe")):
        lines = (root / f"compute/current/boot/{name}.ipxe").read_text().splitlines()
        assert lines[-2:] == [f"chain --autofree --replace {url} ||", "goto load"], name
        assert (root / url.removeprefix(f"{URL}/")).is_file()
    lines = (root / "compute/current/boot/gpu.ipxe").read_text().splitlines()
    assert lines[lines.index("goto who") - 1] == f"chain --autofree --replace {URL}/boot/gpu.ipxe ||"
    assert wrong(root) == []
    (root / "boot/rack7.ipxe").unlink()
    seen = published(place(root, *groups(gpu001=FIRST)), image(tmp_path / "a", "a"))
    assert verdict(seen) is Status.PASS, "an older version with a group that is gone leads nowhere"
    assert wrong(root) == []


def known(root: Path) -> list[str]:
    """Machines that go on with a script of their own, however long that cannot be had."""
    lines = (root / "boot/boot.ipxe").read_text().splitlines()
    return [line.split()[2] for line in lines if line.startswith("iseq ") and " goto own " in line]


@pytest.mark.parametrize("kind", KINDS)
def test_no_machine_of_another_image_boots_the_default_of_this_one(tmp_path: Path, root: Path, kind: str) -> None:
    """Whoever comes, goes or goes back: what all machines are told knows the machines of every image."""
    published(place(root, BootGroup(name="default")), image(tmp_path / "a", "a"), kind)
    assert known(root) == []
    gpu = image(tmp_path / "b", "b", name="gpu")
    for nodes, found in (({FIRST: "gpu001"}, [FIRST]), ({SECOND: "gpu002"}, [SECOND])):
        published(place(root, BootGroup(name="gpu", nodes=nodes)), gpu, kind)
        assert known(root) == found
    published(place(root, BootGroup(name="default")), image(tmp_path / "c", "c"), kind)
    assert known(root) == [SECOND]
    with transport(kind, root) as way:
        image_publication.roll_back(way, "gpu", "", "ada")
        assert known(root) == [FIRST]
        image_publication.roll_back(way, "compute", "", "ada")
    assert known(root) == [FIRST]
    assert wrong(root, kind=kind) == wrong(root, "gpu", kind=kind) == []


def test_a_rollback_knows_of_machines_that_another_image_enters_meanwhile(tmp_path: Path, root: Path) -> None:
    gpu = image(tmp_path / "b", "b", name="gpu")
    for nodes in ({FIRST: "n1"}, {SECOND: "n2"}):
        published(place(root, BootGroup(name="login", nodes=nodes), BootGroup(name="default")), image(tmp_path / "a", "a"))
    third = "52:54:00:00:00:03"
    with transport("local", root) as inner:
        way = Meanwhile(inner, lambda: published(place(root, BootGroup(name="gpu", nodes={third: "gpu001"})), gpu))
        image_publication.roll_back(way, "compute", "", "ada")
        assert way.act == []
    assert known(root) == [FIRST, third]
    assert wrong(root) == wrong(root, "gpu") == []


def test_without_a_default_a_strange_machine_waits(tmp_path: Path, root: Path) -> None:
    published(place(root, BootGroup(name="gpu", nodes={FIRST: "gpu001"})), image(tmp_path / "a", "a"))
    assert "default" not in (root / "boot/boot.ipxe").read_text()
    assert wrong(root) == []
    published(place(root, BootGroup(name="default")), image(tmp_path / "b", "b", name="login"))
    assert "boot/default.ipxe" in (root / "boot/boot.ipxe").read_text(), "another image has one"
    assert wrong(root) == wrong(root, "login") == []


@pytest.mark.parametrize("kind", KINDS)
def test_machines_come_go_and_come_back_with_their_version(tmp_path: Path, root: Path, kind: str) -> None:
    published(place(root, *groups(gpu001=FIRST)), image(tmp_path / "a", "a"), kind)
    seen = published(place(root, *groups(gpu002=SECOND)), image(tmp_path / "a", "a"), kind)
    assert (verdict(seen), seen.lost) == (Status.PASS, ())
    assert [path.name for path in sorted((root / "boot").glob("mac-*"))] == [OTHER]
    with transport(kind, root) as way:
        image_publication.roll_back(way, "compute", "", "ada")
    assert [path.name for path in sorted((root / "boot").glob("mac-*"))] == [OWN]
    assert wrong(root, kind=kind) == []


def test_what_is_current_is_not_written_again_and_stands(tmp_path: Path, root: Path) -> None:
    where = place(root, *groups(gpu001=FIRST))
    published(where, image(tmp_path / "a", "a"))
    was = state(root)
    assert published(where, image(tmp_path / "a", "a")).unchanged
    assert state(root) == was
    assert publication_status.current_version(where, "compute", "0" * 64)
    assert publication_status.current_version(place(root, *groups(gpu001=SECOND)), "compute", "0" * 64) == "", "another machine"
    (root / "boot" / OTHER).write_text((root / "boot" / OWN).read_text().replace("01.ipxe", "02.ipxe"))
    assert publication_status.current_version(where, "compute", "0" * 64) == "", "a machine is led to a script that is none"
    assert not published(where, image(tmp_path / "a", "a")).unchanged
    assert not (root / "boot" / OTHER).exists()


def test_a_machine_of_another_image_is_not_taken(tmp_path: Path, root: Path) -> None:
    published(place(root, *groups(gpu001=FIRST)), image(tmp_path / "a", "a"))
    login = BootGroup(name="login", nodes={FIRST: "login1"})
    with pytest.raises(Refused, match="machine mac-52-54-00-00-00-01 boots the image compute"):
        published(place(root, login), image(tmp_path / "b", "b", name="login"))
    published(place(root, *groups()), image(tmp_path / "a", "a"))
    published(place(root, login), image(tmp_path / "b", "b", name="login"))
    with transport("local", root) as way:
        image_publication.roll_back(way, "compute", "", "ada")
    assert "/login/current/" in (root / "boot" / OWN).read_text(), "it has moved"
    assert wrong(root) == wrong(root, "login") == []


@pytest.mark.parametrize("name", ["boot", "mac-52-54-00-00-00-01"])
def test_a_group_cannot_have_the_name_of_a_script_of_bringup(tmp_path: Path, root: Path, name: str) -> None:
    with pytest.raises(BadTask, match="cannot be the name of a group"):
        published(place(root, BootGroup(name=name)), image(tmp_path / "a", "a"))


def test_damage_is_named(tmp_path: Path, root: Path) -> None:
    seen = published(place(root, *groups(gpu001=FIRST)), image(tmp_path / "a", "a"))
    (root / "boot/boot.ipxe").write_text("#!ipxe\nshell\n")
    (root / "boot" / OWN).unlink()
    (root / "compute/versions" / seen.version / "boot" / OWN).write_text("#!ipxe\n")
    found = "\n".join(wrong(root))
    for place_of, why in (
        ("boot/boot.ipxe", "is not as this bringup writes it"),
        (f"boot/{OWN}", "is missing"),
        (f"versions/{seen.version}/boot/{OWN}", "has the digest"),
    ):
        assert f"{place_of} {why}" in found, found
    (root / "boot/boot.ipxe").unlink()
    assert "boot/boot.ipxe is missing" in "\n".join(wrong(root))


def test_a_stranger_keeps_no_version_where_groups_name_their_machines(tmp_path: Path, root: Path) -> None:
    named = BootGroup(name="gpu", nodes={FIRST: "gpu001"})
    first = published(place(root, named), image(tmp_path / "a", "a"))
    (root / "nodes").mkdir()
    for name, mac in (("gpu001", FIRST), ("stranger", SECOND)):
        seen = {"node": name, "image": "", "version": first.version, "mac": mac, "at": 1.0}
        (root / f"nodes/{name}.json").write_text(json.dumps(seen) + "\n")
    (root / "nodes/huge.json").write_text(json.dumps({"node": "huge", "image": "x" * 5000}) + "\n")
    for kind in KINDS:
        with transport(kind, root) as way:
            found = {row.node: row.stand.value for row in node_reports.nodes((way.look("compute"),), now=time.time())}
        assert found == {"gpu001": "current", "stranger": "stranger", "huge": "unreadable"}
    (root / "nodes/gpu001.json").unlink()
    for text in "bcd":
        last = published(place(root, named, keep=2), image(tmp_path / text, text))
    assert first.version not in last.versions
    open_to_all = published(place(root, named, BootGroup(name="default"), keep=2), image(tmp_path / "d", "d"))
    (root / "nodes/stranger.json").write_text(json.dumps({"node": "stranger", "image": "", "version": open_to_all.version}) + "\n")
    with transport("local", root) as way:
        assert usage.in_use(image_kind.image_kind(), way.look("compute")) == (open_to_all.version,), "any machine may boot it"


def test_when_nodes_told_is_known_by_every_way(tmp_path: Path, root: Path) -> None:
    version = published(place(root, *groups(gpu001=FIRST)), image(tmp_path / "a", "a")).version
    (root / "nodes").mkdir()
    for name, mac, at in (("gpu001", FIRST, 5000), ("gpu 2", "none", 6000), ("stranger", SECOND, 7000)):
        (root / f"nodes/{name}.json").write_text(json.dumps({"node": name, "image": "", "version": version, "mac": mac}) + "\n")
        os.utime(root / f"nodes/{name}.json", (at, at))
    (root / "nodes/none.json").mkdir()
    for kind in KINDS:
        with transport(kind, root) as way:
            tree = way.look("compute")
        assert tree.reported_at == {"gpu001.json": 5000, "gpu 2.json": 6000, "stranger.json": 7000}
        found = node_reports.nodes((tree,), now=7100, silence=1500)
        assert [(row.node, row.told, row.age, row.stand.value) for row in found] == [
            ("gpu 2", 6000, 1100, "current"),
            ("gpu001", 5000, 2100, "stale"),
            ("stranger", 7000, 100, "current"),
        ]
        (row,) = node_reports.versions(tree, now=7100, silence=1500)
        assert (row.nodes, row.stale) == (("gpu 2", "gpu001", "stranger"), ("gpu001",))
        assert {row.age for row in node_reports.nodes((tree,), now=0)} == {0}, (
            "a clock that is behind makes nobody older or younger"
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_machine_that_has_got_a_name_counts_once_and_keeps_what_it_told_last(tmp_path: Path, root: Path, kind: str) -> None:
    """Of several reports with one MAC address only the latest counts, so that an older one keeps no version in use forever."""
    first, second, third = (published(place(root), image(tmp_path / text, text)).version for text in "abc")
    (root / "nodes").mkdir()
    reports = [("mac-52-54-00-00-00-01", FIRST, first, 5000), ("new9", FIRST, third, 6000)]
    reports += [("abc", "52-54-00-AB-CD-EF", second, 6000), ("xyz", "52:54:00:ab:cd:ef", first, 5000)]
    reports += [(f"bare{number}", mac, second, 4000 + number) for number, mac in enumerate(("none", "none", NO_CARD, NO_CARD))]
    for name, mac, version, at in reports:
        (root / f"nodes/{name}.json").write_text(json.dumps({"node": name, "image": "", "version": version, "mac": mac}) + "\n")
        os.utime(root / f"nodes/{name}.json", (at, at))
    with transport(kind, root) as way:
        tree = way.look("compute")
    assert [row.node for row in node_reports.nodes((tree,), now=7000)] == ["abc", "bare0", "bare1", "bare2", "bare3", "new9"]
    assert {row.version: row.nodes for row in node_reports.versions(tree, now=7000)} == {
        third: ("new9",),
        second: ("abc", "bare0", "bare1", "bare2", "bare3"),
        first: (),
    }
    assert usage.in_use(image_kind.image_kind(), tree) == (second, third)
    seen = published(place(root), image(tmp_path / "d", "d"), kind)
    assert (seen.removed, seen.in_use) == ((first,), (second, third))


@pytest.mark.parametrize("file", ["dnsmasq.conf", "dhcpd.conf"])
def test_the_example_of_a_boot_server_tells_the_script_that_is_there(tmp_path: Path, root: Path, file: str) -> None:
    text = (Path(examples.__file__).parent / "images/boot-server" / file).read_text()
    told = next(word.strip('";').split(",")[-1] for word in text.split() if "://" in word and "/boot.ipxe" in word)
    published(place(root, *groups()), image(tmp_path / "a", "a"))
    assert (root / told.removeprefix(f"{URL}/")).is_file()


def test_of_machines_whose_scripts_are_whole_no_record_tells(tmp_path: Path, root: Path) -> None:
    seen = published(place(root, *groups(gpu001=FIRST)), image(tmp_path / "a", "a"))
    assert all("mac-" not in part.name for part in (*seen.found, *seen.listed))
    assert sorted(seen.scripts) == sorted(seen.entries) == ["default", "gpu"]


@pytest.mark.parametrize("machines", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_fleet_is_published_in_a_time_that_grows_with_it_alone(machines: int, tmp_path: Path) -> None:
    """Thousands of machines: what a script of one costs must not count for each of the others. In memory, for a disk takes a minute
    to flush so many files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        root = Path(folder)
        where = place(root, BootGroup(name="gpu", nodes=small_image.fleet(machines)), BootGroup(name="default"))
        seen = published(where, image(tmp_path / "a", "a"))
        assert (verdict(seen), seen.lost) == (Status.PASS, ())
        assert len(list((root / "boot").iterdir())) == machines + 3
