"""Reads a cluster spec and plans its pipeline: the bring-up of a cluster, or an operation on it (upgrade, add-node …)."""

from pathlib import Path

from workflows.app.run_options import Pipeline, Wish
from workflows.app.specs import operations, sources
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.spec import ClusterSpec


def _plan(_: Path, loaded: ClusterSpec, wish: Wish) -> Plan:
    return compile_plan(loaded, only=wish.only, until=wish.until, operation=operations.scoped(loaded, wish.operation))


BRINGUP = Pipeline("bringup", sources.read, _plan)
