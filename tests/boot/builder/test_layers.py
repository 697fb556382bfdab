"""Layers built for real: equal wherever they are built, exactly the lock, small where little was added, used only when whole."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from steps.errors import BadTask
from steps.nodeimage import garbage_collection
from steps.nodeimage.containment import namespace
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import LayerCommand, LayerService, LayerUser, PlacedFile, Recipe, ResolvedLayer
from steps.nodeimage.garbage_collection import Roots
from steps.nodeimage.layer import layer_cache, layer_integrity
from steps.stages.image_layers.contract import Built
from tests.boot.builder import clock, tiny
from tests.boot.builder.started import SECONDS, Build, running
from tests.hosts.hostlab.waiting import until

MIB = 1 << 20


class Look(msgspec.Struct):
    """Paths to read in a root."""

    paths: list[str]


def read(root: Path, look: Look) -> dict[str, list[object]]:
    """Called in a namespace: mode, owner, group and text of files."""
    found: dict[str, list[object]] = {}
    for path in look.paths:
        place = root / path
        if place.is_symlink() or place.exists():
            status = place.lstat()
            text = (
                str(place.readlink())
                if place.is_symlink()
                else place.read_bytes()[:99].decode(errors="replace")
                if place.is_file()
                else ""
            )
            found[path] = [oct(status.st_mode & 0o7777), status.st_uid, status.st_gid, text]
    return found


def look(stack: tuple[Path, ...], *paths: str) -> dict[str, list[object]]:
    return namespace.call(stack, f"{__name__}:read", Look(list(paths)), dict[str, list[object]], seconds=60)


def folder(images: Path, wanted: Recipe, layer: str) -> Path:
    return images / "layers" / build_keys.layers(wanted)[layer]


def test_holds_what_the_recipe_says(reference: tuple[Path, Built]) -> None:
    images, built = reference
    ground = tiny.recipe().layers[0]
    assert list(built.installed) == sorted(f"{one.name}={one.version}" for one in ground.packages)
    assert not built.cached
    found = look(
        (folder(images, tiny.recipe(), "ground") / "tree",),
        "etc/bringup/note",
        "etc/bringup/link",
        "var/lib/bringup",
        "srv/data/note",
        "etc/issue.net",
        "home/alice/.ssh/authorized_keys",
        "var/log/made",
        "usr/sbin/policy-rc.d",
        "etc/machine-id",
    )
    assert found == {
        "etc/bringup/note": ["0o640", 0, 4, tiny.NOTE.decode()],
        "etc/bringup/link": ["0o777", 0, 0, "note"],
        "var/lib/bringup": ["0o750", 2001, 2001, ""],
        "srv/data/note": ["0o644", 0, 0, "built\n"],
        "home/alice/.ssh/authorized_keys": ["0o600", 2001, 2001, "ssh-ed25519 AAAA alice\n"],
    }


@pytest.mark.sampled("equal bytes")
def test_elsewhere_and_later_the_same(reference: tuple[Path, Built], empty: Path) -> None:
    os.chown(empty, 0, 1234)
    empty.chmod(0o2775)  # a folder that a site's users share
    again = tiny.build(empty, tiny.recipe(), "ground")
    assert (again.digest, again.size, again.files) == (reference[1].digest, reference[1].size, reference[1].files)
    assert not again.cached
    top = tiny.build(empty, tiny.recipe(), "top")
    assert top.digest == tiny.build(reference[0], tiny.recipe(), "top").digest, f"{top.failed}: {top.output}"


@pytest.mark.long
def test_a_year_later_the_same(archive: Path, tmp_path: Path) -> None:
    """The scripts of packages see another date, and so does the root's own dpkg: all that is essential, in the lowest layer."""
    found = [_ground_after(days, archive, tmp_path / str(days)) for days in (0, 400)]
    assert [one.failed for one in found] == ["", ""], found
    assert found[0].digest == found[1].digest


def _ground_after(days: int, archive: Path, images: Path) -> Built:
    """The ground, built on a layer whose dpkg sees a later date."""
    first, files = clock.layer(days)
    wanted = msgspec.structs.replace(tiny.recipe(), layers=(first, tiny.recipe().layers[0]))
    images.mkdir()
    (images / "archive").symlink_to(archive / "archive")
    built = [layer_cache.build(images, wanted, {**tiny.files(), **files}, name, images, lambda line: None) for name in wanted.names]
    return built[-1]


def test_a_second_build_finds_it_and_writes_nothing(reference: tuple[Path, Built]) -> None:
    images, built = reference
    before = {path: path.lstat().st_mtime_ns for path in images.rglob("*")}
    again = tiny.build(images, tiny.recipe(), "ground")
    assert again == msgspec.structs.replace(built, cached=True)
    assert {path: path.lstat().st_mtime_ns for path in images.rglob("*")} == before


def test_one_small_package_is_a_small_layer(reference: tuple[Path, Built]) -> None:
    built = tiny.build(reference[0], tiny.recipe(), "top")
    assert not built.failed, built.output
    assert built.size < 5 * MIB
    assert built.files < 60
    assert len(built.installed) == len(reference[1].installed) + len(tiny.recipe().layers[1].packages)
    found = look(layer_cache.stack(reference[0], tiny.recipe()), "usr/bin/tree", "var/lib/dpkg/status")
    assert len(found) == 2


def test_a_layer_hides_what_it_removed(reference: tuple[Path, Built]) -> None:
    run = "rm /srv/data/note; rm -r /etc/skel; mkdir /etc/skel; echo new > /etc/skel/x; chmod 700 /srv"
    wanted = tiny.with_layer(ResolvedLayer(name="less", commands=(LayerCommand(run=run),)))
    built = tiny.build(reference[0], wanted, "less")
    assert not built.failed, built.output
    found = look(layer_cache.stack(reference[0], wanted), "srv", "srv/data/note", "etc/skel/.profile", "etc/skel/x")
    assert found == {"srv": ["0o700", 0, 0, ""], "etc/skel/x": ["0o644", 0, 0, "new\n"]}
    assert built.files == 6  # srv, srv/data, note hidden, etc, etc/skel, x


@pytest.mark.parametrize(
    ("layer", "failed", "output"),
    [
        (
            ResolvedLayer(name="bad", commands=(LayerCommand(run="true"), LayerCommand(run="echo seen; exit 7"))),
            "commands 2",
            "ended with 7: seen",
        ),
        (ResolvedLayer(name="bad", commands=(LayerCommand(run="false; true"),)), "commands 1", "ended with 1"),
        (ResolvedLayer(name="bad", services=(LayerService(unit="x.service"),)), "services", "no systemctl: add package systemd"),
        (ResolvedLayer(name="bad", users=(LayerUser(name="bob", uid=2001),)), "users", "2001 already"),
        (ResolvedLayer(name="bad", users=(LayerUser(name="bob", uid=3001, groups=("none",)),)), "users", "no group none"),
        (ResolvedLayer(name="bad", files=(PlacedFile(path="/usr", link="x"),)), "files", "/usr: File exists"),
    ],
)
def test_a_part_that_fails_is_told_and_nothing_is_kept(
    reference: tuple[Path, Built], layer: ResolvedLayer, failed: str, output: str
) -> None:
    wanted = tiny.with_layer(layer)
    built = tiny.build(reference[0], wanted, "bad")
    assert built.failed == failed
    assert output in built.output
    assert not folder(reference[0], wanted, "bad").exists()
    assert not list((reference[0] / "layers").glob(f".{build_keys.layers(wanted)['bad']}.part*"))


def test_commands_have_no_network_and_no_settings_of_the_builder(
    reference: tuple[Path, Built], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRINGUP_CANARY", "seen")
    run = (
        'test -z "$BRINGUP_CANARY"; test "$SOURCE_DATE_EPOCH" = 1700000000; test "$(cat /proc/sys/kernel/hostname)" = image;'
        ' test "$(grep -c : /proc/net/dev)" = 1; test ! -e /run/secrets; echo ok > /opt/ok'
    )
    wanted = tiny.with_layer(ResolvedLayer(name="closed", commands=(LayerCommand(run=run),)))
    assert not tiny.build(reference[0], wanted, "closed").failed


def test_links_in_the_root_lead_nowhere_outside(reference: tuple[Path, Built], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def through(path: str) -> Recipe:
        links = LayerCommand(run=f"ln -s {outside} /etc/out; ln -s /srv /etc/in")
        file = PlacedFile(path=path, sha256=tiny.NOTE_DIGEST)
        added = (ResolvedLayer(name="links", commands=(links,)), ResolvedLayer(name="through", files=(file,)))
        return msgspec.structs.replace(tiny.recipe(), layers=(tiny.recipe().layers[0], *added))

    wanted = through("/etc/in/bringup-note")
    assert not tiny.build(reference[0], wanted, "through").failed
    assert set(look(layer_cache.stack(reference[0], wanted), "srv/bringup-note")) == {"srv/bringup-note"}
    assert not Path("/srv/bringup-note").exists()
    refused = tiny.build(reference[0], through("/etc/out/note"), "through")
    assert (refused.failed, refused.output) == ("files", "/etc/out/note: File exists")
    assert list(outside.iterdir()) == []


def test_a_package_that_is_not_the_locked_one_is_refused(empty: Path, archive: Path) -> None:
    ground = tiny.recipe().layers[0]
    (empty / "archive").unlink()
    package = ground.packages[0]
    for one in ground.packages:
        place = empty / "archive" / one.sha256[:2] / f"{one.sha256}.deb"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(archive / "archive" / one.sha256[:2] / f"{one.sha256}.deb")
    place = empty / "archive" / package.sha256[:2] / f"{package.sha256}.deb"
    data = place.read_bytes()
    place.unlink()
    place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    built = tiny.build(empty, tiny.recipe(), "ground")
    assert built.failed == "packages"
    assert f"is not the locked {package.name}" in built.output


def test_a_changed_entry_is_not_used(reference: tuple[Path, Built]) -> None:
    wanted = tiny.with_layer(ResolvedLayer(name="changed", commands=(LayerCommand(run="echo 1 > /opt/one"),)))
    first = tiny.build(reference[0], wanted, "changed")
    place = folder(reference[0], wanted, "changed")
    (place / "tree/opt/one").write_text("2\n")
    assert "/opt/one changed in the cache" in layer_integrity.verify(reference[0], place.name)
    assert tiny.build(reference[0], wanted, "changed").cached  # the quick check reads no file
    (place / "tree/opt/one").write_text("longer\n")
    again = tiny.build(reference[0], wanted, "changed")
    assert (again.cached, again.digest) == (False, first.digest)
    assert layer_integrity.verify(reference[0], place.name) == ""


def test_what_is_missing_is_one_sentence(reference: tuple[Path, Built], tmp_path: Path) -> None:
    with pytest.raises(BadTask, match=r"layer ground \([0-9a-f]{12}\) is not in "):
        layer_cache.stack(tmp_path, tiny.recipe())
    with pytest.raises(BadTask, match=r"packages of layer ground are not in .*/archive, first "):
        tiny.build(tmp_path, tiny.recipe(), "ground")
    with pytest.raises(BadTask, match="has no layer 'none'"):
        tiny.build(reference[0], tiny.recipe(), "none")


def test_two_builds_side_by_side_build_once(reference: tuple[Path, Built]) -> None:
    wanted = tiny.with_layer(ResolvedLayer(name="once", commands=(LayerCommand(run="echo once > /opt/once"),)))
    both = [Build(reference[0], wanted, "once") for _ in range(2)]
    found = [one.built() for one in both]
    assert sorted(one.cached for one in found) == [False, True]
    assert found[0].digest == found[1].digest


def test_a_collection_takes_nothing_of_a_build_that_goes_on(reference: tuple[Path, Built]) -> None:
    """Neither the layer that it stands on, which nothing else reaches, nor what it has made so far; an orphan goes."""
    images = reference[0]
    kept, orphan = (
        tiny.with_layer(ResolvedLayer(name=name, commands=(LayerCommand(run=f"echo {name} > /opt/x"),)))
        for name in ("kept", "orphan")
    )
    for one in (kept, orphan):
        assert not tiny.build(images, one, one.names[-1]).failed
    run = "touch /opt/begun; sleep 86397 || true; echo whole > /opt/whole"
    going = tiny.with_layer(ResolvedLayer(name="going", commands=(LayerCommand(run=run),)))
    build = Build(images, going, "going")
    assert until(lambda: list(images.glob("layers/.*.part*/tree/opt/begun")) or build.process.poll() is not None, SECONDS)
    below, (top, gone) = build_keys.layers(going)["ground"], (build_keys.layers(one)[one.names[-1]] for one in (kept, orphan))
    found = garbage_collection.collect(images, Roots(layers=frozenset({top})), recent=0, dry_run=False)
    assert until(lambda: running("86397"), SECONDS)  # its shell may have begun, and no more
    (asleep,) = running("86397")
    os.kill(asleep, signal.SIGTERM)
    built = build.built()
    assert (built.failed, built.output) == ("", "")
    assert [one.name for one in found.in_use if one.kind == "layers"] == [below]
    assert gone in [one.name for one in found.removed]
    assert [layer_integrity.verify(images, key) for key in (below, top, built.key)] == ["", "", ""]
    assert set(look(layer_cache.stack(images, going), "opt/whole")) == {"opt/whole"}
