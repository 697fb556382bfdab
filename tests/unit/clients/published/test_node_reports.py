"""Versions in use on many nodes: a tree is read once and not once per node, and each node is matched with its own report."""

import json
import os
import shlex
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steps.clients.releases import shell_session, usage
from steps.clients.releases.release_tree import ReleaseTree
from steps.nodeimage.contract import image_manifest
from steps.nodeimage.contract.boot_tree import BootGroup
from steps.nodeimage.publishing import image_kind, node_reports
from steps.nodeimage.publishing.image_kind import local_tree
from tests.unit import small_image
from tests.unit.clients.published.published_trees import image, place, published, transport

NODES = 90


class Counted(dict[str, Any]):
    """A dictionary that counts how often it is read."""

    asked = 0

    def __getitem__(self, name: str) -> Any:
        self.asked += 1
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(name, default)

    def items(self) -> Any:
        self.asked += 1
        return super().items()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for text in "abc":
        published(place(root, BootGroup(name="gpu", nodes=small_image.fleet(NODES))), image(tmp_path / text, text))
    return root


def reports(root: Path, count: int) -> ReleaseTree:
    """The tree, with as many reports of nodes: by name of the version, by digests of its root, of its manifest, and of none."""
    (root / "nodes").mkdir(exist_ok=True)
    versions = sorted((root / "compute/versions").iterdir())
    for number, (mac, node) in enumerate(list(small_image.fleet(NODES).items())[:count]):
        version = versions[number % 3]
        found = image_manifest.decode((version / image_manifest.MANIFEST).read_bytes()).part(image_manifest.ROOT)
        assert found
        ways = ({"version": version.name}, {"image": found.digest}, {"image": "sha256:0"})
        said = {"node": node, "image": "", "mac": mac, **ways[number // 3 % 3]}
        (root / f"nodes/{node}.json").write_text(json.dumps(said) + "\n")
    tree = local_tree(root).look("compute")
    tree.contents, tree.entries = Counted(tree.contents), Counted(tree.entries)
    return tree


def asked(tree: ReleaseTree) -> int:
    return sum(one.asked for one in (tree.contents, tree.entries) if isinstance(one, Counted))


def test_of_ten_times_the_nodes_no_more_of_a_tree_is_read(root: Path) -> None:
    counts = []
    for count in (NODES // 10, NODES):
        tree, other = reports(root, count), reports(root, count)
        found = node_reports.nodes((tree,), now=0.0)
        assert len(found) == count
        listed = node_reports.versions(other, now=0.0)
        assert sum(len(row.nodes) for row in listed) == sum(row.stand.value != "unknown" for row in found)
        used = reports(root, count)
        assert usage.in_use(image_kind.image_kind(), used) == used.versions
        counts.append((asked(tree), asked(other), asked(used)))
    assert counts[0] == counts[1]
    assert all(counts[0])


def test_each_node_is_told_from_the_others_all_the_same(root: Path) -> None:
    found = node_reports.nodes((reports(root, 9),), now=0.0)
    versions = [path.name for path in sorted((root / "compute/versions").iterdir())]
    assert [row.version for row in found] == [*versions, *versions, "", "", ""]
    assert [row.stand.value for row in found] == ["older", "older", "current"] * 2 + ["unknown"] * 3


def test_a_report_counts_for_the_version_that_it_names_where_its_root_is_that_ones(root: Path, tmp_path: Path) -> None:
    """Two versions have one root, as where kernel arguments alone differ; a report of an older image names none."""
    more = BootGroup(name="gpu", kernel_arguments=("iommu=pt",), nodes=small_image.fleet(NODES))
    published(place(root, more, keep=9), image(tmp_path / "c", "c"))
    first, _, third, fourth = sorted(path.name for path in (root / "compute/versions").iterdir())
    parts = [
        image_manifest.decode((root / "compute/versions" / name / image_manifest.MANIFEST).read_bytes()).parts
        for name in (first, third)
    ]
    of_first, of_third = (next(part.digest for part in found if part.name == image_manifest.ROOT) for found in parts)
    said = [(third, of_third), (fourth, of_third), ("", of_third), (third, of_first), ("0009-aaaaaaaaaaaa", of_third)]
    (root / "nodes").mkdir()
    for (mac, node), (version, digest) in zip(small_image.fleet(len(said)).items(), said, strict=True):
        text = json.dumps({"node": node, "image": digest, "version": version, "mac": mac})
        (root / f"nodes/{node}.json").write_text(text)
    tree = local_tree(root).look("compute")
    assert [(row.version, row.stand.value) for row in node_reports.nodes((tree,), now=0.0)] == [
        (third, "older"),
        (fourth, "current"),
        (fourth, "current"),
        (first, "older"),
        ("0009-aaaaaaaaaaaa", "unknown"),
    ]
    assert usage.in_use(image_kind.image_kind(), tree) == (first, third, fourth)
    (root / "compute/versions" / third / image_manifest.MANIFEST).write_text("no manifest")
    assert third in usage.in_use(image_kind.image_kind(), local_tree(root).look("compute")), (
        "what is named there is kept also where nobody knows its root"
    )


COMES = json.dumps({"node": "aaa", "image": "sha256:0"})
WHILE_READ = {"comes": f"echo '{COMES}' >aaa.json", "goes": "rm -f node00002.json", "comes and is none": "mkdir -p aaa.json"}


@pytest.mark.parametrize("what", WHILE_READ)
def test_no_node_is_taken_for_its_neighbour_where_one_comes_or_goes_while_reports_are_read(root: Path, what: str) -> None:
    """A report that appears or vanishes between listing and reading the folder does not shift the reports of other nodes."""
    had = reports(root, 9)
    assert "node00002.json" in had.nodes
    act = f'case $BASH_COMMAND in *"paste -s"*) (cd "{root}/nodes" && {WHILE_READ[what]}) ;; esac'
    way = shell_session.ShellTransport(
        ["bash", "-T", "-c", f"trap {shlex.quote(act)} DEBUG\n{shell_session.PROGRAM.read_text()}"],
        str(root),
        "there",
        layout=image_kind.LAYOUT,
    )
    try:
        found = way.look("compute")
    finally:
        way.close()
    assert sorted(path.name for path in (root / "nodes").iterdir()) != sorted(had.nodes), "it came or went"
    assert found.nodes == {name: data.strip() for name, data in had.nodes.items() if (root / "nodes" / name).exists()}
    assert found.reported_at.keys() == found.nodes.keys()
    assert usage.UsageState.UNREADABLE not in {row.stand for row in node_reports.nodes((found,), now=0.0)}
    assert usage.in_use(image_kind.image_kind(), found) == usage.in_use(image_kind.image_kind(), had)


def test_a_report_that_may_not_be_read_takes_no_other_with_it(root: Path) -> None:
    had = reports(root, 9)
    (root / "nodes/broken.json").symlink_to("nowhere")
    (root / "nodes/folder.json").mkdir()
    for kind in ("local", "shell"):
        with transport(kind, root) as way:
            assert {name: data.strip() for name, data in way.look("compute").nodes.items()} == {
                name: data.strip() for name, data in had.nodes.items()
            }


@pytest.mark.parametrize("bad", [(), ("folder",), ("folder", "link", "odd * name")])
def test_what_can_never_be_read_as_a_report_does_not_cost_programs_for_each_node(
    root: Path, tmp_path: Path, bad: tuple[str, ...]
) -> None:
    had = reports(root, 40)
    if "folder" in bad:
        (root / "nodes/folder.json").mkdir()
    if "link" in bad:
        (root / "nodes/link.json").symlink_to("nowhere")
    odd = [name for name in bad if " " in name]
    for name in odd:
        shutil.copy(root / "nodes" / min(had.nodes), root / f"nodes/{name}.json")
    program = tmp_path / "bin/paste"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho run >>"{tmp_path}/runs"\nexec {shutil.which("paste")} "$@"\n')
    program.chmod(0o755)
    command = ["env", f"PATH={program.parent}:{os.environ['PATH']}", "sh", "-c", shell_session.PROGRAM.read_text()]
    with closing(shell_session.ShellTransport(command, str(root), "there", layout=image_kind.LAYOUT)) as way:
        assert way.look("compute").nodes.keys() == had.nodes.keys() | {f"{name}.json" for name in odd}
    assert len((tmp_path / "runs").read_text().splitlines()) == (2 if bad else 1)


SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
"""Of those that servers have as sh, the ones that this machine has."""


@pytest.mark.parametrize("name", SHELLS)
def test_reports_are_those_of_the_tree_wherever_the_account_finds_its_folders(root: Path, tmp_path: Path, name: str) -> None:
    had = reports(root, 9)
    (tmp_path / "elsewhere/nodes").mkdir(parents=True)
    (tmp_path / "elsewhere/nodes/other.json").write_text(COMES)
    words = [name, "sh"] if name == "busybox" else [name]
    command = ["env", f"CDPATH={tmp_path / 'elsewhere'}", *words, "-c", shell_session.PROGRAM.read_text()]
    with closing(shell_session.ShellTransport(command, str(root), "there", layout=image_kind.LAYOUT)) as way:
        assert way.look("compute").nodes.keys() == had.nodes.keys()
