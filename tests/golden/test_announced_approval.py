"""Golden file of an approval that the run itself announces: its templates, its place in the DAG, its account, its secret."""

import os
from pathlib import Path

from workflows import bringup, examples
from workflows.plan.compiler import compile_plan
from workflows.render.bundle import render, to_yaml
from workflows.spec import load

GOLDEN = Path(__file__).parent / "render/h200-16-announced/approval.yaml"
SPEC = examples.path("h200-16").read_text() + "    announce: {webhook: {secret: {name: chat, key: url}}}\n"


def test_what_announces_an_approval_is_as_committed() -> None:
    bundle = render(compile_plan(load(SPEC)), bringup.build)
    spec = bundle.template["spec"]
    main = next(one for one in spec["templates"] if one["name"] == spec["entrypoint"])
    templates = [
        one for one in spec["templates"] if one["name"] in ("approve-validation", "validation-announce", "validation-confirm")
    ]
    mounted = {mount["name"] for one in templates if "container" in one for mount in one["container"]["volumeMounts"]}
    kept = [
        {"tasks": [task for task in main["dag"]["tasks"] if "validation" in task["name"]]},
        *templates,
        *(volume for volume in spec["volumes"] if volume["name"] in mounted and "projected" in volume),
        *(row for row in bundle.rbac if row["metadata"]["name"] == "bringup-announce"),
    ]
    made = to_yaml(*kept)
    if os.environ.get("BRINGUP_REGENERATE") and os.environ.get("CI") != "true":
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(made)
    assert GOLDEN.read_text() == made, "if the change is meant: BRINGUP_REGENERATE=1 uv run pytest tests/golden"
