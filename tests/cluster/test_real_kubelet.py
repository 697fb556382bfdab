"""A real kubelet takes what the role rke2 makes of a spec, and gate rke2/nodes judges its real Node.

What RKE2 itself would do is done here: it hands `kubelet-arg`, `node-label` and `node-taint` of config.yaml to the kubelet, and its
own folder of drop-ins. The gate is asked for this kubelet's own version, which no RKE2 has, and once for the plan's.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from kubelab import box, node, parts, product
from kubelab.lab import Cluster

from steps.clients.kube.client import Kube
from steps.contract.verdict import FailureClass, NodeVerdict, Status
from steps.stages.rke2 import gate, probe
from steps.stages.rke2.contract import NodesExpectation
from steps.stages.shared.kube_reader import Scope
from workflows import spec
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan

SETTLED_SECONDS, LOST_SECONDS = 40.0, 120.0
"""A node must have been Ready for ten; the node controller gives one up after fifty."""
RELEASE = "v1.35.7+rke2r1"
SPEC: dict[str, Any] = {
    "apiVersion": "bringup/v1",
    "kind": "Cluster",
    "name": "one-node",
    "owner": "tests@example.org",
    "revision": "1",
    "hosts": {
        "control": {"role": "server", "ranges": "sv1", "addresses": {"start": "10.77.0.1"}},
        "nodes": {
            "role": "agent",
            "ranges": node.NAME,
            "addresses": {"start": "10.77.0.2"},
            "labels": {"site/rack": "r1"},
            "taints": ["site/batch=only:NoSchedule"],
        },
    },
    "rke2": {
        "version": RELEASE,
        "cni": ["flannel"],  # its pods are not looked for
        "kubelet_args": {"topology-manager-policy": "restricted", "max-pods": "70"},
        "kubelet_config": {"topologyManagerScope": "pod", "maxPods": 77, "containerLogMaxSize": "20Mi"},
    },
}
PLAY = """
- hosts: played
  gather_facts: false
  vars: {rke2_kind: agent}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: see, public: true}
    - ansible.builtin.copy: {dest: "{{ said }}", content: "{{ {'config': rke2_whole_config, 'files': rke2_files} | to_json }}"}
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Compile the plan of a spec with one agent, the real node."""
    return compile_plan(spec.load(json.dumps(SPEC) + "\n"), until="rke2")


@pytest.fixture(scope="module")
def flags(plan: Plan, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write the kubelet's drop-ins as the role does, and return the flags that RKE2 would give the kubelet."""
    written = _written(_arguments(plan, "agents")["variables"], tmp_path_factory.mktemp("role"))
    folder = cluster.node.folder / "kubelet.conf.d"
    folder.mkdir()
    for file in written["files"]:
        if Path(file["path"]).parent.name == folder.name and not file["absent"]:
            (folder / Path(file["path"]).name).write_text(file["content"])
    config = written["config"]
    lists = {"node-labels": config["node-label"], "register-with-taints": config["node-taint"]}
    return [
        *(f"--{argument}" for argument in config["kubelet-arg"]),
        *(f"--{flag}={','.join(said)}" for flag, said in lists.items()),
        f"--config-dir={folder}",
    ]


@pytest.fixture
def kubelet(cluster: Cluster) -> Iterator[node.Node]:
    """The real node; after the test it is registered as it was before."""
    yield cluster.node
    cluster.node.register()


def test_a_real_kubelet_is_as_the_role_says_and_the_gate_reads_its_node(
    cluster: Cluster, kubelet: node.Node, plan: Plan, flags: list[str]
) -> None:
    kubelet.restart_kubelet(*flags)
    box.until(lambda: _configz(cluster)["topologyManagerPolicy"] == "restricted", "kubelet")
    running = _configz(cluster)
    assert (running["topologyManagerScope"], running["containerLogMaxSize"]) == ("pod", "20Mi"), "the drop-in"
    assert running["maxPods"] == 70, "a flag wins over the drop-in"

    # a kubelet that starts again may call its node not ready for a moment
    seen = "no taint site/batch=only:NoSchedule"
    row = box.seen(lambda: _row(cluster, plan), lambda row: row.seen == seen, "gate", SETTLED_SECONDS)
    assert row.status is Status.FAIL, row
    assert "RKE2 gives taints at registration only" in row.next_step

    kubelet.register(*flags)
    row = _until(cluster, plan, Status.PASS, SETTLED_SECONDS)
    assert row.seen == f"Ready, {parts.KUBERNETES}, {box.ADDRESS}"
    labels = (cluster.plane.get(f"/api/v1/nodes/{node.NAME}") or {})["metadata"]["labels"]
    assert (labels["site/rack"], labels["bringup/group"]) == ("r1", "nodes")
    other = _row(cluster, plan, RELEASE)
    assert (other.failure_class, other.expected) == (FailureClass.COMPARISON, RELEASE)
    assert other.seen == f"kubelet version {parts.KUBERNETES!r}, which is no RKE2 version"


@pytest.mark.long
def test_a_node_whose_kubelet_is_gone_is_named(cluster: Cluster, kubelet: node.Node, plan: Plan, flags: list[str]) -> None:
    kubelet.register(*flags)
    _until(cluster, plan, Status.PASS, SETTLED_SECONDS)
    box.stop("kubelet", "KILL")
    row = _until(cluster, plan, Status.INCONCLUSIVE, LOST_SECONDS)
    assert (row.failure_class, row.seen) == (
        FailureClass.HEALTH,
        "Ready is Unknown: NodeStatusUnknown Kubelet stopped posting node status.",
    )


def _written(variables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the files and settings that the role would write on the node, as Ansible evaluates them."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "bringup_address": box.ADDRESS}
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": {node.NAME: {"bringup_groups": ["nodes", "agent"]}}}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))
    (folder / "play.yml").write_text(PLAY)
    said = folder / "said"
    command = [Path(sys.executable).with_name("ansible-playbook"), folder / "play.yml", "--inventory", folder / "hosts.json"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(product.ROOT / "playbooks/ansible.cfg"), "ANSIBLE_HOME": str(folder)}
    told = json.dumps(variables | {"said": str(said)})
    subprocess.run([*command, "--extra-vars", told], env=environment, check=True, capture_output=True)
    return dict(yaml.safe_load(said.read_text()))


def _arguments(plan: Plan, name: str) -> dict[str, Any]:
    return dict(next(task.arguments for task in plan.tasks if (task.stage, task.name) == ("rke2", name)))


def _configz(cluster: Cluster) -> dict[str, Any]:
    """The configuration that the kubelet runs with, as it says itself; without anything while it starts."""
    said = cluster.plane.get(f"/api/v1/nodes/{node.NAME}/proxy/configz") or {"kubeletconfig": {"topologyManagerPolicy": ""}}
    return dict(said["kubeletconfig"])


def _row(cluster: Cluster, plan: Plan, version: str = parts.KUBERNETES) -> NodeVerdict:
    """Judge the node by the plan's expectations and return its row of the verdict."""
    task = next(task for task in plan.tasks if (task.stage, task.name) == ("rke2", "nodes"))
    want = msgspec.convert(task.expectations | {"version": version, "nodes": (node.NAME,)}, NodesExpectation)
    scope = Scope(nodes=(node.NAME,), arguments=task.arguments, now=time.time())
    (row,) = gate.nodes(probe.nodes(Kube.from_file(cluster.plane.kubeconfig), scope), want).nodes
    return row


def _until(cluster: Cluster, plan: Plan, status: Status, seconds: float) -> NodeVerdict:
    """The gate's verdict once it has this status."""
    return box.seen(lambda: _row(cluster, plan), lambda row: row.status is status, "gate", seconds)
