"""Changes of a newer image lock, and the known vulnerabilities that go or come with it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from steps.nodeimage.contract.resolved_recipe import Package
from workflows.nodeimage import lock_difference, lockfile, recipe_files
from workflows.nodeimage.lock_difference import Feed, source_of
from workflows.nodeimage.lockfile import Lock, LockedLayer
from workflows.podimage.errors import BuildError

FEED: dict[str, Any] = {
    "openssl": {
        "CVE-2026-0001": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "3.0.18-1~deb12u2"}}},
        "CVE-2026-0002": {"releases": {"bookworm": {"status": "open", "urgency": "not yet assigned"}}},
        "CVE-2019-0003": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "0"}}},
        "CVE-2026-0004": {"releases": {"trixie": {"status": "open"}}},
        "CVE-2026-0005": {"releases": {"bookworm": {"status": "undetermined"}}},
    },
    "linux": {"CVE-2026-0009": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "6.1.140-1"}}}},
}


def package(name: str, version: str, source: str = "", **more: Any) -> Package:
    path = f"pool/main/{(source or name)[0]}/{source or name}/{name}.deb"
    return Package(name=name, version=version, architecture="amd64", sha256=f"{name}{version}", size=100, path=path, **more)


def lock(**layers: list[Package]) -> Lock:
    found = tuple(LockedLayer(name=name, packages=tuple(packages)) for name, packages in layers.items())
    return Lock(recipe="r", distribution="debian", release="bookworm", architecture="amd64", sources=(), layers=found)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    (tmp_path / "feed.json").write_text(json.dumps(FEED))
    return Feed(tmp_path / "feed.json", "bookworm")


OLD = lock(
    base=[package("libssl3", "3.0.17-1", "openssl"), package("kernel-55", "6.1.137-1", "linux-signed-amd64"), package("a", "1")]
)
NEW = lock(
    base=[
        package("libssl3", "3.0.18-1~deb12u2+b1", "openssl"),
        package("kernel-56", "6.1.140-1", "linux-signed-amd64"),
        package("a", "1"),
    ]
)


def test_what_comes_goes_and_moves() -> None:
    found = lock_difference.compare_locks(OLD, NEW)
    assert [(one.package, one.kind, one.before, one.after) for one in found.changes] == [
        ("kernel-55", "removed", "6.1.137-1", ""),
        ("kernel-56", "added", "", "6.1.140-1"),
        ("libssl3", "changed", "3.0.17-1", "3.0.18-1~deb12u2+b1"),
    ]
    assert (found.fixed, found.left, found.size_before, found.size_after) == (None, None, 300, 300)
    assert lock_difference.compare_locks(NEW, NEW).changes == ()
    assert len(lock_difference.compare_locks(None, NEW).changes) == 3


def test_a_package_that_changes_its_layer_is_a_change() -> None:
    (change,) = lock_difference.compare_locks(
        lock(base=[package("a", "1")], hpc=[]), lock(base=[], hpc=[package("a", "1")])
    ).changes
    assert (change.layer, change.kind) == ("hpc", "changed")


def test_vulnerabilities_that_go_stay_and_come(feed: Feed) -> None:
    found = lock_difference.compare_locks(OLD, NEW, feed)
    assert {one.package: one.fixed for one in found.changes if one.fixed} == {
        "kernel-55": ("CVE-2026-0009",),
        "libssl3": ("CVE-2026-0001",),
    }
    assert (found.fixed, found.left) == (("CVE-2026-0001", "CVE-2026-0009"), ("CVE-2026-0002", "CVE-2026-0005"))
    back = lock_difference.compare_locks(NEW, OLD, feed)
    assert {one.package: one.new for one in back.changes if one.new} == {
        "kernel-55": ("CVE-2026-0009",),
        "libssl3": ("CVE-2026-0001",),
    }


def test_a_feed_counts_by_versions_of_source_packages(tmp_path: Path) -> None:
    """libdevmapper has an epoch that lvm2, which it is built from, has not: by its own version every fault would seem mended."""
    fixed = {"bookworm": {"status": "resolved", "fixed_version": "2.03.22-1"}}
    (tmp_path / "feed.json").write_text(json.dumps({"lvm2": {"CVE-2026-0011": {"releases": fixed}}}))
    feed = Feed(tmp_path / "feed.json", "bookworm")
    before = package("libdevmapper1.02.1", "2:1.02.185-2", "lvm2", source_version="2.03.16-2")
    after = package("libdevmapper1.02.1", "2:1.02.196-1", "lvm2", source_version="2.03.22-1")
    assert feed.open_in(before) == {"CVE-2026-0011"}
    assert feed.open_in(after) == set()


def test_a_kernel_counts_by_what_was_signed(tmp_path: Path) -> None:
    """The source that signs it is 6.1.192+1, which would be newer than every 6.1.192-2 that mends something."""
    fixed = {"bookworm": {"status": "resolved", "fixed_version": "6.1.192-2"}}
    (tmp_path / "feed.json").write_text(json.dumps({"linux": {"CVE-2026-0012": {"releases": fixed}}}))
    feed = Feed(tmp_path / "feed.json", "bookworm")
    name, source = "linux-image-6.1.0-56-cloud-amd64", "linux-signed-amd64"
    assert feed.open_in(package(name, "6.1.192-1", source, source_version="6.1.192+1")) == {"CVE-2026-0012"}
    assert feed.open_in(package(name, "6.1.192-2", source, source_version="6.1.192+2")) == set()


def test_a_lock_that_tells_no_versions_of_sources_passes_for_nothing_mended(tmp_path: Path) -> None:
    """gcc 4:12.2.0-3 is built from gcc-defaults 1.203: its own version is above whatever mends something."""
    fixed = {"bookworm": {"status": "resolved", "fixed_version": "1.204"}}
    (tmp_path / "feed.json").write_text(json.dumps({"gcc-defaults": {"CVE-2026-0013": {"releases": fixed}}}))
    feed = Feed(tmp_path / "feed.json", "bookworm")
    untold = lock(base=[package("gcc", "4:12.2.0-3", "gcc-defaults"), package("a", "1")])
    newer = lock(base=[package("gcc", "4:12.2.0-4", "gcc-defaults", source_version="1.204"), package("a", "1")])
    found = lock_difference.compare_locks(untold, newer, feed)
    assert (found.fixed, found.left, found.guessed) == (("CVE-2026-0013",), (), ("gcc",))
    same = lock(base=[package("gcc", "4:12.2.0-3", "gcc-defaults", source_version="1.205"), package("a", "1")])
    found = lock_difference.compare_locks(untold, same, feed)
    assert (found.fixed, found.left, found.guessed) == ((), (), ()), "the newer lock tells it of the very same package"


@pytest.mark.parametrize("recipe", ["base", "compute"])
def test_shipped_locks_tell_versions_of_sources(recipe: str) -> None:
    found = lockfile.read(recipe_files.RECIPES / f"{recipe}.lock.json", "x")
    again = [one for one in found.packages.values() if re.search(r"\+b\d+$", one.version)]
    assert again
    assert [one.name for one in again if not one.source_version] == []
    assert found.packages["dmsetup"].source_version == "2.03.16-2"


def test_the_source_package_is_that_of_the_pool() -> None:
    assert source_of(package("libssl3", "1", "openssl")) == "openssl"
    assert source_of(package("linux-image-6.1.0-56-amd64", "1", "linux-signed-amd64")) == "linux"
    flat = Package(name="cuda-toolkit-13-0", version="1", architecture="amd64", sha256="", size=1, path="./cuda-toolkit-13-0_1.deb")
    assert source_of(flat) == "cuda-toolkit-13-0"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("[]", "is no feed"),
        ("{", "is no feed"),
        ('{"a": {}}', "says nothing about bookworm"),
        ('{"schema_version": "1.7", "id": "UBUNTU-CVE-2026-0001", "affected": []}', "is no feed"),
        ('{"a": {"CVE-1": {"releases": {"bookworm": {"status": "opne"}}}}}', "is no feed"),
    ],
)
def test_another_file_is_no_feed(tmp_path: Path, data: str, sentence: str) -> None:
    (tmp_path / "feed.json").write_text(data)
    with pytest.raises(BuildError, match=sentence) as refused:
        Feed(tmp_path / "feed.json", "bookworm")
    assert "feeds of Ubuntu (OSV, OVAL) have another form, and are not read" in refused.value.hint
