"""Commands about published stacks: list, verify, rollback, diff, gc, detach-check, on small packages made by hand."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from steps.contract.canonical import digest
from steps.softwarestack.contract.stack_input import prefix_digest
from tests.unit.cli.conftest import Machine
from tests.unit.clients.published.published_trees import key_pair
from tests.unit.small_stack import write
from tests.unit.softwarestack.published_stacks import HPL, ZLIB, assembled, folder_of, packages_in, publish, published, request


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A published root with two versions of the stack `tools`."""
    made = tmp_path / "stacks"
    made.mkdir()
    published(tmp_path, made, ZLIB)
    published(tmp_path, made, HPL)
    return made


def data(machine: Machine, *words: str | Path, code: int = 0) -> Any:
    """Return the data that a command prints as JSON."""
    done = machine.call("stack", *words, "-o", "json")
    assert done.code == code, done.text
    return json.loads(done.out)


def test_list_says_what_is_there(machine: Machine, root: Path) -> None:
    rows = data(machine, "list", root)
    assert [(row["version"][:4], row["current"], row["packages"], row["whole"]) for row in rows] == [
        ("0002", True, 2, True),
        ("0001", False, 2, True),
    ]
    assert rows[0]["builder"] == "easybuild 5.4.1"
    shutil.rmtree(root / "packages" / folder_of("HPL", "2.3"))
    done = machine.call("stack", "list", root / "tools")
    assert done.code == 0
    assert done.out.count("(current)") == done.out.count("(not whole)") == 1


def test_list_tells_a_pointer_that_leads_nowhere(machine: Machine, root: Path) -> None:
    shutil.rmtree(root / "tools" / os.readlink(root / "tools/current"))
    done = machine.call("stack", "list", root)
    assert done.code == 0
    assert "(current)" not in done.out
    assert "warning: tools/current leads to 0002-" in done.err
    assert "which is not there; `bringup stack rollback` to a version of the list mends it" in done.err


def test_verify_reads_every_byte_of_versions_and_packages(machine: Machine, root: Path) -> None:
    done = machine.call("stack", "verify", root)
    assert (done.code, done.out) == (0, f"{root}: 2 versions of 1 stack with 3 packages are whole\n")
    (root / "packages" / folder_of("zlib", "1.3") / "lib/libx.so.1").write_text("zlib 1.4\n" * 100)
    problems = data(machine, "verify", root, code=65)["problems"]
    assert [row["place"] for row in problems] == [f"packages/{folder_of('zlib', '1.3')}/lib/libx.so.1"]
    assert problems[0]["why"].startswith("has the digest sha256:")
    (root / "packages/notes.txt").write_text("")
    assert {row["place"] for row in data(machine, "verify", root, code=65)["problems"]} >= {"packages/notes.txt"}


def test_verify_asks_for_signatures_by_a_trusted_key(machine: Machine, tmp_path: Path) -> None:
    root, public = tmp_path / "stacks", key_pair(tmp_path)
    root.mkdir()
    signed = request(assembled(tmp_path / "tree", root, ZLIB), root, key="key", signers=(public,))
    assert publish(signed).signature == "good"
    assert "signatures not checked" in machine.call("stack", "verify", root).out
    assert machine.call("stack", "verify", root, "--signer", tmp_path / "key.pub").code == 0
    (tmp_path / "other").mkdir()
    key_pair(tmp_path / "other")
    done = machine.call("stack", "verify", root, "--signer", tmp_path / "other/key.pub")
    assert done.code == 65
    assert "a signature that no trusted key made" in done.out


def test_rollback_goes_back_and_names_the_author(machine: Machine, root: Path) -> None:
    done = machine.call("stack", "rollback", "--tree", root, "--as", "ada")
    assert done.code == 0, done.text
    assert "tools: 0001-" in done.out
    assert "is current, it was 0002-" in done.out
    rows = data(machine, "list", root)
    assert [(row["current"], row["by"]) for row in rows] == [(False, "run-1"), (True, "rollback by ada")]
    facts = data(machine, "rollback", "2", "--tree", root)
    assert facts["stack"] == "tools"
    assert facts["current"].startswith("0002-")
    assert machine.call("stack", "rollback", "7", "--tree", root).code == 64


def test_rollback_to_a_version_without_its_packages_is_refused(machine: Machine, root: Path) -> None:
    shutil.rmtree(root / "packages" / folder_of("HPL", "2.3"))
    done = machine.call("stack", "rollback", "--tree", root)
    assert done.code == 65
    assert "is not whole: packages/HPL-2.3-" in done.err


def test_diff_of_two_versions(machine: Machine, root: Path) -> None:
    done = machine.call("stack", "diff", "--tree", root)
    assert done.code == 0, done.text
    assert "1 package changed" in done.out
    found = data(machine, "diff", "1", "2", "--tree", root, "--exit-code", code=65)
    assert (found["changed"], found["added"], found["removed"]) == (["HPL 2.3 → 2.4"], [], [])
    assert [row["name"] for row in found["modules"]] == ["modules/all/Core/HPL/2.3.lua", "modules/all/Core/HPL/2.4.lua"]
    assert data(machine, "diff", "current", "2", "--tree", root, "--exit-code")["same"] is True
    done = machine.call("stack", "diff", "7", "--tree", root)
    assert done.code == 64
    assert "'7' is neither a file nor a version of tools" in done.err


def test_diff_of_the_only_version_says_that_there_is_none_before(machine: Machine, tmp_path: Path) -> None:
    only = tmp_path / "only"
    only.mkdir()
    published(tmp_path, only, ZLIB)
    done = machine.call("stack", "diff", "--tree", only)
    assert (done.code, done.out) == (64, "")
    assert "tools has no version before 0001-" in done.err


def test_diff_of_a_version_and_a_lock(machine: Machine, root: Path) -> None:
    """The lock's packages of the site (GCC) are no part of a version."""
    spec = write(machine.folder)
    found = data(machine, "diff", "current", spec, "--tree", root)
    assert found["changed"] == ["zlib 1.3 → 1.0"]
    assert found["added"] == ["libpng@1.0", "lz4@1.0"]
    assert found["removed"] == ["HPL@2.4"]


def test_gc_removes_packages_that_no_version_names(machine: Machine, root: Path) -> None:
    old = next((root / "tools/versions").glob("0001-*"))
    shutil.rmtree(old)
    planned = data(machine, "gc", root, "--dry-run")
    assert planned["roots"] == [{"location": str(root), "removed": [folder_of("HPL", "2.3")], "leftovers": [], "kept": 2}]
    assert len(packages_in(root)) == 3
    assert data(machine, "gc", root) == planned
    assert packages_in(root) == sorted([folder_of("HPL", "2.4"), folder_of("zlib", "1.3")])
    assert "0 packages removed, 2 kept" in machine.call("stack", "gc", root).out


def test_gc_removes_nothing_while_a_manifest_is_unreadable(machine: Machine, root: Path) -> None:
    (next((root / "tools/versions").glob("0001-*")) / "manifest.json").write_text("{")
    done = machine.call("stack", "gc", root)
    assert done.code == 65
    assert "nobody knows which packages its version needs" in done.err
    assert len(packages_in(root)) == 3


def test_gc_removes_trees_that_nobody_used_lately(machine: Machine, root: Path) -> None:
    trees = machine.home / "store/stacks/trees"
    old, fresh = (assembled(trees / (letter * 64), root, ZLIB) for letter in "ab")
    os.utime(old, (1_700_000_000, 1_700_000_000))
    found = data(machine, "gc", root)
    assert [tree["name"] for tree in found["trees"]] == [old.name]
    assert (old.exists(), fresh.exists()) == (False, True)
    assert [tree["name"] for tree in data(machine, "gc", root, "--days", "0")["trees"]] == [fresh.name]


def test_gc_of_the_build_cache_keeps_what_locks_and_versions_name(machine: Machine, root: Path) -> None:
    """Three entries are old: one of the lock, one of a published version, one that nobody needs; another is new."""
    cache = machine.folder / "cache"
    spec = write(machine.folder, publish={"root": str(root)}, cache=str(cache))
    locked = json.loads((machine.folder / "stack.lock.json").read_text())["packages"][-1]["hash"]
    named = digest(["zlib", "1.3"]).removeprefix("sha256:")
    folder = cache / prefix_digest(str(root))
    folder.mkdir(parents=True)
    for hash_ in (locked, named, "e" * 32, "f" * 32):
        for path in (folder / f"{hash_}.json", folder / f"{hash_}-0123456789ab.tar.zst"):
            path.write_text("x")
            os.utime(path, (1_700_000_000, 1_700_000_000) if hash_ != "f" * 32 else None)
    planned = data(machine, "gc", spec, "--packages", "--dry-run")
    assert planned["packages"] == [{"name": "e" * 32, "size": 2}]
    assert len(list(folder.iterdir())) == 8
    assert data(machine, "gc", spec, "--packages")["packages"] == planned["packages"]
    assert {path.name.partition(".")[0].partition("-")[0] for path in folder.iterdir()} == {locked, named, "f" * 32}
    done = machine.call("stack", "gc", root, "--packages")
    assert done.code == 64
    assert "only specs name build caches" in done.err


def test_detach_check_names_what_leads_into_the_factory(machine: Machine, root: Path) -> None:
    done = machine.call("stack", "detach-check", root)
    assert done.code == 0, done.text
    assert "stands by itself: nothing in 2 versions names" in done.out
    package = root / "packages" / folder_of("zlib", "1.3")
    (package / "bin/run").write_text("#!/build/tools/bin/sh\necho\n")
    (package / "bin/again").symlink_to("/build/tools/bin/run")
    places = {row["place"] for row in data(machine, "detach-check", root, "--factory-folder", "/build", code=65)["problems"]}
    assert places == {f"packages/{package.name}/bin/run", f"packages/{package.name}/bin/again"}


@pytest.mark.parametrize("command", ["list", "verify", "gc", "detach-check"])
def test_a_place_without_stacks_is_told_in_a_sentence(machine: Machine, command: str) -> None:
    done = machine.call("stack", command)
    assert done.code == 64
    assert "'stack.yaml' is neither a folder nor a file" in done.err
    place = machine.folder / "none"
    spec = write(machine.folder, publish={"root": str(place)})
    done = machine.call("stack", command, spec)
    assert done.code == 64
    assert f"publishes to {place}, which is no folder of this machine" in done.err
