"""kill -9 of the engine at every journal record of a rendered pipeline: same evidence, and the target counts each change once."""

import dataclasses
import itertools
import multiprocessing
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3

from steps.clients.kube import kubeconfig
from steps.clients.store import Store
from steps.contract.task import Task, Verb
from tests.unit.chained_pipeline import build
from workflows import examples
from workflows.engines import launch, run_inputs
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.result import News, RecordNews
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import render
from workflows.spec import load
from workflows.stages.host_access import KUBECONFIG, SecretFile
from workflows.stages.stage import Change, Stage, Step, When

NAMES = ("first", "second", "third")


def drill(prefix: str) -> Plan:
    """A plan with one stage that applies three ConfigMaps and judges itself."""
    objects = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{prefix}-{name}", "namespace": "default"},
            "data": {"x": "y"},
        }
        for name in NAMES
    ]
    apply = Task(stage="drill", name="apply", verb=Verb.APPLY, arguments={"objects": objects})
    arguments = {"checks": [{"task": "apply", "gate": "drill/apply"}], "needed": 1, "members": "all"}
    judge = Task(stage="drill", name="judge", verb=Verb.JUDGE, arguments=arguments)
    stage = Stage(
        id="drill",
        title="Drill",
        steps=(Step(task=apply), Step(task=judge, after=("apply",), when=When.ANYHOW)),
        gates=(),
        changes=(Change(what="three ConfigMaps", where="default"),),
        rollback="delete them",
    )
    plan = compile_plan(load(examples.path("three-hosts")))
    told = {name: value for name, value in plan.open_task.arguments.items() if name != "ssh"}  # a drill has no hosts to ask
    opening = msgspec.structs.replace(plan.open_task, arguments=told)
    access = SecretFile(name=KUBECONFIG, path=KUBECONFIG)
    return dataclasses.replace(plan, stages=(stage,), secrets=(access,), releases=(), open_task=opening, confirm_tasks={})


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an emulated API server in a process of its own."""
    written = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "workflows.rehearsal.apiserver", "--kubeconfig-out", str(written)]
    with subprocess.Popen(command) as process:
        while not written.exists() and process.poll() is None:
            select.select([], [], [], 0.02)
        yield written
        process.terminate()


def prepared(root: Path, plan: Plan, access: Path) -> RunFolder:
    folder = StateFolder(root).run("drill")
    run_inputs.write(folder, plan, render(plan, build), access.parent, {})
    return folder


def evidence(folder: RunFolder) -> dict[str, Any]:
    """Return verb, shard and verdict status of each task, which must have exactly one final record."""
    store = Store(folder.home.store)
    found = {}
    for stage, task in (("run", "open"), ("drill", "apply"), ("drill", "judge")):
        (record,) = store.records("drill", stage, task)
        found[task] = (record.verb, record.shard, record.verdict.status if record.verdict else None)
    return found


class Watched:
    """The target's own event log of ConfigMaps since this was made."""

    def __init__(self, access: Path) -> None:
        self._access = kubeconfig.load(access)
        self._since = str(msgspec.json.decode(self._get(""))["metadata"]["resourceVersion"])

    def changes(self) -> Counter[str]:
        """Return how often each ConfigMap was created or changed."""
        lines = self._get(f"?watch=true&resourceVersion={self._since}&timeoutSeconds=1").splitlines()
        events = [msgspec.json.decode(line) for line in lines if line.strip()]
        assert all(event["type"] in ("ADDED", "MODIFIED", "BOOKMARK") for event in events), events
        return Counter(event["object"]["metadata"]["name"] for event in events if event["type"] != "BOOKMARK")

    def _get(self, query: str) -> bytes:
        url = f"{self._access.server}/api/v1/namespaces/default/configmaps{query}"
        return urllib3.request("GET", url, headers={"Authorization": f"Bearer {self._access.token}"}, retries=False).data


def killed_at(folder: RunFolder, number: int) -> None:
    """Run until so many of the journal's records are durable, then die on the spot."""
    seen = itertools.count(1)

    def observe(news: News) -> None:
        if isinstance(news, RecordNews) and next(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    launch.start(folder, {}, observe)


def test_killed_at_every_record_the_evidence_is_the_same_and_the_target_counts_each_change_once(
    tmp_path: Path, access: Path
) -> None:
    log = Watched(access)
    whole = prepared(tmp_path / "whole", drill("whole"), access)
    result = launch.start(whole, {}, None)
    assert result.exit_code == 0, result.message
    expected, prefixes = evidence(whole), ["whole"]

    context = multiprocessing.get_context("fork")
    for number in itertools.count(1):  # until a run ends by itself: no two runs need to have equally many records
        prefixes.append(f"at-{number}")
        folder = prepared(tmp_path / prefixes[-1], drill(prefixes[-1]), access)
        child = context.Process(target=killed_at, args=(folder, number))
        child.start()
        child.join()
        assert child.exitcode in (-signal.SIGKILL, 0), number
        resumed = launch.resume(folder, None)
        assert resumed.exit_code == 0, (number, resumed.message)
        assert evidence(folder) == expected, number
        if child.exitcode == 0:
            break

    assert number > 10
    assert log.changes() == Counter({f"{prefix}-{name}": 1 for prefix in prefixes for name in NAMES})
