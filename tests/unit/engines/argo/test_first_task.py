"""A run whose first task fails: no stage begins, and whoever follows, asks or reads the report is told why."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.engines.argo.lab import Lab
from tests.unit.engines.argo.test_follow import begin
from tests.unit.engines.argo.test_live import Person
from workflows.engines.argo import follower, installer, prerequisites, submission
from workflows.engines.local.result import RunNodeStatus

Drill = Callable[..., Any]
ENDED = "main: Error (exit code 64)"


def test_why_a_run_could_not_be_opened(emulated: Lab, drill: Drill) -> None:
    emulated.stand_in()
    plan, bundle = drill(emulated.where.namespace, emulated.target)
    installer.install(emulated.home, plan, bundle, prerequisites.collect_secrets(emulated.home, plan, Path("/"), {}))
    submission.submit(emulated.home, submission.workflow("one", plan, bundle, "nope"))
    ada = Person(emulated)

    assert ada.run("watch", "one", *ada.where) == 65
    (line,) = [line for line in ada.out.partition("\n\n")[0].splitlines() if line.startswith("open: ")]
    assert line.startswith("open: fail: there is no run nope to reuse; ")
    assert ada.run("report", "one", "-o", "junit") == 0
    (failure,) = ElementTree.fromstring(ada.out.encode()).iter("failure")
    reason = failure.get("message") or ""
    assert reason.startswith("there is no run nope to reuse; ")
    assert ada.run("report", "one") == 0
    assert f"three-hosts: fail: open: {reason}\n" in ada.out
    assert ada.run("logs", "slurm", "--run", "one") == 64
    assert ada.err.splitlines()[1] == "hint: tasks that ran: run.open, run.report, run.seal"
    eve = Person(emulated, "eve")  # who has no evidence, hence the last word of the pod
    for one, why in ((ada, reason), (eve, line.removeprefix("open: fail: "))):
        assert one.run("status", "one", *one.where, "-o", "json") == 0, one.err
        assert json.loads(one.out)["stages"] == [
            {"stage": "open", "status": "fail", "reason": why},
            {"stage": "drill", "status": "not run", "reason": "open did not pass"},
            {"stage": "parade", "status": "not run", "reason": "open did not pass"},
        ]


def test_status_says_in_a_sentence_what_is_waited_for(cluster: Lab, drill: Drill) -> None:
    begin(cluster, drill, "one")
    cluster.home.ask(lambda kube: kube.merge(cluster.home.workflows("one"), {"spec": {"suspend": True}}))
    ada = Person(cluster)
    assert ada.run("status", "one", *ada.where) == 0, ada.err
    found = re.findall(r"^waits for (.*) since \d{4}-\S+ \S+Z$", ada.out, re.MULTILINE)
    assert found == ["the workflow-controller to take it", "somebody to resume the whole run (`argo resume`)"]
    assert ada.run("logs", "drill.judge", "--run", "one", *ada.where) == 64
    assert ada.err.splitlines()[1] == "hint: none of its tasks has begun: bringup status one"
    assert ada.run("logs", "one", "--run", "one", *ada.where) == 64
    assert ada.err.splitlines()[1] == "hint: one is a run: bringup logs --run one"


@pytest.mark.parametrize(
    ("retry", "message", "rows"),
    [
        ("Failed", f"{ENDED}: fail: no such run", [("open", "fail", "no such run")]),
        ("Failed", ENDED, [("open", "inconclusive", f"{ENDED}; why: bringup logs run.open --run one")]),
        ("Running", f"{ENDED}: inconclusive: no answer", []),
        ("Succeeded", f"{ENDED}: inconclusive: no answer", []),
        ("", f"{ENDED}: fail: no such run", [("open", "fail", "no such run")]),
    ],
)
def test_an_attempt_that_is_repeated_has_not_failed_the_run(retry: str, message: str, rows: list[tuple[str, str, str]]) -> None:
    def node(kind: str, phase: str, said: str = "") -> RunNodeStatus:
        return RunNodeStatus(f"one.open({kind})", "open", kind, phase, said, "run-open", "", {}, {}, None, 1.0, 2.0, [])

    nodes = [node("Pod", "Failed", message), *([node("Retry", retry)] if retry else [])]
    told = follower.stages(["drill"], nodes, "one")
    assert [tuple(row.values()) for row in told] == [*rows, ("drill", "to come", "")]


@pytest.mark.parametrize("said", ["current", "changed"])
def test_stages_of_an_image_that_is_published_already_were_skipped(said: str) -> None:
    def node(name: str, kind: str, phase: str, template: str, outputs: dict[str, str | None]) -> RunNodeStatus:
        return RunNodeStatus(f"one.{name}", name, kind, phase, "", template, "", {}, outputs, None, 1.0, 2.0, [])

    nodes = [
        node("tree", "Pod", "Succeeded", "image-status-tree", {"status": said}),
        node("judge", "Pod", "Succeeded", "image-status-judge", {"verdict": "pass"}),
        node("image-lock", "Skipped", "Skipped", "image-lock", {}),
        node("image-layers", "Skipped", "Omitted", "image-layers", {}),
    ]
    told = {row["stage"]: row["status"] for row in follower.stages(["image_status", "image_lock", "image_layers"], nodes, "one")}
    left_out = "skipped" if said == "current" else "not run"
    assert told == {"image_status": "pass", "image_lock": left_out, "image_layers": left_out}
