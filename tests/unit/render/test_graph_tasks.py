"""Steps that run as a graph: inner DAG templates, groups of them above Argo's limit, their size, and the plan's digest."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from steps.contract.canonical import digest
from tests.unit import graph_plans
from workflows.engines.argo import submission
from workflows.render import graph_tasks, manifest_policy
from workflows.render.bundle import Bundle, render
from workflows.render.grammar.findings import refused
from workflows.render.grammar.lint import lint
from workflows.softwarestack import build_batches
from workflows.stages.stage import GraphTask, Stage

CONTAINER = "stack-build-package"


def chain(length: int, group: int = 0, start: int = 0) -> list[GraphTask]:
    """Tasks each of which waits for the one before it."""
    return [
        GraphTask(name=f"p{start + place}", shard=start + place, after=(f"p{start + place - 1}",) if place else (), group=group)
        for place in range(length)
    ]


def rendered(graph: list[GraphTask], parallelism: int = 0) -> Bundle:
    return render(graph_plans.plan(graph, parallelism), graph_plans.build)


def template(made: Bundle, name: str) -> dict[str, Any]:
    return next(entry for entry in made.template["spec"]["templates"] if entry["name"] == name)


def assert_admitted(made: Bundle) -> None:
    assert refused(lint(made.workflow, {made.template["metadata"]["name"]: made.template})) == ()
    assert manifest_policy.breaches(made.template) == ()


def test_a_graph_is_one_dag_that_calls_one_container_with_each_shard() -> None:
    graph = [*chain(2), GraphTask(name="hdf5-ab12", shard=2, after=("p0", "p1"))]
    made = rendered(graph, parallelism=7)
    assert_admitted(made)
    inner = template(made, f"{CONTAINER}-graph")
    assert inner["parallelism"] == 7
    assert inner["dag"]["failFast"] is False
    assert inner["dag"]["tasks"][2] == {
        "name": "hdf5-ab12",
        "template": CONTAINER,
        "dependencies": ["p0", "p1"],
        "arguments": {"parameters": [{"name": "shard", "value": "2"}]},
    }
    container = template(made, CONTAINER)
    assert container["inputs"] == {"parameters": [{"name": "shard"}]}
    assert container["container"]["args"][-2:] == ["--shard", "{{inputs.parameters.shard}}"]
    stage = {entry["name"]: entry for entry in template(made, "stack-build")["dag"]["tasks"]}
    assert stage["package"]["template"] == f"{CONTAINER}-graph"
    assert stage["judge"]["depends"] == graph_tasks.ended_condition("package")
    assert "parallelism" not in made.template["spec"]


def test_groups_are_dags_that_wait_for_the_end_of_others_and_share_one_limit() -> None:
    graph = [*chain(150), *chain(150, group=1, start=150), GraphTask(name="last", shard=300, after=("p3", "p299"), group=2)]
    made = rendered(graph, parallelism=16)
    assert_admitted(made)
    outer = {entry["name"]: entry for entry in template(made, f"{CONTAINER}-graph")["dag"]["tasks"]}
    assert [entry.get("depends") for entry in outer.values()] == [
        None,
        None,
        f"{graph_tasks.ended_condition('group-0')} && {graph_tasks.ended_condition('group-1')}",
    ]
    assert [entry["template"] for entry in outer.values()] == [f"{CONTAINER}-graph-{group}" for group in range(3)]
    last = template(made, f"{CONTAINER}-graph-2")
    assert "dependencies" not in last["dag"]["tasks"][0]
    assert "parallelism" not in last
    assert made.template["spec"]["parallelism"] == 16


def test_the_largest_dag_that_the_linter_admits_is_the_largest_that_is_rendered() -> None:
    assert_admitted(rendered(chain(graph_tasks.MOST_TASKS)))
    made = rendered(chain(graph_tasks.MOST_TASKS))
    inner = template(made, f"{CONTAINER}-graph")["dag"]["tasks"]
    inner.append({**inner[0], "name": "one-more"})
    assert "has 201 items; at most 200" in str(refused(lint(made.template)))


@pytest.mark.parametrize(
    ("graph", "problem"),
    [
        (chain(graph_tasks.MOST_TASKS + 1), "group 0 of package has 201 tasks, Argo admits 200"),
        ([*chain(1), *chain(1)], "task p0 is in the graph of package twice"),
        (list(reversed(chain(2))), "task p1 of package waits for p0, which is not listed before it"),
        (
            [GraphTask(name="a", shard=0, group=1), GraphTask(name="b", shard=1, after=("a",))],
            "task b of package waits for a of a later group",
        ),
    ],
)
def test_what_argo_would_refuse_is_not_rendered(graph: list[GraphTask], problem: str) -> None:
    with pytest.raises(graph_tasks.GraphError, match=problem):
        rendered(graph)


def test_a_task_of_a_graph_takes_200_bytes_at_most_as_the_api_server_stores_it() -> None:
    needs = [f"py-numpy-{place:04x}" for place in range(3)]
    graph = [GraphTask(name=name, shard=place) for place, name in enumerate(needs)]
    graph += [GraphTask(name=f"netcdf-fortran-{shard:04x}", shard=shard, after=tuple(needs)) for shard in range(3, 200)]
    small, large = (len(json.dumps(rendered(tasks).template, separators=(",", ":"))) for tasks in (graph[:4], graph))
    assert (large - small) / 196 <= 200


def test_the_digest_of_a_stage_covers_its_graph_and_is_as_before_without_one() -> None:
    def stage_digest(stage: Stage) -> str:
        return digest(msgspec.to_builtins(stage.digested, enc_hook=dict))

    stage = graph_plans.plan(chain(3)).stages[0]
    step = stage.steps[0]
    others = [chain(2), [*chain(2), GraphTask(name="p2", shard=2)], [*chain(2), GraphTask(name="p2", shard=3, after=("p1",))]]
    changed = [stage_digest(replace(stage, steps=(replace(step, graph=tuple(graph)), stage.steps[1]))) for graph in others]
    assert len({stage_digest(stage), *changed}) == 4
    assert "graph" not in str(replace(stage, steps=(replace(step, graph=()),)).digested["steps"][0].keys())


def test_every_task_of_a_graph_counts_in_the_size_of_argos_workflow() -> None:
    nodes = [submission.nodes(graph_plans.plan(chain(length)), {"shards": 0, "agents": 0}, 2) for length in (1, 11)]
    assert nodes[1] - nodes[0] == 10 * 2


def test_argo_can_store_a_run_of_as_many_batches_as_a_stack_may_have() -> None:
    needs = range(3)  # what most packages of published locks wait for directly, at most
    graph = [
        GraphTask(
            name=f"netcdf-fortran-{number:04x}",
            shard=number,
            after=tuple(f"netcdf-fortran-{number - back - 1:04x}" for back in needs if number % 200 > back),
            group=number // 200,
        )
        for number in range(build_batches.MOST)
    ]
    plan = graph_plans.plan(graph, 16)
    assert submission.check(plan, render(plan, graph_plans.build)) <= submission.LIMIT
