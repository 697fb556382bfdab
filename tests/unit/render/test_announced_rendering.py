"""An approval that the run announces by itself: one more task beside the wait, which decides nothing and may do nothing."""

import pytest

from workflows import bringup, examples
from workflows.app.specs.manifests import rendered
from workflows.engines.argo import submission
from workflows.plan import diff, run_folders
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle
from workflows.render.pipeline import FINISH
from workflows.spec import load

TEXT = examples.path("single-node").read_text() + "approvals:\n  - before: rke2\n    approvers: [ada, bob]\n"
IN_HOME = "    announce: {webhook: {secret: {name: chat, key: url}}}\n"
KNOWN_BY = "    announce: {webhook: {secret: {name: chat, key: url}}, ca: {secret: {name: chat, key: ca.pem}}}\n"
COMMAND = "    announce: {command: [notify]}\n"
SCHEDULE = 'schedule: {cron: "0 2 * * 6"}\n'


def plan(more: str = IN_HOME) -> Plan:
    return compile_plan(load(TEXT + more))


def bundle(more: str = IN_HOME) -> Bundle:
    return rendered(plan(more), bringup.build)


def secret_files(made: Bundle, template: str) -> list[tuple[str, str, str]]:
    """Secret, key and file of each that the pod of a template mounts."""
    spec = made.template["spec"]
    mounts = next(one for one in spec["templates"] if one["name"] == template)["container"]["volumeMounts"]
    mounted = [mount["name"] for mount in mounts if mount["mountPath"] == "/bringup/secrets"]
    sources = [row for one in spec["volumes"] if one["name"] in mounted for row in one["projected"]["sources"]]
    return [(row["secret"]["name"], item["key"], item["path"]) for row in sources for item in row["secret"]["items"]]


def depends(made: Bundle) -> dict[str, str]:
    """Return the `depends` expression of each task of the pipeline."""
    main = next(one for one in made.template["spec"]["templates"] if one["name"] == bringup.KIND)
    return {task["name"]: task.get("depends", "") for task in main["dag"]["tasks"]}


@pytest.mark.parametrize("where", ["{secret: {name: chat, key: url}}", "{file: ./url}", "{env: CHAT_URL}"])
def test_a_webhook_is_told_by_a_task_beside_the_wait(where: str) -> None:
    made = bundle(f"    announce: {{webhook: {where}}}\n")
    after = depends(made)
    assert after["announce-rke2"] == after["approve-rke2"]
    assert "announce" not in after["confirm-rke2"]  # the answer is checked at once
    assert after["rke2"].startswith("confirm-rke2.Succeeded && (announce-rke2.Succeeded || announce-rke2.Failed || ")
    ((name, key, path),) = secret_files(made, "rke2-announce")
    assert path == "announce.rke2"
    assert (name, key) == ("chat", "url") if "secret" in where else (name.startswith("bringup-secrets-"), key == "announce.rke2")
    task = next(data for name, data in run_folders.tasks_folder(plan()).items() if name == "rke2.announce.json")
    assert not [word for word in (b"chat", b"url", b"CHAT") if word in task]


def test_its_ca_is_told_with_its_url_and_to_it_alone() -> None:
    files_of = secret_files(bundle(KNOWN_BY), "rke2-announce")
    assert files_of == [("chat", "url", "announce.rke2"), ("chat", "ca.pem", "announce_ca.rke2")]
    (without, known) = (plan(more).announce_tasks["rke2"].arguments for more in (IN_HOME, KNOWN_BY))
    assert known == without | {"ca": "announce_ca.rke2"}


@pytest.mark.parametrize("more", ["", COMMAND])
def test_nothing_else_is(more: str) -> None:
    made = bundle(more)
    assert depends(made)["rke2"] == "confirm-rke2.Succeeded"
    assert not [name for name in depends(made) if name.startswith("announce")]
    assert not [row for row in made.rbac if row["metadata"]["name"] == "bringup-announce"]
    assert "announce.rke2" not in str(made.template)


def test_no_leaf_of_the_pipeline_announces() -> None:
    """A task that nothing comes after decides how the run ends."""
    after = depends(bundle())
    leaves = [name for name in after if not [one for one in after.values() if f"{name}." in one]]
    assert leaves == [list(after)[-1]]
    assert FINISH not in after


def test_its_account_has_no_role() -> None:
    rows = [row for row in bundle().rbac if "announce" in str(row["metadata"]) or "bringup-announce" in str(row.get("subjects"))]
    assert [(row["kind"], row["automountServiceAccountToken"]) for row in rows] == [("ServiceAccount", False)]


def test_how_it_is_announced_is_part_of_the_plan_and_when_it_starts_is_not() -> None:
    """A template is named by its plan's digest: what has one digest must render alike."""
    digests = {plan(more).digest for more in ("", COMMAND, IN_HOME, KNOWN_BY)}
    assert len(digests) == 4
    for more in ("", COMMAND, IN_HOME, KNOWN_BY):
        assert plan(more + SCHEDULE).digest == plan(more).digest
        assert run_folders.tasks_folder(plan(more + SCHEDULE)) == run_folders.tasks_folder(plan(more))
    told = diff.differences(plan(COMMAND), plan())
    assert [line for line in told if "announce" in line] == ["approval before rke2: announced: command → webhook"]
    assert diff.differences(plan(), plan(KNOWN_BY)) == ("task rke2.announce runs again: arguments.ca: (none) → announce_ca.rke2",)


def test_its_nodes_are_counted() -> None:
    counts = submission.shard_counts(plan().hosts)
    assert submission.nodes(plan(), counts) - submission.nodes(plan(COMMAND), counts) == submission.TASK_NODES
