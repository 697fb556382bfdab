"""Restarts by a sync: changed values and pod templates of two states. Takes 1 s of CPU."""

from typing import Any

import pytest

from tests.unit.gitops_check.test_cases import COMPONENTS, tree
from workflows.gitops_check import delivery_check

SUNK = {"with": ["sunk"]}
VALUES = "values/slurm.yaml"
NODE_SET = """apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata: {name: gpu}
spec:
  replicas: 4
  slurmd: {image: registry.lab.test/slurmd:1}
"""
LOGIN = """apiVersion: apps/v1
kind: StatefulSet
metadata: {name: slurm-login}
spec:
  updateStrategy: {type: RollingUpdate}
  template:
    spec:
      containers: [{name: sshd, image: registry.lab.test/login:1}]
"""


def impact(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, bool]]:
    states = [delivery_check.sort_state(tree(case), (), COMPONENTS) for case in (before, after)]
    result = delivery_check.check(states[1], COMPONENTS, states[0])
    assert result.restarts is not None
    return [(entry.pods, entry.jobs.partition(";")[0].partition(",")[0], entry.ends_jobs) for entry in result.restarts]


@pytest.mark.parametrize(
    ("old", "new", "pods", "jobs", "ends"),
    [
        ("gresGpu: h200:8", "gresGpu: h200:4", "slurmd pods of NodeSet gpu, 10% at a time", "running jobs on its nodes end", True),
        ("replicas: 16", "replicas: 12", "4 of 16 pods of NodeSet gpu", "jobs on the nodes that are removed end", True),
        ("type: LoadBalancer", "type: NodePort", "login pods", "no job", False),
        ("controller:\n", "controller:\n  resources: {}\n", "slurmctld", "no job", False),
        ("clusterName: lab", "clusterName: lab2", "slurmctld and slurmdbd", "no job", False),
        ("moco: {enabled: true}", "moco: {enabled: true}\nmunge: {resources: {}}", "all pods of the chart", "running jobs", True),
    ],
)
def test_a_changed_value_restarts_its_pods(old: str, new: str, pods: str, jobs: str, ends: bool) -> None:
    [(restarted, effect, ends_jobs)] = impact(SUNK, {**SUNK, "replace": {VALUES: {old: new}}})
    assert restarted.startswith(pods)
    assert effect.startswith(jobs)
    assert ends_jobs is ends


def test_login_pods_that_a_person_deletes_keep_their_sessions() -> None:
    after = {**SUNK, "replace": {VALUES: {"type: LoadBalancer": "type: NodePort"}}}
    states = [delivery_check.sort_state(tree(case), (), COMPONENTS) for case in (SUNK, after)]
    [restart] = delivery_check.check(states[1], COMPONENTS, states[0]).restarts or ()
    assert "when a person deletes the pods (OnDelete)" in restart.jobs
    rolling = {**after, "replace": {VALUES: {"type: LoadBalancer": "type: NodePort", "OnDelete": "RollingUpdate"}}}
    states[1] = delivery_check.sort_state(tree(rolling), (), COMPONENTS)
    [restart] = delivery_check.check(states[1], COMPONENTS, states[0]).restarts or ()
    assert "sessions of everyone who is logged in end" in restart.jobs


@pytest.mark.parametrize(
    ("old", "new"),
    [("replicas: 16", "replicas: 20"), ("maxUnavailable: 10%", "maxUnavailable: 20%"), ("lab\n", "lab  # a comment\n")],
)
def test_what_replaces_no_pod_restarts_nothing(old: str, new: str) -> None:
    assert impact(SUNK, {**SUNK, "replace": {VALUES: {old: new}}}) == []


def test_another_version_of_a_chart_restarts_all_of_it() -> None:
    after = {**SUNK, "replace": {"apps/slurm.yaml": {"targetRevision: 7.3.0": "targetRevision: 7.4.0"}}}
    assert impact(SUNK, after) == [
        ("all pods of the chart, slurmd included", "running jobs on its nodes end when their pods are replaced", True)
    ]


def test_changed_pod_templates_of_manifests() -> None:
    before = {"with": ["web"], "files": {"web/nodes.yaml": NODE_SET, "web/login.yaml": LOGIN}}
    files = {
        "web/nodes.yaml": NODE_SET.replace("slurmd:1", "slurmd:2").replace("4", "3"),
        "web/login.yaml": LOGIN.replace("login:1", "login:2"),
    }
    ends = "running jobs on its nodes end when their pods are replaced"
    assert impact(before, {**before, "files": files}) == [
        ("StatefulSet slurm-login", "no job", False),
        ("1 of 4 pods of NodeSet gpu", "jobs on the nodes that are removed end", True),
        ("NodeSet gpu", ends, True),
    ]
    assert impact(before, before) == []
    removed = ("NodeSet gpu", "jobs on the nodes that are removed end", True)
    assert impact(before, {"with": ["web"], "files": {"web/login.yaml": LOGIN}}) == [removed]
