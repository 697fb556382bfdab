"""The task that publishes a stack: it refuses what this run has not tested, and records what users have afterwards."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from steps.contract.canonical import canonical, digest
from steps.contract.release_layout import ReleaseTarget
from steps.contract.run_records import Header, header_key
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Status, Verdict, failed, passed
from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.stack_input import BuildCacheLocation, StackInput, StackPackage
from steps.softwarestack.contract.stack_tests import StackTested, StackTestKind, StackTestOutcome, StackTestResult
from tests.unit.softwarestack.published_stacks import HPL, ZLIB, assembled, published

TREE = "sha256:" + "8" * 64
BAD = failed("stack_test/tests", FailureClass.COMPARISON, seen="HPL/2.3: fail", expected="all tests passed", next_step="see it")


class StackDesk:
    """A run `r1` with a stack beside its tasks, its assembled tree in the store, and a published root."""

    def __init__(self, desk: Any, packages: dict[str, str] = ZLIB) -> None:
        self.desk, self.root = desk, desk.root / "published"
        self.root.mkdir(exist_ok=True)
        self.stack = self.wanted(packages)
        (desk.root / "tasks" / stack_input.FILE).write_bytes(stack_input.encode(self.stack))
        self.tree = assembled(self.folder, self.root, packages, key=self.stack.key)

    @property
    def folder(self) -> Path:
        path: Path = self.desk.root / "store/stacks/trees" / TREE.removeprefix("sha256:")
        return path

    def wanted(self, packages: dict[str, str]) -> StackInput:
        rows = [
            StackPackage(
                hash=digest([name, version]).removeprefix("sha256:"), name=name, version=version, module=f"{name}/{version}"
            )
            for name, version in packages.items()
        ]
        return StackInput(
            name="tools",
            backend="easybuild",
            release="5.4.1",
            root=str(self.root),
            packages=tuple(rows),
            roots=tuple(row.hash for row in rows),
            cache=BuildCacheLocation(folder=""),
            origin="0123abc, on bringup 1",
        )

    def tested(self, tree: str = TREE, stack: str = "", verdict: Verdict | None = None, judged: Verdict | None = None) -> None:
        """Store the records of stage stack_test."""
        modules = [package.module for package in self.stack.packages]
        results = (StackTestResult(name=name, kind=StackTestKind.LOAD, outcome=StackTestOutcome.PASS) for name in modules)
        seen = StackTested(stack=stack or self.stack.digest, tree=tree, results=tuple(results))
        good = passed("stack_test/tests", "all tests passed")
        for task, observation, said in (("test", seen, verdict or good), ("judge", None, judged or good)):
            record = Evidence(
                run="r1", stage="stack_test", task=task, verb="build", shard=0, attempt=1, input_digest="sha256:0", engine="local",
                started=1.0, finished=2.0, verdict=said, observation=msgspec.to_builtins(observation),
            )  # fmt: skip
            self.desk.store.write_evidence(record, canonical)

    def publish(self, **more: Any) -> Any:
        """Run the task as an engine does."""
        target = msgspec.to_builtins(ReleaseTarget(root=str(self.root)))
        wanted = {"stack": self.stack.digest, "gate": "stack_publish/version", "target": target, **more}
        task = Task(
            stage="stack_publish",
            name="version",
            verb=Verb.PUBLISH,
            arguments=wanted,
            expectations={"packages": len(self.stack.packages), "keep": 3},
        )
        return self.desk.run(task)

    @property
    def last(self) -> Evidence:
        record: Evidence = self.desk.store.records("r1", "stack_publish", "version")[-1]
        return record


@pytest.fixture
def stack(desk: Any) -> StackDesk:
    return StackDesk(desk)


def test_a_tested_stack_is_published(stack: StackDesk) -> None:
    header = Header(run="r1", engine="local", plan="sha256:p", cluster="tools", owner="hpc", revision="2026-11-21.1")
    stack.desk.store.write(header_key("r1"), canonical(header))
    stack.tested()
    done = stack.publish()
    assert done.returncode == 0, done.stderr
    record = stack.last
    assert record.verdict is not None
    assert record.verdict.status is Status.PASS, record.verdict.reason
    version = record.observation["version"]
    assert record.changes == (f"published tools {version}",)
    assert record.observation["tree"] == TREE
    assert f'"version":"{version}"' in next((stack.desk.root / "store/trees").rglob("tools.json")).read_text()
    assert '"revision":"2026-11-21.1"' in (stack.root / "tools/current/manifest.json").read_text()
    text = (stack.root / "tools/current/tests.json").read_text()
    assert '"origin":"0123abc, on bringup 1"' in text
    assert '"run":"r1"' in text
    made = json.loads((stack.root / "tools/current/provenance.json").read_text())["predicate"]
    assert made["buildDefinition"]["externalParameters"]["revision"] == "2026-11-21.1"
    assert made["runDetails"]["metadata"] == {
        "invocationId": "r1",
        "startedOn": "1970-01-01T00:00:01Z",
        "finishedOn": "1970-01-01T00:00:02Z",
    }, "from the first record of the run to the end of its tests"
    tests = json.loads((stack.root / "tools/current/test-result.json").read_text())["predicate"]
    assert tests["passedTests"] == ["HPL/2.3", "zlib/1.3"]
    again = stack.publish()
    assert again.returncode == 0, again.stderr
    assert stack.last.observation["unchanged"] is True
    assert stack.last.changes == ()


@pytest.mark.parametrize(
    ("tested", "sentence"),
    [
        (None, "stage stack_test of this run has not passed"),
        ({"judged": BAD}, "stage stack_test of this run has not passed"),
        ({"verdict": BAD}, "stack_test.test: .*fail"),
        ({"stack": "sha256:" + "9" * 64}, "stack_test.test tested sha256:999999999999, this is"),
        ({"tree": ""}, "stack_test.test tested"),
        ({"tree": "sha256:" + "7" * 64}, "holds no stack"),
    ],
)
def test_what_was_not_tested_is_not_published(stack: StackDesk, tested: dict[str, Any] | None, sentence: str) -> None:
    import re

    if tested is not None:
        stack.tested(**tested)
    done = stack.publish()
    assert done.returncode in (64, 65)
    assert re.search(sentence, done.stderr), done.stderr
    assert list(stack.root.iterdir()) == []


def test_the_empty_folder_below_a_missing_mount_is_refused(stack: StackDesk) -> None:
    stack.tested()
    assert stack.publish().returncode == 0
    stack.root.rename(stack.root.with_name("mounted"))
    stack.root.mkdir()
    done = stack.publish()
    assert done.returncode == 65
    assert "it is empty, but tools" in done.stderr or "it has no version of tools" in done.stderr
    assert list(stack.root.iterdir()) == []
    assert stack.publish(again=True).returncode == 0


def test_a_root_on_another_machine_is_refused_in_words(stack: StackDesk) -> None:
    stack.tested()
    target = replace(ReleaseTarget(root=str(stack.root)), host="files.example.org")
    done = stack.publish(target=msgspec.to_builtins(target))
    assert done.returncode == 65
    assert "is on another machine" in done.stderr


def test_the_version_before_stays_for_a_rollback(stack: StackDesk, tmp_path: Path) -> None:
    before = published(tmp_path, stack.root, HPL)
    stack.tested()
    assert stack.publish().returncode == 0
    assert stack.last.observation["before"] == before.version
    assert stack.last.observation["packages_changed"] == ["HPL 2.4 → 2.3"]
