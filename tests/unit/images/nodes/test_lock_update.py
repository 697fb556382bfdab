"""A lock that is made again moves what the recipe newly asks for, and nothing else that can stay."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.images.nodes.conftest import SMALL, Deb, Done, Site
from workflows.nodeimage import lockfile, recipe_resolution
from workflows.nodeimage.image_spec import load_image
from workflows.nodeimage.lockfile import Lock

NEWER_LIBC = Deb("libc", "1.0-1+deb12u1", of="glibc")
KERNEL = (
    Deb("linux-image-stand-in", "2.0-1", depends="linux-image-2.0-stand-in", of="linux-signed-amd64"),
    Deb("linux-image-2.0-stand-in", of="linux-signed-amd64"),
)


def moved(site: Site, *newer: Deb) -> None:
    """The mirror has other versions of these by now, and the old ones neither in its index nor in its pool."""
    names = {one.name for one in newer}
    for path in site.mirror.folder.rglob("*.deb"):
        if path.name.partition("_")[0] in names:
            path.unlink()
    site.mirror.publish("bookworm", [*(one for one in site.mirror.published["bookworm"] if one.name not in names), *newer])


def rewrite(site: Site, *changes: tuple[str, str]) -> None:
    recipe = site.folder / "small.yaml"
    text = recipe.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    recipe.write_text(text)


def asks(site: Site, *names: str) -> None:
    """The upper layer asks for these, too."""
    rewrite(site, ("[mpi]", f"[mpi, {', '.join(names)}]"))


def bringup(site: Site, *words: str, code: int = 0) -> Done:
    done = site.bringup("image", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def locked(site: Site) -> Lock:
    """The lock as it lies there, which fits the recipe."""
    recipe_resolution.resolve(recipe_resolution.spec_request(load_image(site.spec), site.folder))
    return lockfile.read(site.lock, "x")


def versions(lock: Lock, names: Iterable[str]) -> list[str]:
    return [lock.packages[name].version for name in names]


@pytest.fixture
def before(site: Site) -> Lock:
    """A lock whose packages are in the archive; then the mirror has a newer one of everything."""
    bringup(site, "lock", "image.yaml")
    lock = locked(site)
    others = (Deb("dash", "1.1-1", essential=True, depends="libc"), Deb("tool", "1.1-1", depends="libc"))
    moved(site, NEWER_LIBC, *KERNEL, *others, Deb("libmpi", "1:2.1"), Deb("mpi", "1.1-1", depends="libmpi (>= 1), tool"))
    site.mirror.publish("bookworm", [*site.mirror.published["bookworm"], Deb("htop", depends="libc"), Deb("libhwloc")])
    return lock


def test_a_package_is_added_and_no_other_moves_though_the_mirror_has_none_of_them_any_more(site: Site, before: Lock) -> None:
    asks(site, "htop")
    done = bringup(site, "lock", "image.yaml")
    assert "8 packages (base 5, hpc 3); 1 added, 0 removed, 0 changed" in done.stdout
    after = locked(site)
    assert after.layers[0] == before.layers[0]
    assert [one for one in after.layer("hpc") if one.name != "htop"] == list(before.layer("hpc"))
    assert after.packages["htop"].asked


def test_a_package_of_the_lowest_layer_leaves_the_layers_above_as_they_are(site: Site, before: Lock) -> None:
    rewrite(site, ("[tool]", "[tool, htop]"))
    bringup(site, "lock", "image.yaml")
    after = locked(site)
    assert after.layers[1] == before.layers[1]
    assert [one for one in after.layer("base") if one.name != "htop"] == list(before.layer("base"))


def test_a_package_that_is_asked_for_no_longer_goes_with_what_came_along_for_it(site: Site, before: Lock) -> None:
    rewrite(site, ("[mpi]", "[libhwloc]"))
    bringup(site, "lock", "image.yaml")
    after = locked(site)
    assert (after.layers[0], [one.name for one in after.layer("hpc")]) == (before.layers[0], ["libhwloc"])


def test_a_layer_more_leaves_those_below_it(site: Site, before: Lock) -> None:
    recipe = site.folder / "small.yaml"
    recipe.write_text(f"{recipe.read_text()}\n  - name: more\n    packages: [htop, tool]\n")
    bringup(site, "lock", "image.yaml")
    after = locked(site)
    assert after.layers[:2] == before.layers
    assert [one.name for one in after.layer("more")] == ["htop"], "what is named is not taken to the newest for it"


def test_another_repository_of_a_layer_moves_nothing_that_the_lock_has(site: Site, before: Lock) -> None:
    site.mirror.publish_flat("flat", [Deb("libmpi", "1:9.0"), Deb("hwtop")])
    source = f'{{url: "{site.mirror.url}/flat", suite: /, keyring: {site.mirror.key}}}'
    rewrite(site, ("packages: [mpi]", f"sources: [{source}]\n    packages: [mpi, hwtop]"))
    bringup(site, "lock", "image.yaml", "--no-keep")
    after = locked(site)
    assert after.layers[0] == before.layers[0]
    assert [one for one in after.layer("hpc") if one.name != "hwtop"] == list(before.layer("hpc"))
    rewrite(site, (f"sources: [{source}]\n    packages: [mpi, hwtop]", "packages: [mpi]"))
    bringup(site, "lock", "image.yaml", "--no-keep")
    assert locked(site) == before, "a repository less is as before"


def test_without_a_difference_no_mirror_is_asked_and_nothing_is_written(site: Site, before: Lock) -> None:
    site.spec.write_text(site.spec.read_text().replace(site.mirror.url, "http://127.0.0.1:1"))
    there = site.lock.stat()
    done = bringup(site, "lock", "image.yaml")
    assert "7 packages (base 5, hpc 2), as before: the recipe asks for nothing else" in done.stdout
    assert (site.lock.stat().st_ino, site.lock.stat().st_mtime_ns) == (there.st_ino, there.st_mtime_ns)
    assert locked(site) == before


def test_an_added_package_moves_only_what_it_must(site: Site) -> None:
    many = [Deb(f"plugin{number}", depends="libmpi") for number in range(9)]
    site.mirror.publish("bookworm", [*SMALL, *many, Deb("libmpi-bin", depends="libmpi (= 1:2.0+b1)")])
    asks(site, "libmpi-bin", *(one.name for one in many))
    bringup(site, "lock", "image.yaml")
    before = locked(site)
    newer = [Deb(one.name, "1.1-1", depends="libmpi") for one in many]
    bound = [Deb("libmpi", "1:2.1"), Deb("libmpi-bin", "1.1-1", depends="libmpi (= 1:2.1)")]
    moved(site, NEWER_LIBC, *newer, *bound, Deb("htop", depends="libmpi (>= 1:2.1), plugin3 (>= 1.1)"))
    rewrite(site, ("[mpi,", "[mpi, htop,"))
    bringup(site, "lock", "image.yaml")
    after = locked(site)
    assert after.layers[0] == before.layers[0]
    changed = {one.name for one in after.layer("hpc")} - {one.name for one in before.layer("hpc") if one in after.layer("hpc")}
    assert changed == {"htop", "libmpi", "libmpi-bin", "plugin3"}


def test_what_needs_another_version_below_says_how_it_comes_there(site: Site, before: Lock) -> None:
    moved(site, Deb("htop", depends="libc (>= 1.0-1+deb12u1)"))
    asks(site, "htop")
    text = site.lock.read_bytes()
    done = bringup(site, "lock", "image.yaml", code=64)
    assert "libc would be installed a second time, in another version than a layer below has" in done.stderr
    assert "hint: move it there: bringup image update image.yaml --write --only libc" in " ".join(done.stderr.split())
    assert site.lock.read_bytes() == text
    bringup(site, "update", "image.yaml", "--write", "--only", "libc")
    after = locked(site)
    changed = [one.name for one in after.packages.values() if one != before.packages.get(one.name)]
    assert changed == ["libc", "htop"]
    assert after.packages["libc"].version == NEWER_LIBC.version


def test_others_of_the_same_source_are_not_taken_along(site: Site) -> None:
    """apt does so where it may: what is installed of a source goes where another package of it goes."""
    site.mirror.publish("bookworm", [*SMALL, Deb("tool-data", depends="libc", of="tool")])
    rewrite(site, ("[tool]", "[tool, tool-data]"))
    bringup(site, "lock", "image.yaml")
    newer = [Deb(name, "1.1-1", depends="libc", of="tool") for name in ("tool", "tool-data")]
    moved(site, *newer, Deb("tool-dev", "1.1-1", depends="tool (= 1.1-1)", of="tool"))
    asks(site, "tool-dev")
    done = bringup(site, "lock", "image.yaml", code=64)
    assert "error: tool would be installed a second time" in done.stderr
    bringup(site, "update", "image.yaml", "--write", "--only", "tool")
    assert versions(locked(site), ("tool", "tool-data", "tool-dev")) == ["1.1-1", "1.0-1", "1.1-1"]


def test_one_package_is_updated_alone_and_with_what_it_needs(site: Site, before: Lock) -> None:
    told = json.loads(bringup(site, "update", "image.yaml", "--only", "mpi", "-o", "json").stdout)
    assert [(one["package"], one["before"], one["after"]) for one in told["changes"]] == [("mpi", "1.0-1", "1.1-1")]
    assert locked(site) == before, "shown alone"
    moved(site, Deb("mpi", "1.2-1", depends="libmpi (>= 1:2.1), tool"))
    bringup(site, "update", "image.yaml", "--only", "mpi", "--write")
    after = locked(site)
    assert after.layers[0] == before.layers[0]
    assert versions(after, ("mpi", "libmpi")) == ["1.2-1", "1:2.1"]
    done = bringup(site, "update", "image.yaml", "--only", "nosuch", code=64)
    assert "the lock small.lock.json has no nosuch" in done.stderr
    site.lock.unlink()
    assert "small.lock.json is not there" in bringup(site, "update", "image.yaml", "--only", "mpi", code=64).stderr


def test_all_moves_by_update(site: Site, before: Lock) -> None:
    bringup(site, "update", "image.yaml", "--write")
    after = locked(site)
    names = ("dash", "libc", "tool", "libmpi", "mpi", "linux-image-stand-in")
    assert versions(after, names) == ["1.1-1", "1.0-1+deb12u1", "1.1-1", "1:2.1", "1.1-1", "2.0-1"]
    assert "linux-image-1.0-stand-in" in before.packages.keys() - after.packages.keys()


def test_what_cannot_be_had_any_more_is_said_with_what_to_do(
    site: Site, before: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = site.folder / "home/store/images/archive"
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path / "another"))
    asks(site, "htop")
    text = site.lock.read_bytes()
    done = bringup(site, "lock", "image.yaml", "--no-keep", code=64)
    said = " ".join(done.stderr.split())
    assert "of what is locked, dash=1.0-1, libc=1.0-1" in said
    assert "cannot be had any more: no repository has it, nor the archive of packages" in said
    assert "or let it move: bringup image update image.yaml --write --only dash --only libc" in said
    assert site.lock.read_bytes() == text
    bringup(site, "lock", "image.yaml", "--seed", str(archive))
    assert locked(site).layers[0] == before.layers[0]


def test_what_is_lost_of_a_layer_that_differs_counts_where_it_would_stay(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asks(site, "htop")
    site.mirror.publish("bookworm", [*SMALL, Deb("htop")])
    bringup(site, "lock", "image.yaml", "--no-keep")
    moved(site, Deb("htop", "2.0"), Deb("tree"))
    rewrite(site, ("htop]", "htop, tree]"))
    done = bringup(site, "lock", "image.yaml", "--no-keep", code=64)
    assert "of what is locked, htop=1.0-1 cannot be had" in done.stderr
    rewrite(site, ("htop, tree]", "tree]"))
    bringup(site, "lock", "image.yaml", "--no-keep")
    assert "htop" not in locked(site).packages


def test_a_mirror_that_is_away_is_temporary_where_its_packages_count(site: Site, before: Lock, tmp_path: Path) -> None:
    for path in (site.folder / "home/store/images/archive").rglob("*.deb"):
        path.unlink()
    asks(site, "htop")
    text = site.lock.read_bytes()
    done = bringup(site, "lock", "image.yaml", code=64)
    assert "cannot be had any more" in done.stderr
    site.spec.write_text(site.spec.read_text().replace(site.mirror.url, "http://127.0.0.1:1"))
    bringup(site, "lock", "image.yaml", code=75)
    assert site.lock.read_bytes() == text


def test_a_lock_that_cannot_be_read_is_not_thrown_away(site: Site, before: Lock) -> None:
    site.lock.write_text("<<<<<<< HEAD\n")
    done = bringup(site, "lock", "image.yaml", code=64)
    assert "small.lock.json is no lock" in done.stderr
    assert "take it from Git, or remove it" in done.stderr
    site.lock.unlink()
    bringup(site, "lock", "image.yaml")
    assert locked(site).packages["libc"].version == NEWER_LIBC.version


def test_another_release_is_locked_anew(site: Site, before: Lock) -> None:
    for suite, archive in (("trixie", "debian"), ("trixie-updates", "debian"), ("trixie-security", "debian-security")):
        site.mirror.publish(suite, site.mirror.published["bookworm"] if suite == "trixie" else [], archive=archive)
    rewrite(site, ("release: bookworm", "release: trixie"))
    bringup(site, "lock", "image.yaml")
    assert locked(site).packages["libc"].version == NEWER_LIBC.version
