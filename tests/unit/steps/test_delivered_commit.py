"""The commit that a stage's gate expects: the one this run delivered, else one an earlier run delivered of the same tree."""

from typing import Any

import pytest

from steps.contract import delivery
from steps.contract.canonical import canonical
from steps.contract.delivery import Delivered
from steps.contract.task import Task, Verb
from steps.errors import BadTask
from steps.runtime import delivery_inputs

URL = "https://git.example.org/platform/apps.git"
ROOT = {
    "name": "bringup-gang",
    "home": "argocd",
    "repo": URL,
    "path": "apps/environments/lab/stages/gang",
    "revision": "v1",
    "tree": "t1",
}


def commit(desk: Any, **arguments: Any) -> str:
    return delivery_inputs.delivered_commit(desk.context(Task(stage="gang", name="control", verb=Verb.WAIT, arguments=arguments)))


def keep(desk: Any, run: str, commit: str, repo: str = URL, revision: str = "v1", tree: str = "t1") -> None:
    made = Delivered(repo=repo, revision=revision, commit=commit, tree=tree)
    desk.store.write(delivery.key(run), canonical(made))


def test_a_task_without_a_root_needs_none(desk: Any) -> None:
    keep(desk, "r1", "a" * 40)
    assert commit(desk) == ""


def test_this_run_comes_first_then_the_newest(desk: Any) -> None:
    assert commit(desk, root_app=ROOT) == ""
    keep(desk, "r0", "a" * 40)
    assert commit(desk, root_app=ROOT) == "a" * 40
    keep(desk, "r2", "b" * 40)
    assert commit(desk, root_app=ROOT) == "b" * 40
    keep(desk, "r1", "c" * 40)
    assert commit(desk, root_app=ROOT) == "c" * 40
    assert commit(desk, gate_expectations={"root_app": ROOT}) == "c" * 40


@pytest.mark.parametrize("other", [{"repo": "https://git.example.org/other.git"}, {"revision": "v2"}, {"tree": "t2"}])
def test_what_was_delivered_of_something_else_says_nothing(desk: Any, other: dict[str, str]) -> None:
    keep(desk, "r0", "a" * 40, **other)
    assert commit(desk, root_app=ROOT) == ""


def test_a_commit_names_itself(desk: Any) -> None:
    assert commit(desk, root_app={**ROOT, "revision": "d" * 40}) == "d" * 40


def test_a_root_that_is_none_is_a_bad_task(desk: Any) -> None:
    with pytest.raises(BadTask, match="root_app"):
        commit(desk, root_app={"name": "x"})
