"""Writing a commit into a folder: files, permissions and links match the commit, and whatever leads out of it is refused."""

from pathlib import Path

import pytest
from dulwich.object_store import MemoryObjectStore
from dulwich.objects import Blob, Commit, Tree
from dulwich.repo import Repo

from steps.clients.git import checkout, git_objects, repositories
from steps.clients.git.git_access import GitAccess
from steps.clients.git.git_objects import GitEntry
from steps.errors import BadTask

FILE, PROGRAM, LINK, SUBMODULE, FOLDER = 0o100644, 0o100755, 0o120000, 0o160000, 0o040000
SECRET = "canary-51c07e"


def link(path: str, leads: str) -> GitEntry:
    return GitEntry(path=path, mode=LINK, content=leads.encode())


def test_files_rights_and_links_are_those_of_the_commit(tmp_path: Path) -> None:
    """Through a real repository; bytes that are no text stay as they are, submodules are left out."""
    bare = tmp_path / "server.git"
    with Repo.init_bare(str(bare), mkdir=True, default_branch=b"main") as repo:
        blobs = [Blob.from_string(content) for content in (b"\xff\x00bytes", b"#!/bin/sh\n", b"../data.bin")]
        inner, root = Tree(), Tree()
        inner.add(b"run", PROGRAM, blobs[1].id)
        inner.add(b"latest", LINK, blobs[2].id)
        for blob in blobs:
            repo.object_store.add_object(blob)
        repo.object_store.add_object(inner)
        root.add(b"data.bin", FILE, blobs[0].id)
        root.add(b"bin", 0o040000, inner.id)
        root.add(b"other", SUBMODULE, blobs[0].id)
        committed(repo, root)
    folder = tmp_path / "tree"
    with repositories.open_repository(GitAccess(url="https://git.example.org/site.git", local=bare)) as opened:
        checkout.write(opened.entries(opened.tip("main")), folder)
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["bin", "bin/latest", "bin/run", "data.bin"]
    assert (folder / "bin/latest").read_bytes() == b"\xff\x00bytes"
    assert [(folder / name).stat().st_mode & 0o777 for name in ("bin/run", "data.bin")] == [0o755, 0o644]


@pytest.mark.parametrize(
    "entries",
    [
        [link("all", "/")],
        [link("a/b", "../../secret")],
        # deeper in words than in truth: the first link leads up, the second one beyond it
        [GitEntry(path="top/x", mode=FILE, content=b""), link("d/e/f/up", "../../../top"), link("out", "d/e/f/up/../../secret")],
        [GitEntry(path="../beside", mode=FILE, content=b"")],
        [GitEntry(path="/absolute", mode=FILE, content=b"")],
        [link("via", ".."), link("via/more", "x")],
    ],
    ids=["absolute", "above", "through_another_link", "file_above", "file_absolute", "link_below_a_link"],
)
def test_what_leads_out_is_refused(tmp_path: Path, entries: list[GitEntry]) -> None:
    (tmp_path / "secret").write_text(SECRET)
    folder = tmp_path / "tree"
    folder.mkdir()
    with pytest.raises(BadTask) as caught:
        checkout.write(entries, folder)
    assert caught.value.hint
    assert SECRET not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "tree"]


def test_a_link_to_what_is_not_there_stays_a_link(tmp_path: Path) -> None:
    """Whoever reads it says what is missing."""
    checkout.write([link("later", "not/there")], tmp_path)
    assert (tmp_path / "later").is_symlink()


FINE = GitEntry(path="nodes/image.yaml", mode=FILE, content=b"")


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (link("nodes/loop", "loop"), "circle"),
        (link("nodes/nothing", ""), "No such file"),
        (link("nodes/nul", "a\0b"), "null byte"),
        (GitEntry(path=f"nodes/{'x' * 300}", mode=FILE, content=b""), "name too long"),
        (GitEntry(path="nodes/image.yaml/below", mode=FILE, content=b""), "File exists"),
        (GitEntry(path="nodes/\udcff" + "y" * 300, mode=FILE, content=b""), "name too long"),
    ],
    ids=["a circle", "to nothing", "a NUL", "long", "below a file", "no text"],
)
def test_what_no_folder_can_have_is_told_by_its_path_in_the_repository(tmp_path: Path, entry: GitEntry, why: str) -> None:
    """And never as a bug, or as a server that is away."""
    with pytest.raises(BadTask) as caught:
        checkout.write([FINE, entry], tmp_path)
    assert why.lower() in str(caught.value).lower()
    assert repr(entry.path) in str(caught.value)
    assert str(tmp_path) not in str(caught.value) + caught.value.hint


def test_more_than_a_build_has_use_for_is_refused() -> None:
    for entries in (
        [FINE] * (checkout.MOST_ENTRIES + 1),
        [GitEntry(path="big", mode=FILE, content=bytes(checkout.MOST_BYTES + 1))],
        [GitEntry(path="x/" * checkout.LONGEST_PATH, mode=FOLDER, content=b"")],
    ):
        with pytest.raises(BadTask, match="more than 20000 entries, 64 MiB") as caught:
            checkout.bounded_entries(entries)
        assert caught.value.hint
    assert checkout.bounded_entries([GitEntry(path="nodes", mode=FOLDER, content=b""), FINE]) == [FINE]


def committed(repo: Repo, root: Tree) -> None:
    commit = Commit()
    commit.tree, commit.author, commit.committer, commit.message = root.id, b"a <a@b>", b"a <a@b>", b"first"
    commit.author_time = commit.commit_time = commit.author_timezone = commit.commit_timezone = 0
    for one in (root, commit):
        repo.object_store.add_object(one)
    repo.refs[b"refs/heads/main"] = commit.id  # type: ignore[index]  # dulwich's own type of a ref


def test_only_the_folder_that_is_asked_for_is_read(tmp_path: Path) -> None:
    """Other folders of the commit are not read, not even one whose trees nest themselves into a million entries."""
    bare = tmp_path / "server.git"
    with Repo.init_bare(str(bare), mkdir=True, default_branch=b"main") as repo:
        blob, root, folder, bomb = Blob.from_string(b"spec"), Tree(), Tree(), Tree()
        folder.add(b"image.yaml", FILE, blob.id)
        for one in (blob, folder, bomb):
            repo.object_store.add_object(one)
        for _ in range(20):
            twice = Tree()
            for name in (b"a", b"b"):
                twice.add(name, FOLDER, bomb.id)
            repo.object_store.add_object(twice)
            bomb = twice
        root.add(b"bomb", FOLDER, bomb.id)
        root.add(b"nodes", FOLDER, folder.id)
        committed(repo, root)
    with repositories.open_repository(GitAccess(url="https://git.example.org/site.git", local=bare)) as opened:
        tip = opened.tip("main")
        assert [one.path for one in checkout.bounded_entries(opened.entries(tip, "nodes"))] == ["nodes/image.yaml"]
        assert list(opened.entries(tip, "none")) == list(opened.entries(tip, "nodes/image.yaml")) == []
        with pytest.raises(BadTask, match="more than 20000 entries"):
            checkout.bounded_entries(opened.entries(tip))


def test_an_object_that_the_server_lacks_is_its_own_trouble(tmp_path: Path) -> None:
    store, root = MemoryObjectStore(), Tree()
    root.add(b"lost", FILE, Blob.from_string(b"lost").id)
    store.add_object(root)
    with pytest.raises(KeyError):
        list(git_objects.below(store, root.id, ""))
