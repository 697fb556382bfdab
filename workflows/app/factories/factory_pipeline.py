"""The pipeline of factories: find and load a `factory.yaml` and the pipeline files that it names, and plan the run."""

from pathlib import Path

from workflows.app.run_options import Pipeline, Wish
from workflows.app.specs import sources
from workflows.plan.factory_plan import compile_factory
from workflows.plan.model import Plan
from workflows.spec import FactorySpec, SpecErrors, load_factory
from workflows.spec.pipelines.pipeline_files import load_pipelines

KIND = "factory"
_OTHERS = {
    "Cluster": (
        "this is the spec of a cluster, and none of a factory",
        "`bringup init --factory` writes one; `bringup run {path}` takes this",
    ),
    "Image": ("this is the spec of a node image, and none of a factory", "`bringup image build {path}` takes it"),
    "Stack": ("this is the spec of a software stack, and none of a factory", "`bringup stack build {path}` takes it"),
}
"""Kinds of files that are no factory spec, each with the problem and the fix to print if it is given as one."""


def read(source: str) -> tuple[Path, FactorySpec]:
    """Return the path and the loaded factory spec that an argument names. Raises NoSpec or SpecErrors."""
    path = Path(source)
    if not path.exists():
        raise sources.NoSpec(f"there is no file {source}", hint="write one with `bringup init --factory`")
    try:
        return path, load_factory(path)
    except SpecErrors:
        sources.refuse_kinds(path, _OTHERS)
        raise


def plan_of(path: Path, spec: FactorySpec, until: str = "") -> Plan:
    """Return the plan of a factory, reading the pipeline files beside its spec. Raises SpecErrors and PlanError."""
    return compile_factory(spec, load_pipelines(spec, path.parent), until)


def _plan(path: Path, spec: FactorySpec, wish: Wish) -> Plan:
    return plan_of(path, spec, wish.until)


FACTORY = Pipeline(KIND, read, _plan, forks=True)
