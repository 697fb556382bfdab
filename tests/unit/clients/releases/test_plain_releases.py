"""A directory of files that is no image as a release: publish, list, verify, roll back, retention, lease, what runs where."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steps.clients.releases import publication, release_lease, release_rollback, usage, verification
from steps.clients.releases.local_transport import LocalTransport
from steps.clients.releases.publication import PublishOutcome, PublishRequest
from steps.clients.releases.release_kind import Contents, ReleaseKind, SharedFiles, StagedRelease
from steps.clients.releases.release_tree import ALL, ReleaseTree, TreeLayout
from steps.clients.releases.shell_session import PROGRAM, ShellTransport
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract.canonical import canonical, digest_bytes
from steps.contract.release_layout import ReleaseError, ReleaseFile, ReleaseTarget, UsageReport
from steps.errors import Refused, StoreBusy

KINDS = ("local", "shell")
LAYOUT = TreeLayout(manifest="stack.json", pointer="production", shared="modulefiles", read=(".lua",))


def contents(data: bytes) -> Contents:
    """Read the manifest of the test's stacks: path → digest and size."""
    try:
        files = json.loads(data)["files"]
        return Contents(
            product="tools", files=tuple(ReleaseFile(name=name, digest=row[0], size=row[1]) for name, row in files.items())
        )
    except (ValueError, KeyError) as error:
        raise ReleaseError(f"stack.json: {error}") from error


def usage_report(file: str, data: bytes) -> UsageReport | None:
    """Read a node's report: the version whose module was loaded."""
    try:
        return UsageReport(node=file.removesuffix(".json"), version=json.loads(data)["loaded"])
    except (ValueError, KeyError):
        return None


def shared(tree: ReleaseTree, version: str) -> SharedFiles:
    """Return the module file that leads to a version."""
    return SharedFiles(files={"tools.lua": f"-- {version}\n".encode()})


STACK = ReleaseKind(
    noun="stack",
    command="bringup stack",
    namespace="bringup-stack",
    contents=contents,
    layout=LAYOUT,
    required=("tests.json",),
    shared_files=shared,
    usage=usage_report,
)


class Stack(StagedRelease, frozen=True, kw_only=True):
    """A release whose module file says which content it has."""

    content: str

    def shared_files(self, tree: ReleaseTree) -> SharedFiles:
        return SharedFiles(files={"tools.lua": f"-- {self.content}\n".encode()})


def stack(folder: Path, content: str) -> Stack:
    """A directory with nested files."""
    texts = {"bin/cc": f"#!/bin/sh\necho {content}\n", "lib/deep/libc.so": content * 100, "README": "a stack\n"}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    files = tuple(
        ReleaseFile(name=name, digest=digest_bytes(text.encode()), size=len(text.encode())) for name, text in texts.items()
    )
    manifest = canonical({"files": {file.name: [file.digest, file.size] for file in files}})
    metadata = {"tests.json": b'{"cc":"pass"}\n'}
    return Stack(kind=STACK, product="tools", folder=folder, manifest=manifest, files=files, metadata=metadata, content=content)


@contextmanager
def transport(kind: str, root: Path) -> Iterator[TreeTransport]:
    """A transport of a kind to a root."""
    words = ["sh", "-c", PROGRAM.read_text()]
    opened: TreeTransport = (
        LocalTransport(root, LAYOUT) if kind == "local" else ShellTransport(words, str(root), "there", layout=LAYOUT)
    )
    try:
        yield opened
    finally:
        opened.close()


def published(root: Path, release: StagedRelease, kind: str = "local", keep: int = 3, *, again: bool = False) -> PublishOutcome:
    """Publish, and say nothing."""
    target = ReleaseTarget(root=str(root), keep=keep)
    request = PublishRequest(release=release, target=target, secrets=root, by="run-1", again=again)
    with transport(kind, root) as way:
        return publication.publish(way, request, lambda _: None)


def look(root: Path, kind: str = "local") -> ReleaseTree:
    with transport(kind, root) as way:
        return way.look("tools", (ALL,))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_is_published_listed_verified_and_rolled_back(root: Path, tmp_path: Path, kind: str) -> None:
    first, second = (published(root, stack(tmp_path / text, text), kind).tree.current for text in "ab")
    assert os.readlink(root / "tools/production") == f"versions/{second}"
    assert (root / "tools/production/bin/cc").read_text().endswith("echo b\n")
    assert (root / "modulefiles/tools.lua").read_text() == "-- b\n"
    tree = look(root, kind)
    assert verification.tree_problems(STACK, tree) == ()
    rows = usage.version_rows(STACK, tree, now=time.time())
    assert [(row.version, row.current, row.whole, row.by) for row in rows] == [
        (second, True, True, "run-1"),
        (first, False, True, "run-1"),
    ]
    with transport(kind, root) as way:
        done = release_rollback.roll_back(STACK, way, "tools", "", "rollback by ada")
    assert (done.to, done.before) == (first, second)
    assert (root / "modulefiles/tools.lua").read_text() == f"-- {first}\n"
    with pytest.raises(Refused, match="was left by a rollback") as caught:
        published(root, stack(tmp_path / "b", "b"), kind)
    assert caught.value.hint.endswith("bringup stack build --again")
    assert published(root, stack(tmp_path / "b", "b"), kind, again=True).tree.current == second


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_current_is_not_written_again(root: Path, tmp_path: Path, kind: str) -> None:
    release = stack(tmp_path / "a", "a")
    assert not published(root, release, kind).unchanged
    assert published(root, release, kind).unchanged


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_is_verified(root: Path, tmp_path: Path, kind: str) -> None:
    version = published(root, stack(tmp_path / "a", "a"), kind).tree.current
    folder = root / "tools/versions" / version
    (folder / "lib/deep/libc.so").write_text("b" * 100)
    (folder / "bin/more").write_text("")
    (folder / "empty").mkdir()
    (folder / "README").unlink()
    (folder / "README").symlink_to("/etc/motd")
    problems = {problem.place.removeprefix(f"tools/versions/{version}/"): problem.why for problem in wrong(root, kind)}
    assert problems["lib/deep/libc.so"].startswith("has the digest")
    assert problems["bin/more"] == "is listed nowhere"
    assert problems["empty"] == "is neither a file nor a folder of listed files"
    assert problems["README"] == "leads to /etc/motd: outside of the tree"


def wrong(root: Path, kind: str) -> tuple[verification.TreeProblem, ...]:
    return verification.tree_problems(STACK, look(root, kind))


def test_a_tree_that_would_lead_out_is_not_switched(root: Path, tmp_path: Path) -> None:
    (root / "modulefiles").mkdir()
    (root / "modulefiles/old.lua").symlink_to("/srv/factory/old.lua")
    with pytest.raises(Refused, match=r"modulefiles/old\.lua leads to /srv/factory/old\.lua"):
        published(root, stack(tmp_path / "a", "a"))
    assert not (root / "tools").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_retention_keeps_what_nodes_run(root: Path, tmp_path: Path, kind: str) -> None:
    first = published(root, stack(tmp_path / "a", "a"), kind).tree.current
    (root / "nodes").mkdir()
    (root / "nodes/n1.json").write_text(json.dumps({"loaded": first}))
    (root / "nodes/n2.json").write_text("no report")
    names = [published(root, stack(tmp_path / text, text), kind, keep=1).tree.current for text in "bcd"]
    tree = look(root, kind)
    assert tree.versions == (first, *names[1:]), "in use, to go back to, and current"
    rows = usage.node_usage(STACK, (tree,), now=time.time())
    assert [(row.node, row.version, row.state.value) for row in rows] == [("n1", first, "older"), ("n2", "", "unreadable")]
    (row,) = usage.node_usage(STACK, (tree,), now=time.time() + 1e6)[:1]
    assert row.state is usage.UsageState.STALE


@pytest.mark.parametrize("kind", KINDS)
def test_one_publisher_at_a_time(root: Path, tmp_path: Path, kind: str) -> None:
    with transport(kind, root) as way, release_lease.hold_lease(way, "tools", release_lease.new_token(), "run-7"):
        with pytest.raises(StoreBusy, match="run-7") as caught:
            published(root, stack(tmp_path / "a", "a"), kind)
        assert "publishes into tools right now" in str(caught.value)
    assert published(root, stack(tmp_path / "a", "a"), kind).tree.versions
