"""Old plans in home: what nothing refers to any more is removed with its keys, everything else stays."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engines.argo.lab import Lab, full_crd, until
from workflows import bringup, examples
from workflows.cli.main import run
from workflows.engines.argo import installer, submission
from workflows.plan.compiler import compile_plan
from workflows.render.bundle import render
from workflows.render.steps import Settings
from workflows.spec import load

DIGITS = "abcdef"
"""Plans by the only digit of their digests; f is the newest, since all are made in the same second or nearly."""
IMAGES = "bringup-public-"
"""Name prefix of objects that only plans of images have."""
Names = dict[str, set[str]]


@pytest.fixture
def home(cluster: Lab) -> Lab:
    for plural in ("cronworkflows", "workfloweventbindings"):
        if not cluster.served(plural):
            cluster.ensure(full_crd(plural))
    until(lambda: cluster.served("cronworkflows") and cluster.served("workfloweventbindings"), "schedules and events")
    return cluster


@pytest.fixture
def installed(home: Lab) -> Callable[[], Names]:
    """Six plans of one cluster are installed; which of them have what in home."""
    plan = compile_plan(load(examples.path("three-hosts")))
    for digit in DIGITS:
        one = dataclasses.replace(plan, digest="sha256:" + digit * 64)
        bundle = dataclasses.replace(render(one, bringup.build, Settings(namespace=home.where.namespace)), starts=None)
        installer.install(home.home, one, bundle, {"id_ed25519": b"key"})
        if digit == "a":
            submission.submit(home.home, submission.workflow("ended", one, bundle))
    place = f"/apis/argoproj.io/v1alpha1/namespaces/{home.where.namespace}"

    def there() -> Names:
        def names(path: str, prefix: str) -> set[str]:
            rows = home.home.ask(lambda kube: kube.list(path, dict[str, Any])) or ()
            return {row["metadata"]["name"][-1] for row in rows if row["metadata"]["name"].startswith(prefix)}

        kinds = {prefix: names(home.home.core(kind), prefix) for kind, prefix in installer.OF_A_PLAN if prefix != IMAGES}
        return kinds | {"template": names(f"{place}/workflowtemplates", "bringup-")}

    return there


def starter(home: Lab, kind: str, spec: dict[str, Any]) -> None:
    meta = {"name": "by-hand", "namespace": home.where.namespace}
    home.create({"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec})


def test_what_something_refers_to_stays(home: Lab, installed: Callable[[], Names]) -> None:
    refers = {"workflowTemplateRef": {"name": "bringup-three-hosts-" + "b" * 12}}
    starter(home, "CronWorkflow", {"schedules": ["0 2 * * 6"], "workflowSpec": refers})
    refers = {"workflowTemplateRef": {"name": "bringup-three-hosts-" + "c" * 12}}
    starter(home, "WorkflowEventBinding", {"event": {"selector": "true"}, "submit": refers})
    assert installer.remove(home.home, datetime.now(UTC)) == []
    assert set(map(frozenset, installed().values())) == {frozenset(DIGITS)}
    removed = installer.remove(home.home, datetime.now(UTC) + timedelta(days=2))
    assert sorted(removed) == ["bringup-three-hosts-" + digit * 12 for digit in "de"]
    assert set(map(frozenset, installed().values())) == {frozenset("abcf")}
    assert installer.remove(home.home, datetime.now(UTC) + timedelta(days=2)) == []


def test_secrets_of_others_stay(home: Lab, installed: Callable[[], Names]) -> None:
    meta = {"name": "bringup-secrets-of-somebody", "namespace": home.where.namespace}
    home.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    installer.remove(home.home, datetime.now(UTC) + timedelta(days=2))
    assert installed()["bringup-secrets-"] == {"a", "f", "y"}


def test_the_command(home: Lab, installed: Callable[[], Names], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--home-kubeconfig", home.where.kubeconfig, "--namespace", home.where.namespace)
    assert run(["sweep", "--plans", *place]) == 0
    assert "has no old plan that nothing refers to" in capsys.readouterr().out
    assert run(["sweep", "one", "--plans", *place]) == 64
    assert "leave out one" in capsys.readouterr().err
