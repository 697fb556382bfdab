"""What a commit holds, as a folder: files, rights and links, and nothing that leads out of it."""

from pathlib import Path

import pytest
from dulwich.objects import Blob, Commit, Tree
from dulwich.repo import Repo

from steps.clients import git, git_checkout
from steps.clients.git_access import GitAccess
from steps.clients.git_checkout import Entry
from steps.errors import BadTask

FILE, PROGRAM, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000
SECRET = "canary-51c07e"


def link(path: str, leads: str) -> Entry:
    return Entry(path=path, mode=LINK, content=leads.encode())


def test_files_rights_and_links_are_those_of_the_commit(tmp_path: Path) -> None:
    """Through a real repository; bytes that are no text stay as they are, submodules are left out."""
    bare = tmp_path / "server.git"
    with Repo.init_bare(str(bare), mkdir=True, default_branch=b"main") as repo:
        blobs = [Blob.from_string(content) for content in (b"\xff\x00bytes", b"#!/bin/sh\n", b"../data.bin")]
        inner, root, commit = Tree(), Tree(), Commit()
        inner.add(b"run", PROGRAM, blobs[1].id)
        inner.add(b"latest", LINK, blobs[2].id)
        for blob in blobs:
            repo.object_store.add_object(blob)
        repo.object_store.add_object(inner)
        root.add(b"data.bin", FILE, blobs[0].id)
        root.add(b"bin", 0o040000, inner.id)
        root.add(b"other", SUBMODULE, blobs[0].id)
        repo.object_store.add_object(root)
        commit.tree, commit.author, commit.committer, commit.message = root.id, b"a <a@b>", b"a <a@b>", b"first"
        commit.author_time = commit.commit_time = commit.author_timezone = commit.commit_timezone = 0
        repo.object_store.add_object(commit)
        repo.refs[b"refs/heads/main"] = commit.id  # type: ignore[index]  # dulwich's own type of a ref
    folder = tmp_path / "tree"
    with git.opened(GitAccess(url="https://git.example.org/site.git", local=bare)) as opened:
        git_checkout.write(opened.entries(opened.tip("main")), folder)
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["bin", "bin/latest", "bin/run", "data.bin"]
    assert (folder / "bin/latest").read_bytes() == b"\xff\x00bytes"
    assert [(folder / name).stat().st_mode & 0o777 for name in ("bin/run", "data.bin")] == [0o755, 0o644]


@pytest.mark.parametrize(
    "entries",
    [
        [link("all", "/")],
        [link("a/b", "../../secret")],
        # deeper in words than in truth: the first link leads up, the second one beyond it
        [Entry(path="top/x", mode=FILE, content=b""), link("d/e/f/up", "../../../top"), link("out", "d/e/f/up/../../secret")],
        [Entry(path="../beside", mode=FILE, content=b"")],
        [Entry(path="/absolute", mode=FILE, content=b"")],
        [link("via", ".."), link("via/more", "x")],
    ],
    ids=["absolute", "above", "through_another_link", "file_above", "file_absolute", "link_below_a_link"],
)
def test_what_leads_out_is_refused(tmp_path: Path, entries: list[Entry]) -> None:
    (tmp_path / "secret").write_text(SECRET)
    folder = tmp_path / "tree"
    folder.mkdir()
    with pytest.raises(BadTask) as caught:
        git_checkout.write(entries, folder)
    assert caught.value.hint
    assert SECRET not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "tree"]


def test_a_link_to_what_is_not_there_stays_a_link(tmp_path: Path) -> None:
    """Whoever reads it says what is missing."""
    git_checkout.write([link("later", "not/there")], tmp_path)
    assert (tmp_path / "later").is_symlink()
