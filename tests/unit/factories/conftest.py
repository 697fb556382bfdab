"""A factory with every part that a spec can ask for, and its planner."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.rehearsal.stage_bench import Planner
from workflows import examples, factory
from workflows.plan.factory_plan import compile_factory
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle, render
from workflows.spec import FactorySpec, load_factory
from workflows.spec.pipelines.pipeline_files import load_pipelines

STARTER = Path(examples.__file__).parent / "factories/factory.yaml"
TEMPLATE = """apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: science}
spec:
  entrypoint: main
  templates: [{name: main, container: {image: "busybox:1.37.0", command: ["true"]}}]
"""


@pytest.fixture(scope="session")
def factory_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The starter spec with a shared folder, and with a pipeline on a schedule."""
    folder = tmp_path_factory.mktemp("factory")
    (folder / "science.yaml").write_text(TEMPLATE)
    more = "share: {server: nas.example.org, path: /srv/factory}\n"
    more += 'pipelines: [{project: software, file: science.yaml, schedule: {cron: "0 2 * * *"}}]\n'
    (folder / "factory.yaml").write_text(STARTER.read_text() + more)
    return folder / "factory.yaml"


@pytest.fixture(scope="session")
def whole(factory_file: Path) -> FactorySpec:
    """The spec of the whole factory."""
    return load_factory(factory_file)


@pytest.fixture(scope="session")
def planner(factory_file: Path, whole: FactorySpec) -> Planner:
    """The planner of the whole factory."""
    pipelines = load_pipelines(whole, factory_file.parent)

    def planned(only: Sequence[str]) -> tuple[Plan, Bundle]:
        plan = compile_factory(whole, pipelines, only=only)
        return plan, render(plan, factory.build)

    return planned
