"""Differences between two plans, with old and new values: shortened for people, and complete for scripts."""

import yaml

from steps.contract.runs.operation import BRINGUP, Operation, OperationKind
from workflows import examples
from workflows.plan import diff
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.spec import load

TEXT = examples.path("h200-16").read_text()


def plan_of(text: str = TEXT, until: str = "") -> Plan:
    return compile_plan(load(text), until=until)


def changed(old: str, new: str) -> tuple[str, ...]:
    assert old in TEXT
    return diff.differences(plan_of(), plan_of(TEXT.replace(old, new)))


def test_items_of_lists_are_told_apart_by_their_names() -> None:
    before = [{"kind": "Job", "metadata": {"name": "a"}, "n": 1}, {"name": "b"}]
    after = [{"name": "c"}, {"kind": "Job", "metadata": {"name": "a"}, "n": 2}]
    assert list(diff.differing_leaves(before, after, "objects")) == [
        ("objects[Job a].n", 1, 2),
        ("objects[b]", {"name": "b"}, None),
        ("objects[c]", None, {"name": "c"}),
    ]
    assert list(diff.differing_leaves([{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 3}], "l")) == [("l[1].x", 2, 3)]


def test_of_long_texts_the_first_line_that_differs_is_named() -> None:
    assert list(diff.differing_leaves("a: 1\nb: 2\n", "a: 1\nb: 3\n", "values")) == [("values line 2", "b: 2", "b: 3")]
    assert list(diff.differing_leaves("a\n", "a\nb\n", "values")) == [("values line 2", None, "b")]


def test_values_are_shown_on_one_line_and_cut() -> None:
    assert diff.short_text({"a": [1, "x"], "b": {"c": True}}) == "{a: [1, x], b: {c: true}}"
    assert diff.short_text(None) == "(none)"
    assert diff.short_text("") == '""'
    assert len(diff.short_text("x " * 500)) == diff.LONGEST


def test_a_release_says_which_value_changes() -> None:
    lines = changed("\nquorum:", "\noverrides:\n  volcano: {values: {basic: {image_pull_policy: Always}}}\nquorum:")
    assert "release volcano: values.basic.image_pull_policy: IfNotPresent → Always" in lines


def test_another_release_of_rke2_is_the_work_of_upgrade() -> None:
    def told(old: str, new: str, operation: Operation = BRINGUP) -> str:
        plans = [compile_plan(load(of_release(text)), only=["rke2"], operation=operation) for text in (old, new)]
        return next(line for line in diff.differences(*plans) if line.startswith("release rke2"))

    def of_release(version: str) -> str:
        written = yaml.load(TEXT, Loader=yaml.CSafeLoader)
        return yaml.safe_dump(written | {"rke2": {**written["rke2"], "version": version}})

    up = told("v1.35.6+rke2r1", "v1.35.7+rke2r1")
    assert up.startswith("release rke2: v1.35.6+rke2r1 → v1.35.7+rke2r1: this is for `bringup upgrade`")
    assert told("v1.35.6+rke2r1", "v1.35.7+rke2r1", Operation(kind=OperationKind.UPGRADE)).endswith("→ v1.35.7+rke2r1")
    assert "which is older: this is for `bringup rollback`" in told("v1.35.7+rke2r1", "v1.35.6+rke2r1")


def test_hosts_that_change_alike_are_one_line() -> None:
    lines = changed("  per_node: 8", "  per_node: 4")
    assert "hosts gpu[001-016]: gpus: 8 → 4" in lines


def test_an_approval_is_told_as_such() -> None:
    without = TEXT[: TEXT.index("approvals:")]
    assert "approval before validation: removed" in diff.differences(plan_of(), plan_of(without))
    added = diff.differences(plan_of(without), plan_of())
    assert "approval before validation: added: ada@example.org, grace@example.org, within 24h, else the run stops" in added
    waits = diff.differences(plan_of(without + "approvals: [{before: gang, approvers: [ada], timeout: 90m}]\n"), plan_of(without))
    assert not [line for line in waits if "confirm" in line]


def test_a_stage_that_goes_is_one_line_and_not_one_for_each_task() -> None:
    lines = diff.differences(plan_of(), plan_of(until="slurm"))
    assert "stage validation: removed" in lines
    assert not [line for line in lines if line.startswith("task validation.")]


def test_a_task_with_many_new_inputs_is_bounded_for_people_alone() -> None:
    other = compile_plan(load(examples.path("three-hosts")))
    lines = [line for line in diff.differences(plan_of(), other) if line.startswith("task os_prep.play")]
    whole = [change for change in diff.changes(plan_of(), other) if change.name == "os_prep.play"]
    assert len(whole) > diff.MOST
    assert len(lines) == diff.MOST + 1
    assert lines[-1].endswith(f"and {len(whole) - diff.MOST} more {'value' if len(whole) - diff.MOST == 1 else 'values'}")


def test_files_that_would_be_committed_are_told_by_line() -> None:
    text = examples.path("multi-rack-232").read_text()
    plans = [compile_plan(load(one)) for one in (text, text + "\noverrides: {kueue: {values: {mark: 1}}}\n")]
    lines = [line for line in diff.differences(*plans) if line.startswith("file ")]
    (line,) = lines
    same = "revision v2026.11.3: not changed, though its files are: a tag is never moved, so write a new revision"
    assert same in diff.differences(*plans)
    assert line.startswith("file apps/environments/multi-rack-232/values/kueue.yaml: line ")
    assert line.endswith("→ mark: 1")


def test_a_task_tells_once_what_its_expectations_repeat() -> None:
    text = examples.path("multi-rack-232").read_text()
    plans = [compile_plan(load(one)) for one in (text, text.replace("v2026.11.3", "v2026.11.4"))]
    lines = [line for line in diff.differences(*plans) if line.startswith("task gpu_operator.control ")]
    told = [line.partition("arguments.")[2].partition(":")[0] for line in lines]
    assert "root_app.revision" in told
    assert not [line for line in diff.differences(*plans) if line.startswith("revision ")]
    assert len(set(told)) == len(told)
    assert not [line for line in lines if "expectations" in line]
