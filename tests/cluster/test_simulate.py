"""Simulated nodes: the real kubectl looks at a simulated cluster, and they stand beside a real node under the real controllers."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3
from kubelab import box, node, parts, product
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster

from steps.contract.host_play import PlayHost, PlayRequest
from workflows import examples
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.simulated_cluster import write_fleet
from workflows.rehearsal.simulator.machines.kubelet_port import own_address
from workflows.rehearsal.simulator.world import load_roles
from workflows.spec import load

SIMULATED = ("gpu001", "gpu002", "gpu003", "gpu004")
TAINT = "bringup/simulated=true:NoSchedule"
LABELS = {"bringup/group": "gpu"}
TOLERATION = {"key": "bringup/simulated", "operator": "Exists"}
HEARTBEAT = 1.0
"""Seconds between two renewals; a real kubelet takes ten."""

GRACE = 20
"""Seconds without a renewal after which the node controller here gives a node up, in place of 50; the real kubelet needs ten."""

PATIENT = {"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "5"}
"""kube-controller-manager refuses a grace that is shorter than these two (30 and 15 unless told otherwise)."""

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture
def simulated(able: None, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a simulated cluster that is served for as long as the test."""
    written = tmp_path / "kubeconfig"
    command = [str(Path(sys.executable).with_name("bringup")), "simulate", "h200-16", "--kubeconfig-out", str(written)]
    process = subprocess.Popen(command, cwd=product.ROOT, env=os.environ | {"BRINGUP_HOME": str(tmp_path / "home")})
    while not written.exists() and process.poll() is None:
        select.select([], [], [], 0.05)
    yield written
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0


def test_kubectl_reads_and_writes(simulated: Path) -> None:
    """Go clients send no token over plain HTTP, and ask in ways of their own."""

    def kubectl(*arguments: str) -> str:
        command = [str(parts.programs()["kubectl"]), "--kubeconfig", str(simulated), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    box.until(lambda: len(kubectl("get", "nodes", "-o", "name").split()) == 19, "simulate")
    assert "Name:               gpu001" in kubectl("describe", "node", "gpu001")
    assert "kube-system" in kubectl("get", "pods", "--all-namespaces")
    assert "labeled" in kubectl("label", "node", "gpu001", "looked=at")
    assert kubectl("get", "nodes", "-l", "looked=at", "-o", "name").split() == ["node/gpu001"]


# ---- beside the real node ----------------------------------------------------------------------------------------------------


class Beside:
    """The simulator as kubelets of four GPU nodes of the real cluster, and since when they are Ready."""

    def __init__(self, plane: ControlPlane, process: "subprocess.Popen[bytes]") -> None:
        self.plane, self.process, self.since = plane, process, time.monotonic()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """All nodes by name, the real one too."""
        return {one["metadata"]["name"]: one for one in (self.plane.get("/api/v1/nodes") or {"items": []})["items"]}

    def ready(self, name: str) -> str:
        """Status of a node's condition Ready."""
        rows = self.nodes().get(name, {}).get("status", {}).get("conditions", ())
        return next((str(row["status"]) for row in rows if row["type"] == "Ready"), "")

    def taints(self, name: str) -> set[str]:
        """Keys and effects."""
        return {f"{row['key']}:{row['effect']}" for row in self.nodes()[name]["spec"].get("taints", ())}

    def renewed(self) -> dict[str, str]:
        """When each simulated node's lease was renewed last."""
        leases = (self.plane.get(LEASES) or {"items": []})["items"]
        return {one["metadata"]["name"]: one["spec"]["renewTime"] for one in leases if one["metadata"]["name"] in SIMULATED}

    def pods(self, label: str) -> list[dict[str, Any]]:
        """Pods of an app."""
        found = self.plane.get(f"/api/v1/pods?labelSelector=app%3D{label}") or {"items": []}
        return list(found["items"])

    def running(self, label: str) -> set[str]:
        """Nodes on which the pods of an app run."""
        return {one["spec"].get("nodeName", "") for one in self.pods(label) if one["status"].get("phase") == "Running"}


@contextmanager
def less_patience(plane: ControlPlane) -> Iterator[None]:
    """The real controller-manager as it runs, but for the grace that its node controller gives."""
    name = f"{plane.name}-manager"
    pid = (box.folder() / f"{name}.pid").read_text().strip()
    command = box.run("cat", f"/proc/{pid}/cmdline").stdout.rstrip("\0").split("\0")
    box.stop(name)
    box.start(name, [*command, f"--node-monitor-grace-period={GRACE}s", "--node-monitor-period=1s"], PATIENT)
    try:
        yield
    finally:
        box.stop(name)
        box.start(name, command)


def start_simulator(plane: ControlPlane, folder: Path) -> "subprocess.Popen[bytes]":
    """A simulator that is nothing but machines and their kubelets, in wall time; its nodes join as an agent's play brings them."""
    plan, control = compile_plan(load(examples.path("h200-16").read_text())), folder / "control.json"
    off = ",".join(role.name for role in load_roles() if role.name not in ("nodes", "kubelet"))
    options = {
        "--kubeconfig": plane.kubeconfig,
        "--hosts": write_fleet(folder, plan),
        "--control-out": control,
        "--roles-off": off,
        "--real-time": 1,
        "--delay-scale": 0.1,
        "--heartbeat": HEARTBEAT,
        "--kubelet-address": own_address(plane.server),
        "--with-parent": os.getpid(),
    }
    words = [str(word) for option in options.items() for word in option]
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "workflows.rehearsal.simulator", *words]
        process = subprocess.Popen(command, cwd=product.ROOT, stdout=log, stderr=log)
    box.until(lambda: control.exists() or process.poll() is not None, "simulator", log=folder / "log")
    where = json.loads(control.read_text())
    assert where["logs"] == "", "the API server reaches the simulated kubelets' port"
    hosts = [
        PlayHost(name=host.name, address=host.address, groups=("gpu", "agent")) for host in plan.hosts if host.name in SIMULATED
    ]
    given = {"rke2_node_taints": {"gpu": [TAINT]}, "rke2_node_labels": {"gpu": [f"{key}={value}" for key, value in LABELS.items()]}}
    request = PlayRequest(playbook="rke2_agent", hosts=tuple(hosts), variables=given)
    http = urllib3.PoolManager(1, headers={"Authorization": f"Bearer {where['token']}"})
    assert http.request("POST", f"{where['url']}/hosts/play", body=msgspec.json.encode(request)).status == 200
    http.clear()
    return process


def app(name: str, **spec: Any) -> dict[str, Any]:
    """A pod's metadata and spec; its container says where it runs, and ends at once when told to."""
    said = {"env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
    script = "echo on $NODE" + ("" if spec.get("restartPolicy") == "Never" else "; sleep 600")
    container = {"name": "main", "image": "localhost/shell:1", "imagePullPolicy": "Never", "command": ["sh", "-c", script], **said}
    meta = {"name": name, "labels": {"app": name}}
    return {"metadata": meta, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}}


def on_every_node(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A DaemonSet."""
    template = app(name, **spec)
    wanted = {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
    }
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": namespace}, "spec": wanted}


@pytest.fixture(scope="module")
def beside(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """Four simulated GPU nodes, Ready once the network plugin's DaemonSet is there, which tolerates everything as such do."""
    plane = cluster.plane
    network, plain = (
        on_every_node("rke2-canal", "kube-system", tolerations=[{"operator": "Exists"}]),
        on_every_node("plain", "default"),
    )
    with less_patience(plane):
        process = start_simulator(plane, tmp_path_factory.mktemp("beside"))
        found = Beside(plane, process)
        try:
            plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [network, plain]}))
            box.until(lambda: all(found.ready(name) == "True" for name in SIMULATED), f"{plane.name}-manager")
            found.since = time.monotonic()
            yield found
        finally:
            process.kill()
            process.wait()
            plane.kubectl("delete", "daemonsets/rke2-canal", "-n", "kube-system")
            plane.kubectl("delete", "daemonsets/plain")
            plane.kubectl("delete", "pods", "-A", "-l", "app in (rke2-canal, plain, real, check)", "--force", "--grace-period=0")
            plane.kubectl("delete", "nodes", *SIMULATED)


def test_they_are_tainted_and_real_pods_stay_on_the_real_node(beside: Beside) -> None:
    """The real scheduler and the real DaemonSet controller decide; the real kubelet runs the pod."""
    assert set(beside.nodes()) >= {node.NAME, *SIMULATED}
    box.until(lambda: all(beside.taints(name) == {"bringup/simulated:NoSchedule"} for name in SIMULATED), "main-manager")
    pod = {"apiVersion": "v1", "kind": "Pod", **app("real", restartPolicy="Never")}
    beside.plane.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    box.until(lambda: [one["status"].get("phase") for one in beside.pods("real")] == ["Succeeded"], "kubelet")
    assert beside.plane.kubectl("logs", "real") == f"on {node.NAME}\n"
    box.until(lambda: bool(beside.running("plain")), "kubelet")
    assert [one["spec"]["nodeName"] for one in beside.pods("plain")] == [node.NAME]


def test_a_pod_that_tolerates_them_is_run_by_the_simulator(beside: Beside) -> None:
    """Placed by the real scheduler; its log comes from the simulated kubelet's port, through the real API server."""
    pod = app("check", restartPolicy="Never", nodeSelector=LABELS, tolerations=[TOLERATION])
    pod["metadata"]["labels"]["bringup/check"] = "dns"
    beside.plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", **pod}))
    box.until(lambda: [one["status"].get("phase") for one in beside.pods("check")] == ["Succeeded"], "main-scheduler")
    (found,) = beside.pods("check")
    assert found["spec"]["nodeName"] in SIMULATED
    assert found["status"]["containerStatuses"][0]["imageID"] == "simulated://localhost/shell:1"
    assert f"'node': '{found['spec']['nodeName']}'" in beside.plane.kubectl("logs", "check")
    box.until(lambda: beside.running("rke2-canal") == {node.NAME, *SIMULATED}, "main-manager")


def test_their_leases_advance_and_the_real_node_controller_keeps_them(beside: Beside) -> None:
    """For longer than it would wait for a node whose lease does not move."""
    before = beside.renewed()
    assert set(before) == set(SIMULATED)
    box.until(lambda: all(beside.renewed()[name] > before[name] for name in SIMULATED), "main-manager")
    box.until(lambda: time.monotonic() - beside.since > GRACE + 2, "main-manager")
    assert {name: (beside.ready(name), beside.taints(name)) for name in SIMULATED} == {
        name: ("True", {"bringup/simulated:NoSchedule"}) for name in SIMULATED
    }
    owners = {one["metadata"]["ownerReferences"][0]["kind"] for one in (beside.plane.get(LEASES) or {})["items"]}
    assert owners == {"Node"}, "so they go with their nodes"


def test_killed_with_9_it_renews_no_more(beside: Beside) -> None:
    """No node outlives who plays it: nothing but that process kept them."""
    beside.process.kill()
    beside.process.wait()
    done = time.monotonic() + HEARTBEAT  # a renewal that it had sent by then may still come
    box.until(lambda: time.monotonic() > done, "main-manager")
    last, end = beside.renewed(), time.monotonic() + 3 * HEARTBEAT
    box.until(lambda: time.monotonic() > end, "main-manager")
    assert beside.renewed() == last


@pytest.mark.long
def test_then_the_real_node_controller_gives_them_up(beside: Beside) -> None:
    """Half a minute of waiting."""
    beside.process.kill()  # again, where the test before is left out
    beside.process.wait()
    unreachable = "node.kubernetes.io/unreachable:NoSchedule"
    box.until(lambda: all(unreachable in beside.taints(name) for name in SIMULATED), "main-manager", seconds=3.0 * GRACE)
    assert [beside.ready(name) for name in SIMULATED] == ["Unknown"] * len(SIMULATED)
    assert beside.ready(node.NAME) == "True"
