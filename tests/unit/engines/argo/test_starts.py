"""Schedules and event bindings with Argo's published CRDs: installed, kept suspended, and removed with their section."""

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from steps.clients.kube.client import Kube
from tests.unit import warm_commands
from tests.unit.engines.argo.lab import Lab, full_crd, until
from workflows import bringup, examples
from workflows.app.specs.manifests import rendered
from workflows.engines.argo import installer, schedules
from workflows.plan.compiler import compile_plan
from workflows.render import from_git
from workflows.render.steps import Settings
from workflows.spec import load

TEXT = examples.path("three-hosts").read_text()
SCHEDULE = 'schedule: {cron: "0 2 * * 6", timezone: Europe/Berlin}\n'
EVENTS = "events: [{name: merged, selector: 'discriminator == \"x\"'}]\n"
Installs = Callable[..., None]


@pytest.fixture
def home(cluster: Lab) -> Lab:
    """With the full CRDs of the two kinds, so that a field that they lack is refused."""
    for plural in schedules.KINDS:
        if not cluster.served(plural):
            cluster.ensure(full_crd(plural))
    until(lambda: all(cluster.served(plural) for plural in schedules.KINDS), "schedules and events")
    return cluster


@pytest.fixture
def put(home: Lab) -> Installs:
    """Installs the spec with these sections."""

    def once(sections: str, **narrow: Any) -> None:
        plan = dataclasses.replace(compile_plan(load(TEXT + sections), **narrow), secrets=())
        bundle = rendered(plan, bringup.build, Settings(namespace=home.where.namespace))
        installer.install(home.home, plan, bundle, {})

    return once


def found(home: Lab, path: str) -> Mapping[str, Any] | None:
    def once(kube: Kube) -> dict[str, Any] | None:
        return kube.get(path, dict[str, Any])

    return home.home.ask(once)


def cron(home: Lab) -> Mapping[str, Any] | None:
    return found(home, f"/apis/argoproj.io/v1alpha1/namespaces/{home.where.namespace}/cronworkflows/bringup-three-hosts")


def binding(home: Lab) -> Mapping[str, Any] | None:
    name = "bringup-three-hosts.merged"
    return found(home, f"/apis/argoproj.io/v1alpha1/namespaces/{home.where.namespace}/workfloweventbindings/{name}")


def account(home: Lab) -> Mapping[str, Any] | None:
    return found(home, home.home.core("serviceaccounts", "bringup-events-three-hosts"))


def command(home: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    where = ("--home-kubeconfig", home.where.kubeconfig, "--namespace", home.where.namespace)
    environment = {**os.environ, "BRINGUP_HOME": str(home.folder / "runs")}
    return warm_commands.run(["schedule", *words, *where], environment, home.folder)


def test_they_come_and_go_with_their_sections(home: Lab, put: Installs) -> None:
    put("")
    assert (cron(home), binding(home), account(home)) == (None, None, None)
    put(SCHEDULE + EVENTS)
    assert cron(home)
    assert binding(home)
    assert account(home)
    put("", only=("os_prep",))  # a narrowed plan leaves them alone
    assert cron(home)
    put(SCHEDULE)
    assert cron(home)
    assert (binding(home), account(home)) == (None, None)
    put(EVENTS)
    assert (cron(home), bool(binding(home)), bool(account(home))) == (None, True, True)


def test_a_schedule_that_was_suspended_stays_so_until_it_is_resumed(home: Lab, put: Installs) -> None:
    put(SCHEDULE)
    assert command(home, "suspend", "three-hosts").stdout.startswith("the schedule of three-hosts is suspended")
    assert "was already suspended" in command(home, "suspend", "three-hosts").stdout
    assert json.loads(command(home, "show", "three-hosts", "-o", "json").stdout) == {
        "cluster": "three-hosts",
        "pipeline": "bringup",
        "namespace": home.where.namespace,
        "schedule": "0 2 * * 6 Europe/Berlin",
        "suspended": "yes",
        "last_started": "never",
        "going_on": "none",
        "problems": "none",
    }
    put(SCHEDULE.replace("Berlin", "Oslo"))
    there = cron(home)
    assert there
    assert (there["spec"]["timezone"], there["spec"]["suspend"]) == ("Europe/Oslo", True)
    assert "is not suspended" in command(home, "resume", "three-hosts").stdout
    put(SCHEDULE.replace("}", ", suspend: true}"))
    there = cron(home)
    assert there
    assert there["spec"]["suspend"] is True
    assert command(home, "resume", "three-hosts").returncode == 0
    status = {
        "lastScheduledTime": "2026-11-21T01:00:00Z",
        "active": [{"name": "bringup-three-hosts-1", "kind": "Workflow"}],
        "conditions": [{"type": "SubmissionError", "status": "True", "message": "no template"}],
    }
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{home.where.namespace}/cronworkflows/bringup-three-hosts"
    home.home.ask(lambda kube: kube.merge(path, {"status": status}))  # as the controller does
    shown = command(home, "show", "three-hosts").stdout
    assert [line.split(maxsplit=1)[0] for line in shown.splitlines()[1:]] == ["schedule", "suspended", "last", "going", "problems"]
    for said in ("suspended     no", "2026-11-21T01:00:00Z", "bringup-three-hosts-1", "SubmissionError: no template"):
        assert said in shown
    put(SCHEDULE.replace("}", ", suspend: true}"))  # the spec says it again, and nobody else owns the field
    put(SCHEDULE)
    there = cron(home)
    assert there
    assert "suspend" not in there["spec"]


def test_a_cluster_without_a_schedule_is_refused_with_a_hint(home: Lab) -> None:
    for word in ("suspend", "show"):
        done = command(home, word, "three-hosts")
        assert done.returncode == 64
        assert "has no schedule of three-hosts" in done.stderr
        assert "bringup run --engine argo" in done.stderr


def image_cron(home: Lab, name: str) -> None:
    """The schedule of a node image, as somebody put it there."""
    refers = {"workflowTemplateRef": {"name": "image-0123456789ab"}}
    spec = {"schedules": ["0 3 * * *"], "timezone": "UTC", "workflowSpec": refers}
    meta = {"name": f"image-{name}", "namespace": home.where.namespace}
    home.create({"apiVersion": "argoproj.io/v1alpha1", "kind": "CronWorkflow", "metadata": meta, "spec": spec})


def test_a_cluster_that_drops_its_schedule_leaves_the_account_of_an_image_of_its_name(home: Lab, put: Installs) -> None:
    put(SCHEDULE)
    own = from_git.account_name("three-hosts")
    home.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": own, "namespace": home.where.namespace}})
    put("")
    assert cron(home) is None
    assert found(home, home.home.core("serviceaccounts", own)) is not None


def test_the_schedule_of_an_image_is_found_by_its_name(home: Lab, put: Installs) -> None:
    image_cron(home, "lab-nodes")
    told = json.loads(command(home, "show", "lab-nodes", "-o", "json").stdout)
    assert (told["pipeline"], told["schedule"], told["suspended"]) == ("image", "0 3 * * * UTC", "no")
    assert "the schedule of lab-nodes is suspended" in command(home, "suspend", "lab-nodes").stdout
    assert "suspended     yes" in command(home, "show", "lab-nodes").stdout
    assert "the schedule of lab-nodes is not suspended" in command(home, "resume", "lab-nodes").stdout


def test_which_of_two_schedules_is_meant_is_asked(home: Lab, put: Installs) -> None:
    put(SCHEDULE)
    image_cron(home, "three-hosts")
    both = command(home, "suspend", "three-hosts")
    assert both.returncode == 64
    assert "there are schedules of bringup and image with the name three-hosts" in both.stderr
    assert "--pipeline" in both.stderr
    assert command(home, "suspend", "three-hosts", "--pipeline", "image").returncode == 0
    assert '"suspended": "no"' in command(home, "show", "three-hosts", "--pipeline", "bringup", "-o", "json").stdout
    odd = command(home, "show", "three-hosts", "--pipeline", "factory")
    assert (odd.returncode, "has no schedules; use bringup or image or stack" in odd.stderr) == (64, True)
