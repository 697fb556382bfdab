"""Image archives of the site come to machines with the release's: each verified, none passed over, and also later on."""

import hashlib
import re
from pathlib import Path

import pytest
from ansible.module_utils.rke2 import release_files, site_images
from ansible.module_utils.urls import open_url

VERSION = "v1.35.7+rke2r1"
CORE, ARCHIVE = "rke2-images-core.linux-amd64.tar.zst", "rke2.linux-amd64.tar.gz"
RELEASE, OWN = "sha256sum-amd64.txt", "sha256sum-site-amd64.txt"


class Machine:
    """A folder of artefacts, and the places of a host of amd64 that they come to."""

    def __init__(self, path: Path) -> None:
        self.folder, self.images, self.store = path / "artifacts", path / "images", path / "store"
        self.folder.mkdir()
        for name in (ARCHIVE, CORE):
            self.put(name)
        self.write_list(RELEASE, ARCHIVE, CORE)

    def put(self, *names: str, text: str = "") -> None:
        for name in names:
            (self.folder / name).write_text(text or name)

    def write_list(self, name: str, *files: str) -> None:
        rows = [f"{hashlib.sha256((self.folder / one).read_bytes()).hexdigest()}  ./{one}\n" for one in files]
        (self.folder / name).write_text("".join(rows))

    @property
    def loaded(self) -> set[str]:
        return {path.name for path in self.images.iterdir()} - {".cache.json"} if self.images.exists() else set()

    def one(self) -> release_files.HostRelease:
        return release_files.HostRelease(VERSION, "x86_64", "", str(self.folder), "", open_url, str(self.store), str(self.images))

    def fetch(self, *images: str, check_mode: bool = False) -> list[str]:
        found: list[str] = self.one().fetch(list(images), check_mode)
        return found

    def supply(self, *images: str, check_mode: bool = False) -> list[str]:
        found: list[str] = self.one().supply(list(images), check_mode)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


ENDINGS = [f"checks{ending}" for ending in site_images.ENDINGS]


@pytest.mark.parametrize("name", [*ENDINGS, "rke2-images-site.linux-amd64.tar"])
def test_an_archive_of_the_site_comes_with_the_release(machine: Machine, name: str) -> None:
    machine.put(name)
    machine.write_list(OWN, name)
    assert sorted(machine.fetch(check_mode=True)) == sorted([ARCHIVE, CORE, name])
    assert machine.loaded == set()
    assert sorted(machine.fetch()) == sorted([ARCHIVE, CORE, name])
    assert machine.loaded == {CORE, name}
    assert machine.fetch() == []


def test_an_archive_that_no_list_names_is_not_passed_over(machine: Machine) -> None:
    machine.put("checks.tar.gz")
    for bring in (machine.fetch, machine.supply):
        with pytest.raises(
            release_files.InvalidRelease, match=rf"has no checksum for checks\.tar\.gz: .*write its sha256 into {OWN} beside it"
        ):
            bring()
    assert machine.loaded == set()


@pytest.mark.parametrize("own", [True, False], ids=["site", "release"])
def test_what_differs_from_its_list_is_refused_with_the_name_of_that_list(machine: Machine, own: bool) -> None:
    machine.put("checks.tar")
    machine.write_list(OWN, "checks.tar")
    machine.put("checks.tar" if own else CORE, text="cut")
    with pytest.raises(release_files.InvalidRelease, match=rf"its sha256 is \w+ and {OWN if own else RELEASE} says"):
        machine.fetch()
    assert "checks.tar" not in machine.loaded or not own


@pytest.mark.parametrize("line", ["checks.tar", "SHA256 (checks.tar) = 00", f"{'0' * 64}  install.sh"])
def test_a_line_that_says_no_checksum_of_an_archive_is_refused(machine: Machine, line: str) -> None:
    machine.put("checks.tar")
    (machine.folder / OWN).write_text(f"# ours\n\n{line}\n")
    with pytest.raises(release_files.InvalidRelease, match=rf"{re.escape(OWN)}, line 3, is not the sha256 of an image archive"):
        machine.fetch()


def test_what_list_or_spec_name_must_be_there(machine: Machine) -> None:
    machine.put("checks.tar")
    machine.write_list(OWN, "checks.tar")
    (machine.folder / "checks.tar").unlink()
    with pytest.raises(release_files.InvalidRelease, match=r"checks\.tar is not there"):
        machine.fetch()
    (machine.folder / OWN).unlink()
    with pytest.raises(release_files.InvalidRelease, match=r"has no checksum for checks\.tar"):
        machine.fetch("checks.tar")


def test_archives_for_other_machines_stay_where_they_are(machine: Machine) -> None:
    others = [
        "checks-arm64.tar",
        "rke2.linux-arm64.tar.gz",
        "rke2-images-core.linux-arm64.tar.zst",
        "rke2-windows-1809-amd64.tar.gz",
    ]
    machine.put(*others, "both.tar", "chart.tgz")
    machine.write_list("sha256sum-site-arm64.txt", "checks-arm64.tar", "both.tar")
    machine.write_list(OWN, "both.tar", *others[1:])
    assert sorted(machine.fetch()) == sorted([ARCHIVE, CORE, "both.tar"])
    assert machine.loaded == {CORE, "both.tar"}


def test_a_list_of_all_files_leaves_the_release_to_its_own_list(machine: Machine) -> None:
    machine.put("checks.tar")
    machine.write_list(OWN, ARCHIVE, CORE, "checks.tar")
    machine.put(CORE, text="another")
    machine.write_list(RELEASE, ARCHIVE, CORE)
    assert sorted(machine.fetch()) == sorted([ARCHIVE, CORE, "checks.tar"])
    assert machine.supply() == []


def test_a_host_that_has_the_release_gets_what_the_site_added(machine: Machine) -> None:
    machine.fetch()
    machine.put("checks.tar")
    machine.write_list(OWN, "checks.tar")
    assert machine.supply(check_mode=True) == ["checks.tar"]
    assert machine.loaded == {CORE}
    assert machine.supply() == ["checks.tar"]
    assert machine.loaded == {CORE, "checks.tar"}
    assert machine.supply("checks.tar") == []
    (machine.folder / "checks.tar").write_text("a newer one")
    machine.write_list(OWN, "checks.tar")
    assert machine.supply() == ["checks.tar"]


def test_the_folder_may_be_gone_once_all_is_in_place(machine: Machine) -> None:
    machine.put("checks.tar")
    machine.write_list(OWN, "checks.tar")
    machine.fetch("checks.tar")
    machine.folder.rename(machine.folder.with_name("gone"))
    assert machine.supply("core", "checks.tar") == []
    with pytest.raises(release_files.InvalidRelease, match=r"other\.tar is not there"):
        machine.supply("other.tar")


def test_a_release_that_the_folder_no_longer_has_is_not_asked_for_again(machine: Machine) -> None:
    """A host that has the release no longer needs its files; archives of the site may still come alone."""
    machine.fetch()
    for name in (ARCHIVE, CORE, RELEASE):
        (machine.folder / name).unlink()
    machine.put("checks.tar")
    machine.write_list(OWN, "checks.tar")
    assert machine.supply() == ["checks.tar"]


def test_an_archive_that_was_there_is_hashed_once(machine: Machine) -> None:
    machine.put("checks.tar")
    machine.write_list(OWN, "checks.tar")
    machine.images.mkdir()
    (machine.images / "checks.tar").write_text("checks.tar")
    assert "checks.tar" not in machine.fetch(check_mode=True)
    record = machine.store / VERSION / "checks.tar.verified"
    assert not record.exists()
    assert "checks.tar" not in machine.fetch()
    assert record.exists()
