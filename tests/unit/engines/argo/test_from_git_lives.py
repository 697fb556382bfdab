"""The builds of a schedule among each other: which ends which, what each ends with, what is seen of a start that failed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engines.argo.git_desk import NAME, Desk, desk_of
from tests.unit.engines.argo.lab import Lab
from workflows.app import branch_build as building
from workflows.app.branch_build import Bounds, Branch
from workflows.app.images.image_branch import IMAGE_BRANCH
from workflows.cli import output
from workflows.engines.argo import workflow_objects
from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import Workflow
from workflows.render import from_git
from workflows.render import starts as rendered_starts


@pytest.fixture
def desk(cluster: Lab, tmp_path: Path) -> Desk:
    return desk_of(cluster, tmp_path)


def owners(desk: Desk, run: Workflow) -> dict[str, tuple[str, ...]]:
    """By kind, the uids of what a run and what was installed for it end with."""
    template = desk.lab.home.template(run.template)
    short = run.template.rpartition("-")[2]
    maps = [desk.found("configmaps", f"bringup-{what}-{short}") or {} for what in ("tasks", "fleet", "public")]
    rows = {"template": template, **dict(zip(("tasks", "fleet", "public"), maps, strict=True))}
    found = {kind: tuple(one["uid"] for one in row["metadata"].get("ownerReferences", ())) for kind, row in rows.items()}
    return found | {"run": tuple(one.uid for one in run.metadata.owner_references)}


def test_what_a_start_makes_ends_with_it_or_with_a_later_one_that_had_use_of_it(desk: Desk) -> None:
    """Argo keeps so many Workflows of a schedule, and what they own goes with them; what a person installed stays."""
    desk.install()
    desk.commit()
    first, second = (desk.starter(f"image-{NAME}-{number}") for number in (1, 2))
    assert desk.run("--starter", f"image-{NAME}-1").returncode == 0
    (run,) = desk.going()
    assert owners(desk, run) == dict.fromkeys(("template", "tasks", "fleet", "public", "run"), (first,))
    assert "builds exactly this" in desk.run("--starter", f"image-{NAME}-2").stdout
    (run,) = desk.going()
    assert owners(desk, run) == dict.fromkeys(("template", "tasks", "fleet", "public", "run"), (second,))
    assert desk.found("secrets", f"bringup-secrets-{run.template.rpartition('-')[2]}") is None

    by_hand = desk.run()
    assert "builds exactly this" in by_hand.stdout
    (run,) = desk.going()
    assert owners(desk, run) == dict.fromkeys(("template", "tasks", "fleet", "public"), ()) | {"run": (second,)}
    assert desk.run("--starter", f"image-{NAME}-1").returncode == 0
    assert owners(desk, run)["template"] == (), "what a person installed is his"
    assert desk.run("--starter", "gone").returncode == 0, "whose Workflow is deleted already owns nothing"


def test_a_build_that_goes_on_is_ended_only_by_one_that_can_start(desk: Desk) -> None:
    desk.install()
    desk.commit()
    assert desk.run().returncode == 0
    (good,) = desk.going()
    desk.commit(revision="2", secrets={"license": {"secret": {"name": "lost", "key": "key"}}})
    bad = desk.run("--may-use", "license=lost/key")
    assert (bad.returncode, "no Secret lost" in bad.stderr) == (64, True), bad.stderr
    (still,) = desk.going()
    assert (still.metadata.name, still.spec.shutdown) == (good.metadata.name, "")


def test_a_build_that_a_person_starts_ends_others_as_late(desk: Desk) -> None:
    desk.install()
    desk.commit()
    assert desk.run().returncode == 0
    spec = desk.lab.folder / "image.yaml"
    bad = desk.command("image", "build", str(spec), "--engine", "argo", "--supersede", "--no-wait")
    assert (bad.returncode, "known_hosts" in bad.stderr) == (64, True), bad.stderr
    assert [one.spec.shutdown for one in desk.going()] == [""]


def test_where_this_very_state_is_being_built_others_are_ended_too(desk: Desk) -> None:
    desk.install()
    desk.commit()
    assert desk.run().returncode == 0
    (old,) = desk.going()
    desk.commit(revision="2")
    assert desk.run().returncode == 0
    path = desk.lab.home.workflows(old.metadata.name)
    desk.lab.home.ask(lambda kube: kube.merge(path, {"spec": {"shutdown": None}}))
    again = desk.run()
    assert "builds exactly this" in again.stdout
    assert f"{old.metadata.name} is superseded" in again.stdout


def test_a_branch_that_moved_on_meanwhile_is_left_to_the_next_try(desk: Desk) -> None:
    """The commit comes while this one is being checked and installed, as at the first use of the home cluster."""
    desk.install()
    desk.commit()
    assert desk.run().returncode == 0
    (before,) = desk.going()
    desk.commit(revision="2")

    class Meanwhile(Home):
        """Somebody pushes at its first use, when the commit is read already."""

        pushed = False

        def ask(self, question: Any) -> Any:
            if not self.pushed:
                self.pushed = True
                desk.commit(revision="3")
            return super().ask(question)

    wanted = Branch(repository=desk.url, branch="main", path="nodes/image.yaml", name=NAME)
    target = building.Target(home=Meanwhile(desk.lab.where))
    with pytest.raises(building.Moved) as caught:
        building.build(output, IMAGE_BRANCH, wanted, Bounds(secrets=("publish_ssh_key=boot/key",)), target)
    assert caught.value.exit_code == 75
    (still,) = desk.going()
    assert (still.metadata.name, still.spec.shutdown) == (before.metadata.name, "")


def test_sentences_name_the_repository_and_no_folder_of_this_machine(desk: Desk) -> None:
    desk.install()
    desk.commit(recipe="own.yaml")
    for done in (desk.run(), (desk.commit(recipe="gpu"), desk.run())[1]):
        assert done.returncode == 64
        assert "bringup-checkout-" not in done.stderr
        assert done.stderr.startswith(f"error: {desk.url}, branch main, commit ")
    assert "bringup image lock nodes/image.yaml" in done.stderr


def test_a_start_that_failed_is_a_problem_of_the_schedule_and_its_log_can_be_read(desk: Desk) -> None:
    desk.install()
    desk.commit()
    assert desk.run().returncode == 0
    (run,) = desk.going()
    name = f"image-{NAME}-1"
    desk.starter(name)
    shown = desk.command("schedule", "show", NAME, "-o", "json")
    assert json.loads(shown.stdout)["problems"] == "none"
    assert json.loads(shown.stdout)["going_on"] == run.metadata.name
    node = {"id": name, "name": name, "displayName": name, "type": "Pod", "phase": "Failed", "templateName": from_git.ENTRYPOINT}
    status = {
        "phase": "Failed",
        "message": "retryStrategy.expression evaluated to false",
        "nodes": {name: {**node, "message": "main: Error (exit code 64): fail: there is no branch main"}},
    }
    desk.lab.home.ask(lambda kube: kube.merge(desk.lab.home.workflows(name), {"status": status}))
    told = json.loads(desk.command("schedule", "show", NAME, "-o", "json").stdout)["problems"]
    assert f"{name}, which was to start a run, ended as Failed: there is no branch main (" in told
    assert f"bringup logs --run {name}" in told
    logs = desk.command("logs", "--run", name)
    assert logs.returncode == 0, logs.stderr
    assert "its log is gone; it ended as Failed main: Error (exit code 64)" in logs.stdout
    status_of = desk.command("status", name)
    assert (status_of.returncode, "is not a run: a schedule of lab-nodes created it" in status_of.stderr) == (64, True)
    assert f"bringup logs --run {name}" in status_of.stderr
    assert workflow_objects.STARTS == rendered_starts.STARTS
