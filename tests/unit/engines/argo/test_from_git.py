"""The schedule of a node image: each state of a branch in a real Git repository is built once on a home cluster."""

from pathlib import Path
from typing import Any

import pytest

from steps.contract.runs import revision
from tests.unit import small_image
from tests.unit.engines.argo.git_desk import NAME, Desk, desk_of
from tests.unit.engines.argo.lab import Lab
from workflows.engines.argo.home import NoTemplate
from workflows.engines.argo.workflow_objects import PLAN
from workflows.render import from_git

TEMPLATE = "image-lab-nodes-from-git"


@pytest.fixture
def desk(cluster: Lab, tmp_path: Path) -> Desk:
    return desk_of(cluster, tmp_path)


def test_each_state_of_the_branch_is_built_once_and_ends_the_one_before(desk: Desk) -> None:
    desk.install()
    first = desk.commit()
    done = desk.run()
    assert (done.returncode, done.stderr) == (0, "")
    (run,) = desk.going()
    source = revision.from_token(run.argument("source"))
    assert source is not None
    assert (source.commit, source.path, source.dirty) == (first, "nodes/image.yaml", False)
    assert run.metadata.labels == {"bringup/cluster": NAME, "bringup/pipeline": "image"}

    again = desk.run()
    assert again.returncode == 0
    assert f"run {run.metadata.name} builds exactly this: {desk.url}, branch main is at {first}" in again.stdout
    assert [one.metadata.name for one in desk.going()] == [run.metadata.name]

    desk.commit(revision="2026-11-22.1")
    newer = desk.run()
    assert newer.returncode == 0
    assert f"{run.metadata.name} is superseded, and is being cancelled" in newer.stdout
    older, latest = sorted(desk.going(), key=lambda one: one.metadata.name != run.metadata.name)
    assert (older.spec.shutdown, latest.spec.shutdown) == ("Terminate", "")  # it had not begun
    assert older.metadata.annotations[PLAN] != latest.metadata.annotations[PLAN]
    assert "the schedule of lab-nodes" in older.metadata.annotations["bringup/cancelled"]

    desk.commit()  # back to the first state, whose build is being ended: it is no reason to build nothing
    back = desk.run()
    assert f"{latest.metadata.name} is superseded" in back.stdout
    assert "submitted" in back.stdout


def test_a_spec_at_the_root_is_built_whatever_lies_beside_it(desk: Desk) -> None:
    desk.install()
    desk.commit(folder="")
    done = desk.run(path="image.yaml")
    assert (done.returncode, done.stderr) == (0, "")


def test_who_may_do_what_is_left_to_whoever_installs_the_schedule(desk: Desk) -> None:
    desk.commit()
    done = desk.run()
    assert done.returncode == 64
    assert "has no ServiceAccount bringup-executor, and this account may not create it" in done.stderr
    assert "bringup image build SPEC --engine argo" in done.stderr
    assert desk.going() == ()
    desk.install()
    assert desk.found("serviceaccounts", from_git.account_name(NAME)) is not None
    assert desk.run().returncode == 0
    assert desk.lab.home.template(TEMPLATE)
    desk.install(schedule=None)
    assert desk.found("serviceaccounts", from_git.account_name(NAME)) is None, "its token ends with the schedule"
    with pytest.raises(NoTemplate):
        desk.lab.home.template(TEMPLATE)


@pytest.mark.parametrize(
    ("more", "words", "path", "code", "sentence"),
    [
        ({"name": "other"}, (), "nodes/image.yaml", 64, "describes image other, not lab-nodes"),
        ({}, (), "nodes/none.yaml", 64, "there is no file nodes/none.yaml"),
        ({}, ("--branch", "next"), "nodes/image.yaml", 64, "has no branch next"),
        ({"boot": {"nodes": 0}}, (), "nodes/image.yaml", 64, "boot.nodes"),
        ({"schedule": None, "publish": small_image.SPEC["publish"]}, (), "nodes/image.yaml", 64, "add publish.ssh"),
        ({}, ("--secrets", "/nonexistent"), "nodes/image.yaml", 64, "has none of credentials, known_hosts and ca"),
    ],
    ids=["another name", "no file", "no branch", "bad spec", "a folder of one machine", "no secrets"],
)
def test_what_cannot_be_built_is_said_and_nothing_is_submitted(
    desk: Desk, more: dict[str, Any], words: tuple[str, ...], path: str, code: int, sentence: str
) -> None:
    desk.install()
    desk.commit(**more)
    done = desk.run(*words, path=path)
    assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
    assert desk.going() == ()


def test_a_credential_never_travels_in_the_clear(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held/credentials").write_text("canary-90aa")
    done = desk.command("image", "from-git", "http://127.0.0.1:9/a.git", "image.yaml", "--secrets", str(tmp_path / "held"))
    assert (done.returncode, "would travel in the clear" in done.stderr, "canary" in done.stderr) == (64, True, False)


def test_a_repository_that_is_not_there_is_refused_with_the_key_of_the_spec(desk: Desk) -> None:
    desk.install()
    done = desk.command("image", "from-git", "file:///no/such.git", "image.yaml")
    assert done.returncode == 64
    assert "there is no Git repository" in done.stderr
    assert "see schedule.source.repository" in done.stderr
