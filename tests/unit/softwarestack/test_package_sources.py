"""Sources: taken from folders of the site or from what a program fetched, and kept only with the digest of the lock."""

import hashlib
from pathlib import Path

import pytest

from steps.softwarestack.builds.package_sources import SourceArchiveError, SourceShelf
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import StackPackage, StackSource

DATA = b"an archive"
SOURCE = StackSource(name="zlib-1.3.tar.gz", sha256=hashlib.sha256(DATA).hexdigest())
PACKAGE = StackPackage(hash="z" * 32, name="zlib", version="1.3", sources=(SOURCE,))


@pytest.mark.parametrize("folder", ["", "z/zlib", "zlib", SOURCE.sha256])
def test_folders_of_the_site_are_searched_by_the_layouts_of_builders(folder: str, tmp_path: Path) -> None:
    place = tmp_path / "site" / folder
    place.mkdir(parents=True)
    (place / SOURCE.name).write_bytes(DATA)
    shelf = SourceShelf(tmp_path / "store", (str(tmp_path / "missing"), str(tmp_path / "site")))
    assert shelf.missing(PACKAGE) == ()
    assert shelf.path(SOURCE) == tmp_path / "store" / SOURCE.sha256 / SOURCE.name
    assert shelf.path(SOURCE).read_bytes() == DATA
    (place / SOURCE.name).unlink()
    assert shelf.missing(PACKAGE) == ()
    assert [path.name for path in (tmp_path / "store").rglob(".*")] == []


def test_a_source_that_is_nowhere_is_to_be_fetched(tmp_path: Path) -> None:
    assert SourceShelf(tmp_path / "store", (str(tmp_path),)).missing(PACKAGE) == (SOURCE,)


def test_a_file_of_the_site_with_another_digest_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / SOURCE.name).write_bytes(b"another archive")
    with pytest.raises(SourceArchiveError, match="has the SHA-256") as caught:
        SourceShelf(tmp_path / "store", (str(tmp_path),)).missing(PACKAGE)
    assert caught.value.failure is BuildFailure.CHECKSUM


def test_a_right_file_counts_beside_a_wrong_one(tmp_path: Path) -> None:
    for name, data in (("first", b"wrong"), ("second", DATA)):
        (tmp_path / name).mkdir()
        (tmp_path / name / SOURCE.name).write_bytes(data)
    assert SourceShelf(tmp_path / "store", (str(tmp_path / "first"), str(tmp_path / "second"))).missing(PACKAGE) == ()


def test_fetched_files_are_kept_by_their_digest(tmp_path: Path) -> None:
    shelf = SourceShelf(tmp_path / "store", ())
    fetched = tmp_path / "fetched/z/zlib"
    fetched.mkdir(parents=True)
    with pytest.raises(SourceArchiveError, match="was not fetched") as caught:
        shelf.keep_fetched((SOURCE,), tmp_path / "fetched")
    assert caught.value.failure is BuildFailure.FETCH
    (fetched / SOURCE.name).write_bytes(b"<html>please log in</html>")
    with pytest.raises(SourceArchiveError, match="was fetched with the SHA-256") as caught:
        shelf.keep_fetched((SOURCE,), tmp_path / "fetched")
    assert caught.value.failure is BuildFailure.CHECKSUM
    (fetched / SOURCE.name).write_bytes(DATA)
    shelf.keep_fetched((SOURCE,), tmp_path / "fetched")
    assert shelf.missing(PACKAGE) == ()


def test_a_fetched_link_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(DATA)
    (tmp_path / "fetched").mkdir()
    (tmp_path / "fetched" / SOURCE.name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceArchiveError, match="was not fetched"):
        SourceShelf(tmp_path / "store", ()).keep_fetched((SOURCE,), tmp_path / "fetched")
