"""Publication of a stack of two packages in three versions: shared packages, switch, rollback, retention, damage."""

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.contract.canonical import digest_bytes
from steps.contract.release_layout import ReleaseFile
from steps.errors import BadTask, Refused
from steps.softwarestack.contract import package_files, stack_release
from steps.softwarestack.contract.package_files import LISTING, MOST_LISTING
from steps.softwarestack.publication import package_listing, stack_publication
from steps.softwarestack.publication.stack_kind import local_tree
from tests.unit.softwarestack.published_stacks import (
    HPL,
    ZLIB,
    assembled,
    folder_of,
    packages_in,
    publish,
    published,
    request,
    wrong,
)

FIRST = folder_of("zlib", "1.3")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    return tmp_path / "stacks"


def test_two_versions_share_a_package_and_users_get_the_second(root: Path, tmp_path: Path) -> None:
    first, second = published(tmp_path, root, ZLIB), published(tmp_path, root, HPL)
    assert (first.copied, second.copied) == (2, 1), "zlib is there already"
    assert second.packages_changed == ("HPL 2.3 → 2.4",)
    assert second.before == first.version
    assert os.readlink(root / "tools/current") == f"versions/{second.version}"
    assert (root / "tools/current/modules/all/Core/HPL/2.4.lua").is_file()
    assert packages_in(root) == sorted([FIRST, folder_of("HPL", "2.3"), folder_of("HPL", "2.4")])
    package = root / "packages" / FIRST
    assert os.access(package / "bin/run", os.X_OK)
    assert os.readlink(package / "lib/libx.so") == "libx.so.1"
    assert (package / "share/empty").is_dir()
    assert (package / "lib/libx.so.1").stat().st_mtime == 1_700_000_000, "times of modules and their bytecode must stay"
    assert (package / LISTING).is_file()
    assert wrong(root) == {}


def test_an_unchanged_stack_writes_nothing(root: Path, tmp_path: Path) -> None:
    published(tmp_path, root, ZLIB)
    before = {path: path.lstat().st_ctime_ns for path in root.rglob("*")}
    again = published(tmp_path, root, ZLIB)
    assert again.unchanged
    assert {path: path.lstat().st_ctime_ns for path in root.rglob("*")} == before


def test_a_rollback_leads_back_and_its_stack_is_not_published_again(root: Path, tmp_path: Path) -> None:
    first, second = published(tmp_path, root, ZLIB), published(tmp_path, root, HPL)
    transport = local_tree(root)
    done = stack_publication.roll_back(transport, "tools", "", "rollback by ada", root=root)
    assert (done.to, done.before) == (first.version, second.version)
    with pytest.raises(Refused, match="was left by a rollback"):
        published(tmp_path, root, HPL)
    assert published(tmp_path, root, HPL, again=True).version == second.version
    shutil.rmtree(root / "packages" / folder_of("HPL", "2.3"))
    with pytest.raises(Refused, match=r"is not whole: packages/HPL-2\.3-\w+ is missing"):
        stack_publication.roll_back(transport, "tools", "", "rollback by ada", root=root)


def test_retention_takes_packages_that_no_version_of_any_stack_names(root: Path, tmp_path: Path) -> None:
    published(tmp_path, root, {"zlib": "1.2", "HPL": "2.2"})
    published(tmp_path, root, {"zlib": "1.2"}, name="other")
    published(tmp_path, root, ZLIB, keep=2)
    last = published(tmp_path, root, HPL, keep=2)
    assert last.removed_packages == (folder_of("HPL", "2.2"),), "the other stack needs zlib 1.2"
    assert folder_of("zlib", "1.2") in packages_in(root)
    assert len(last.versions) == 2
    assert wrong(root) == wrong(root, "other") == {}


def test_nothing_is_removed_while_a_manifest_cannot_be_read(root: Path, tmp_path: Path) -> None:
    broken = published(tmp_path, root, {"zlib": "1.2"}, name="other")
    (root / "other/versions" / broken.version / "manifest.json").write_text("{")
    (root / "packages" / folder_of("lost", "1.0")).mkdir()
    assert published(tmp_path, root, ZLIB).removed_packages == ()
    assert folder_of("zlib", "1.2") in packages_in(root)


def test_a_package_that_somebody_removed_comes_back(root: Path, tmp_path: Path) -> None:
    published(tmp_path, root, ZLIB)
    shutil.rmtree(root / "packages" / FIRST)
    again = published(tmp_path, root, ZLIB)
    assert (again.copied, again.unchanged, again.missing_packages) == (1, False, ())
    assert wrong(root) == {}


def test_a_package_that_is_there_with_other_bytes_is_never_overwritten(root: Path, tmp_path: Path) -> None:
    published(tmp_path, root, ZLIB, name="other")
    tree = assembled(tmp_path / "rebuilt", root, ZLIB, extra=" built anew")
    with pytest.raises(Refused, match=rf"packages/{FIRST}/{LISTING} has the digest"):
        publish(request(tree, root))
    assert not (root / "tools/current").exists()
    assert wrong(root, "other") == {}


def test_a_source_that_differs_from_its_manifest_is_not_published(root: Path, tmp_path: Path) -> None:
    tree = assembled(tmp_path / "tree", root, ZLIB)
    (tree / "packages" / FIRST / "lib/libx.so.1").write_text("other bytes")
    with pytest.raises(BadTask, match="differs from the list in its manifest"):
        publish(request(tree, root))
    assert packages_in(root) == [], "nothing has its name yet"
    assert [path.name for path in (root / "packages/incoming").iterdir() if not path.name.startswith(".lock.")] == []


def test_a_stack_for_another_root_is_refused(root: Path, tmp_path: Path) -> None:
    tree = assembled(tmp_path / "tree", Path("/elsewhere/stacks"), ZLIB)
    with pytest.raises(BadTask, match="was built for /elsewhere/stacks, which is in its files"):
        request(tree, root)


def damaged(root: Path, package: Path, kind: str) -> tuple[str, str]:
    """Damage a published root; return the place of the problem and the beginning of its sentence."""
    place, name = f"packages/{package.name}", "lib/libx.so.1"
    match kind:
        case "bytes":
            data = (package / name).read_bytes()
            (package / name).write_bytes(b"X" + data[1:])
            return f"{place}/{name}", "has the digest"
        case "size":
            (package / name).write_bytes(b"X")
            return f"{place}/{name}", "has 1 bytes instead of"
        case "gone":
            (package / name).unlink()
            return f"{place}/{name}", "is missing"
        case "extra":
            (package / "lib/new").write_text("")
            return f"{place}/lib/new", "is listed nowhere"
        case "link":
            (package / "lib64").unlink()
            (package / "lib64").symlink_to("/usr/lib")
            return f"{place}/lib64", "leads to /usr/lib instead of lib"
        case "not executable":
            (package / "bin/run").chmod(0o644)
            return f"{place}/bin/run", "is not executable"
        case "writable":
            (package / "bin/run").chmod(0o777)
            return f"{place}/bin/run", "has mode 0777: others than its owner may change it"
        case "unreadable":
            (package / "lib").chmod(0o700)
            return f"{place}/lib", "has mode 0700: users cannot read it"
        case "no list":
            (package / LISTING).unlink()
            return f"{place}/{LISTING}", "is missing"
        case "other list":
            (package / LISTING).write_text("[]")
            return f"{place}/{LISTING}", "has the digest"
        case "large list":
            os.truncate(package / LISTING, MOST_LISTING + 1)
            return place, f"{LISTING}: has {MOST_LISTING + 1} bytes, more than"
        case "no package":
            shutil.rmtree(package)
            return place, "is missing, which zlib@1.3 needs"
        case "no folder":
            shutil.rmtree(package)
            package.write_text("")
            return place, "is no folder"
    module = root / "tools/current/modules/all/Core/zlib/1.3.lua"
    text = module.read_text().replace(package.name, "zlib-9.9-000000000000")
    module.write_text(text)
    return str(module.resolve().relative_to(root)), f"leads to {root}/packages/zlib-9.9-000000000000"


KINDS = (
    "bytes",
    "size",
    "gone",
    "extra",
    "link",
    "not executable",
    "writable",
    "unreadable",
    "no list",
    "other list",
    "large list",
    "no package",
    "no folder",
    "module",
)


@pytest.mark.parametrize("kind", KINDS)
def test_verification_finds_each_kind_of_damage(root: Path, tmp_path: Path, kind: str) -> None:
    published(tmp_path, root, ZLIB)
    place, why = damaged(root, root / "packages" / FIRST, kind)
    problems = wrong(root)
    assert problems[place].startswith(why), problems


def test_module_files_in_tcl_are_read_too(root: Path, tmp_path: Path) -> None:
    """A module of EasyBuild in Tcl has no ending; here it names a package that the version does not have."""
    tree = assembled(tmp_path / "tree", root, ZLIB)
    text = f"#%Module\nprepend-path PATH {root}/packages/zlib-9.9-000000000000/bin\n".encode()
    (tree / "modules/all/Core/zlib/1.4").write_bytes(text)
    manifest = stack_release.decode_manifest((tree / "manifest.json").read_bytes())
    file = ReleaseFile(name="modules/all/Core/zlib/1.4", digest=digest_bytes(text), size=len(text))
    (tree / "manifest.json").write_bytes(stack_release.encode_manifest(replace(manifest, files=(*manifest.files, file))))
    with pytest.raises(Refused, match=r"module file modules/all/Core/zlib/1\.4 leads to .*packages/zlib-9\.9-000000000000"):
        publish(request(tree, root))
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(("target", "leads_out"), [("/build/zlib/src", True), ("../../../etc/motd", True), ("/usr/lib", False)])
def test_a_link_of_a_package_that_leads_out_is_refused_before_anything_is_copied(
    root: Path, tmp_path: Path, target: str, leads_out: bool
) -> None:
    tree = assembled(tmp_path / "tree", root, ZLIB)
    place = tree / "packages" / FIRST
    (place / "src").symlink_to(target)
    manifest = stack_release.decode_manifest((tree / "manifest.json").read_bytes())
    listed = package_listing.list_package(place)
    packages = [replace(row, content=package_files.digest(listed)) if row.folder == FIRST else row for row in manifest.packages]
    (tree / "manifest.json").write_bytes(stack_release.encode_manifest(replace(manifest, packages=tuple(packages))))
    if not leads_out:
        assert publish(request(tree, root)).outside == ()
        return
    with pytest.raises(Refused, match=rf"packages/{FIRST}/src leads to {target}"):
        publish(request(tree, root))
    assert list(root.iterdir()) == []
