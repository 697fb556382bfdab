"""The size of a run's Workflow is known before it is submitted: its nodes exactly, its bytes closely and never too low."""

import dataclasses
import functools
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract.runs import last_word
from tests.bench.argo_played import Played, last
from workflows import bringup, examples
from workflows.engines.argo import submission
from workflows.engines.argo.workflow_objects import compress_nodes
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle, render
from workflows.render.steps import RETRY_LIMIT
from workflows.spec import load
from workflows.stages import ORDER

ROOT = Path(__file__).parents[4]
ONCE, OFTEN = 2, 2 + RETRY_LIMIT
"""Nodes of a task that succeeds at once, and of one that uses up its attempts."""


@functools.cache
def rendered(nodes: int, *, announced: bool = False) -> tuple[Plan, Bundle]:
    """The default example with another number of GPU nodes, and room for their addresses; `announced`: with as many approvals as it
    has stages, all of which the run itself announces."""
    text = examples.path("h200-16").read_text().replace("gpu[001-016]", f"gpu[00001-{nodes:05d}]")
    text = text.replace('{pattern: "10.10.1.{1}"}', "{start: 10.64.0.1}").replace("15/16", "90%")
    if announced:
        hook = "{webhook: {secret: {name: chat, key: url}}}"
        every = [stage for stage in ORDER if stage != "sharing"]
        rows = [f"  - {{before: {stage}, approvers: [ada], announce: {hook}}}\n" for stage in every]
        text = "".join((text[: text.index("approvals:")], "approvals:\n", *rows))
    plan = compile_plan(load(text.replace("  cni: canal", "  cni: canal\n  cluster_cidr: 100.0.0.0/9")))
    return plan, render(plan, bringup.build)


@pytest.mark.parametrize("nodes", [10, 1000])
@pytest.mark.parametrize("task_nodes", [ONCE, OFTEN])
@pytest.mark.parametrize("announced", [False, True])
def test_the_nodes_of_a_run_are_counted_exactly(nodes: int, task_nodes: int, announced: bool) -> None:
    plan, bundle = rendered(nodes, announced=announced)
    state = last(Played("run", plan, bundle, attempts=task_nodes - 1).states())
    assert state.phase == "Succeeded"
    assert len(state.nodes) == submission.nodes(plan, submission.shard_counts(plan.hosts), task_nodes)


def add_last_words(nodes: Iterable[dict[str, Any]]) -> None:
    """As long as they may be, and of words that hardly repeat themselves: a failed attempt's of each task but of later shards, and,
    though it passed here, of each judge."""
    chance = random.Random(7)
    words = sorted(
        {word for path in (ROOT / "steps/stages").rglob("gate*.py") for word in re.findall(r"[a-z]{3,}", path.read_text())}
    )

    def text(most: int) -> str:
        said = "fail 17/24: "
        while len(said) < most:
            said += f"gpu{chance.randrange(10**5):05d} {' '.join(chance.sample(words, 6))} {chance.random():.3f}; "
        return said[:most]

    for node in nodes:
        shard = next((one["value"] for one in node.get("inputs", {}).get("parameters", ()) if one["name"] == "shard"), "0")
        if node["type"] == "Pod" and node["phase"] == "Failed" and shard == "0":
            node["message"] += f": {text(last_word.ERROR)}"
        elif node["type"] == "Pod" and node["templateName"].endswith("-judge"):
            node["message"] = f"main: Error (exit code 65): {text(last_word.LONGEST)}"


@pytest.mark.parametrize("nodes", [10, 1000])
def test_the_bytes_of_a_run_are_met_from_above(nodes: int) -> None:
    plan, bundle = rendered(nodes)
    run = Played("a-run-with-a-name-of-63-characters".ljust(63, "x"), plan, bundle, attempts=1 + RETRY_LIMIT)
    shown = run.status(last(run.states()), 1_800_000_000.0)
    add_last_words(shown["nodes"].values())
    shown["compressedNodes"] = compress_nodes(msgspec.json.encode(shown.pop("nodes")))
    measured = len(msgspec.json.encode({**bundle.workflow, "status": shown}))
    print(f"{nodes} nodes: {measured} of {submission.check(plan, bundle)} bytes")
    assert 0.7 < measured / submission.check(plan, bundle) < 1


def test_the_largest_fleet_that_is_planned_fits() -> None:
    plan, bundle = rendered(10_000)
    assert submission.shard_counts(plan.hosts) == {"shards": 201, "agents": 200}
    assert submission.check(plan, bundle) < submission.LIMIT / 3


def test_the_largest_fleet_that_a_spec_may_name_fits_where_argo_compresses_above_the_recommended_size() -> None:
    """`workflows/docs/scale.md` recommends MAX_WORKFLOW_SIZE=524288: what is larger than that even compressed, Argo refuses."""
    plan, bundle = rendered(19_990, announced=True)
    assert submission.shard_counts(plan.hosts)["agents"] == 400
    assert submission.check(plan, bundle) < 589_824


def test_a_run_that_would_outgrow_argo_is_refused() -> None:
    plan, bundle = rendered(10)
    large = {
        **bundle.template,
        "spec": {**bundle.template["spec"], "podMetadata": {"annotations": {"large": "x" * submission.LIMIT}}},
    }
    bundle = dataclasses.replace(bundle, template=large)
    with pytest.raises(submission.TooLarge, match="9 stages over 2 shards may come to"):
        submission.check(plan, bundle)
