"""Tasks that assemble and test a stack's tree: records of missing and tampered packages, and of a tree that was never made."""

import base64
import shutil
import subprocess
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest

from steps.contract.canonical import digest_bytes
from steps.contract.detachment import Factory
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Status
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.build_cache_registry import registry_cache
from steps.softwarestack.cache.package_packing import PackedContent
from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.stack_input import BuildCacheLocation, CacheRegistry, StackInput
from tests.unit.softwarestack import registry_stand_in, small_trees, test_cache_packages
from tests.unit.softwarestack.small_trees import package


class TreeDesk:
    """A run `r1` with a stack of two packages beside its tasks."""

    def __init__(self, desk: Any) -> None:
        self.desk, self.cache = desk, desk.root / "cache"
        self.files = stack_input.encode_files([])
        (desk.root / "tasks" / stack_input.FILES).write_bytes(self.files)
        self.write(small_trees.stack(package("lib"), package("app", ["lib"]), cache=self.cache / "cache"))

    def write(self, stack: StackInput) -> None:
        self.stack = stack
        (self.desk.root / "tasks" / stack_input.FILE).write_bytes(stack_input.encode(stack))

    def fill(self, config: str = "") -> Path:
        """Put the packages of the stack into its cache, one with a configuration file, and return the cache's folder."""
        self.cache.mkdir()
        self.write(test_cache_packages.filled(self.cache, config))
        folder: Path = self.cache / "cache"
        return folder

    def run(self, stage: str, part: str, gate: str) -> subprocess.CompletedProcess[str]:
        """Run the task of a part as an engine does."""
        wanted = {"part": part, "stack": self.stack.digest, "files": digest_bytes(self.files), "gate": gate}
        task = Task(stage=stage, name=part, verb=Verb.BUILD, arguments=wanted, expectations={"stack": self.stack.digest})
        done: subprocess.CompletedProcess[str] = self.desk.run(task)
        return done

    def build(self, stage: str, part: str, gate: str) -> Evidence:
        """Run the task of a part, and return its record."""
        done = self.run(stage, part, gate)
        assert done.returncode == 0, done.stderr
        record: Evidence = self.desk.store.records("r1", stage, part)[-1]
        assert record.verdict is not None
        return record

    def assemble(self) -> Evidence:
        return self.build("stack_tree", "tree", "stack_tree/tree")


@pytest.fixture
def tree(desk: Any) -> TreeDesk:
    return TreeDesk(desk)


def test_a_tree_is_assembled_in_the_store_of_the_run(tree: TreeDesk) -> None:
    tree.fill()
    record = tree.assemble()
    assert record.verdict is not None
    assert record.verdict.status is Status.PASS, record.verdict.reason
    (folder,) = (path for path in (tree.desk.root / "store/stacks/trees").iterdir() if path.is_dir())
    assert f"sha256:{folder.name}" == record.observation["digest"]


def test_a_tree_is_assembled_from_a_registry_with_the_secrets_of_the_task(tree: TreeDesk) -> None:
    """The pod has the password among its secrets; a wrong one is the reason of the verdict, which does not tell it."""
    tree.fill()
    in_folder = BuildCache(tree.stack.cache, tree.stack.root)
    (tree.desk.root / "secrets/cache_password").write_text("hunter2\n")
    with registry_stand_in.serving() as registry:
        registry.login, registry.scheme = "builder:hunter2", "bearer"
        place = CacheRegistry(url=registry.url, repository="hpc/cache", username="builder", password="cache_password")
        location = BuildCacheLocation(folder="", registry=place)
        in_registry = registry_cache(location, tree.stack.root, tree.desk.root / "archives", password="hunter2")
        for each in tree.stack.packages:
            copy(in_folder, in_registry, each.hash)
        shutil.rmtree(in_folder.folder)
        tree.write(msgspec.structs.replace(tree.stack, cache=location))
        verdict = tree.assemble().verdict
        assert verdict is not None
        assert verdict.status is Status.PASS, verdict.reason
        registry.login = "builder:changed"
        verdict = tree.assemble().verdict
        assert verdict is not None
        assert verdict.status is Status.FAIL
        assert "answered 401" in verdict.seen
        assert "hunter2" not in verdict.reason
        (tree.desk.root / "secrets/cache_password").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nZW1wdHk=\n")
        requests = len(registry.requests)
        assert (tree.run("stack_tree", "tree", "stack_tree/tree").returncode, len(registry.requests)) == (64, requests)


def copy(source: BuildCache, target: BuildCache, hash_: str) -> None:
    """Put an entry of one cache into another."""
    entry = source.entry(hash_)
    assert entry is not None

    def write(out: IO[bytes]) -> PackedContent:
        with source.open_archive(entry) as archive:
            out.write(archive.read())
        return PackedContent(modules=entry.modules, members=entry.members, size=entry.unpacked)

    assert target.put(entry, write) == entry


def test_a_tree_above_the_size_budget_is_not_tested_and_published(tree: TreeDesk) -> None:
    tree.fill()
    tree.write(msgspec.structs.replace(tree.stack, limits=msgspec.structs.replace(tree.stack.limits, tree_bytes=100)))
    verdict = tree.assemble().verdict
    assert verdict is not None
    assert (verdict.status, verdict.failure_class) == (Status.FAIL, FailureClass.INPUT)
    assert "(publish.largest_gib)" in verdict.reason


def test_packages_that_the_cache_lacks_are_named(tree: TreeDesk) -> None:
    verdict = tree.assemble().verdict
    assert verdict is not None
    assert (verdict.status, verdict.failure_class) == (Status.FAIL, FailureClass.DEPENDENCY)
    assert f"packages/{small_trees.folder('lib')}: the build cache does not have it" in verdict.seen


def test_a_tampered_package_makes_no_tree(tree: TreeDesk) -> None:
    (archive,) = tree.fill().rglob(f"{small_trees.hash_of('app')}-*.tar.zst")
    archive.write_bytes(base64.b64encode(archive.read_bytes()))
    verdict = tree.assemble().verdict
    assert verdict is not None
    assert verdict.status is Status.FAIL
    assert "no tree could be installed" in verdict.seen
    assert "its entry says" in verdict.seen


def test_a_file_that_names_the_factory_keeps_a_stack_from_being_published(tree: TreeDesk) -> None:
    factory = Factory(hosts=("factory01", "10.20.0.11"), folders=("/opt/factory",))
    tree.fill("license = @factory01:27000\nlogs = /opt/factory/logs\n")
    tree.write(msgspec.structs.replace(tree.stack, factory=factory))
    record = tree.assemble()
    assert record.verdict is not None
    assert (record.verdict.gate, record.verdict.status) == ("stack_tree/tree", Status.FAIL)
    path = f"packages/{small_trees.folder('lib')}/etc/lib.conf"
    assert f"2 problems in the tree: {path}: its text names factory01, a host of the factory" in record.verdict.seen
    assert [problem["kind"] for problem in record.observation["problems"]] == ["factory", "factory"]


def test_nothing_is_tested_without_a_tree_of_this_run(tree: TreeDesk) -> None:
    verdict = tree.build("stack_test", "test", "stack_test/tests").verdict
    assert verdict is not None
    assert verdict.status is Status.INCONCLUSIVE
    assert "stage stack_tree of this run has assembled no tree of this stack" in verdict.seen
