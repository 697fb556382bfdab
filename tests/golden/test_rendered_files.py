"""Golden files of what is rendered: a change of the manifest must be meant. `BRINGUP_REGENERATE=1` rewrites them."""

import os
from pathlib import Path

import pytest

from tests.unit import small_image, small_stack
from workflows import bringup, examples, factory, image, stack
from workflows.nodeimage.image_plan import compile_image
from workflows.plan.compiler import compile_plan
from workflows.plan.factory_plan import compile_factory
from workflows.render.bundle import render
from workflows.softwarestack.stack_build_plan import compile_stack
from workflows.spec import load, load_factory

HERE = Path(__file__).parent / "render"
CASES = [
    ("h200-16", "bringup", bringup.build),
    ("three-hosts", "bringup", bringup.build),
    ("dra", "bringup", bringup.build),
]


@pytest.mark.parametrize(("example", "kind", "build"), CASES, ids=[f"{example}-{kind}" for example, kind, _ in CASES])
@pytest.mark.parametrize("file", ["workflowtemplate.yaml", "workflow.yaml", "rbac.yaml", "target-rbac.yaml"])
def test_rendered_files_are_as_committed(example: str, kind: str, build: object, file: str) -> None:
    made = render(compile_plan(load(examples.path(example))), build).files()[file]  # type: ignore[arg-type]
    compare(HERE / f"{example}-{kind}" / file, made)


@pytest.mark.parametrize("file", ["workflowtemplate.yaml", "workflow.yaml", "rbac.yaml", "target-rbac.yaml"])
def test_a_factory_is_rendered_as_committed(file: str) -> None:
    plan = compile_factory(load_factory(Path(examples.__file__).parent / "factories/factory.yaml"), {})
    compare(HERE / "build-factory-factory" / file, render(plan, factory.build).files()[file])


@pytest.mark.parametrize("file", ["workflowtemplate.yaml", "workflow.yaml", "rbac.yaml", "target-rbac.yaml"])
def test_an_image_is_rendered_as_committed(tmp_path: Path, file: str) -> None:
    asked = {"approvers": ["ada@example.org"]}
    spec = small_image.spec(tmp_path, approval=asked)
    plan = compile_image(spec, small_image.recipe(), small_image.files())
    compare(HERE / "lab-nodes-image" / file, render(plan, image.build).files()[file])


@pytest.mark.parametrize("file", ["workflowtemplate.yaml", "workflow.yaml", "rbac.yaml", "target-rbac.yaml"])
def test_a_stack_is_rendered_as_committed(tmp_path: Path, file: str) -> None:
    spec, resolved = small_stack.resolved(tmp_path, approval={"approvers": ["ada@example.org"]})
    plan = compile_stack(spec, resolved, resolved.planned(()))
    compare(HERE / "lab-tools-stack" / file, render(plan, stack.build).files()[file])


def compare(golden: Path, made: str) -> None:
    if os.environ.get("BRINGUP_REGENERATE") and os.environ.get("CI") != "true":
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(made)
    assert golden.read_text() == made, "if the change is meant: BRINGUP_REGENERATE=1 uv run pytest tests/golden"
