"""Fixtures of the Argo engine's tests: a home cluster with a stand-in controller, and a small pipeline with real steps."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract.runs import approval
from steps.contract.task import Task, Verb
from tests.unit.chained_pipeline import build
from tests.unit.engines.argo.lab import REAL, Lab, lab
from workflows import examples
from workflows.engines.folders import StateFolder as Runs
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle, render
from workflows.render.steps import Settings
from workflows.spec import load
from workflows.stages.host_access import SecretFile
from workflows.stages.stage import WEBHOOK, Approval, Change, Stage, Step, When


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Lab]:
    """A prepared home cluster; no stand-in runs yet."""
    made = lab(tmp_path)
    try:
        made.prepare()
        yield made
    finally:
        made.close()


@pytest.fixture
def emulated(cluster: Lab) -> Lab:
    """An emulated home cluster whose API server the test may disturb; `tests/cluster/test_argo_engine.py` disturbs a real one."""
    if REAL:
        pytest.skip("disturbs the emulated API server")
    return cluster


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """The folder of this machine's runs."""
    return Runs(tmp_path / "runs")


def drill_stage(name: str, namespace: str, approvers: dict[str, tuple[str, ...]] | None = None, announced: str = "") -> Stage:
    """A stage that applies two ConfigMaps and judges itself."""
    objects = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{one}", "namespace": namespace}, "data": {"x": "y"}}
        for one in ("first", "second")
    ]
    apply = Task(stage=name, name="apply", verb=Verb.APPLY, arguments={"objects": objects})
    checks = {"checks": [{"task": "apply", "gate": f"{name}/apply"}], "needed": 1, "members": "all"}
    judge = Task(stage=name, name="judge", verb=Verb.JUDGE, arguments=checks)
    return Stage(
        id=name,
        title=name.title(),
        steps=(Step(task=apply), Step(task=judge, after=("apply",), when=When.ANYHOW)),
        gates=(),
        changes=(Change(what="two ConfigMaps", where=namespace),),
        rollback="delete them",
        approval=None if approvers is None else Approval(approvers=approvers, timeout_seconds=600, announced=announced),
    )


@pytest.fixture
def drill() -> Callable[..., tuple[Plan, Bundle]]:
    """Makes a plan of two drill stages, the second behind an approval, with its bundle for a namespace of home.

    `webhook` is a file that holds the URL to which the approval is announced.
    """

    def make(
        namespace: str, target: Path, approvers: dict[str, tuple[str, ...]] | None = None, webhook: Path | None = None
    ) -> tuple[Plan, Bundle]:
        announced = WEBHOOK if webhook else ""
        stages = (drill_stage("drill", "default"), drill_stage("parade", "default", approvers or {}, announced))
        plan = compile_plan(load(examples.path("three-hosts")))
        confirm = Task(
            stage="parade", name="confirm", verb=Verb.CONFIRM, arguments={"approved": "drill", "approvers": approvers or {}}
        )
        secrets = [SecretFile(name="kubeconfig", path=str(target))]
        telling = {}
        if webhook:
            file = approval.webhook_file("parade")
            secrets.append(SecretFile(name=file, path=str(webhook)))
            arguments = {"cluster": "three-hosts", "approvers": ["ada"], "webhook": file, "approved": "drill"}
            telling["parade"] = Task(stage="parade", name=approval.ANNOUNCE, verb=Verb.ANNOUNCE, arguments=arguments)
        told = {name: value for name, value in plan.open_task.arguments.items() if name != "ssh"}  # nothing plays on hosts
        opens = msgspec.structs.replace(plan.open_task, arguments=told)
        plan = dataclasses.replace(
            plan,
            stages=stages,
            secrets=tuple(secrets),
            releases=(),
            confirm_tasks={"parade": confirm},
            announce_tasks=telling,
            open_task=opens,
        )
        return plan, render(plan, build, Settings(namespace=namespace))

    return make


@pytest.fixture
def said() -> list[Any]:
    """A list in which a test collects sentences."""
    return []
