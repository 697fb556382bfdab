"""Rendered steps as real pods: the step image on the real node, and a stand-in for what Argo does between a template and its pod.

The stand-in walks the rendered DAGs in their order, fills in parameters, and makes one plain pod of each container template. It
leaves out Argo's own containers and their account. In Argo's place, the first output file of a template is the pod's termination
message, so the kubelet itself hands it out; `BRINGUP_SIMULATOR` is set, so that steps meet a simulated target.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubelab import box, product
from kubelab.control_plane import ControlPlane
from kubelab.node import Node

from steps.clients.kube import Kube

Object = dict[str, Any]
Approve = Callable[[str], Mapping[str, str]]
"""Given the stage before which an approval waits, its answer."""

STEP_SECONDS = 120.0
"""A step of a rehearsal takes seconds; on a busy machine a pod's start takes as long."""
RENEWAL_SECONDS = 5.0
"""Between two renewals of a Lease; a kubelet waits 10 s, and after 40 s or more without one its node is tainted."""
_REFERENCE = re.compile(r"\{\{([^}]+)\}\}")


def load_image(node: Node, home: Path) -> str:
    """Build the step image as a user does and give it to a node; its digest. Layers are cached by their content."""
    out = node.folder / "step.tar"
    done = product.bringup(home, "image", "step", "build", "--out", str(out), "-o", "json")
    assert done.returncode == 0, done.stderr
    node.load(out)
    return str(json.loads(done.stdout)["digest"])


def render(folder: Path, spec: str) -> Path:
    """What `bringup render` writes for a spec."""
    (folder / "cluster.yaml").write_text(spec)
    done = product.bringup(folder / "home", "render", str(folder / "cluster.yaml"), "--out", str(folder / "made"))
    assert done.returncode == 0, done.stderr
    return folder / "made"


def apply_rendered(plane: ControlPlane, rendered: Path) -> None:
    """Accounts and ConfigMaps, as `bringup install` lays them down; each spec has the accounts of its own verbs."""
    for name in ("rbac", "configmaps"):
        plane.kubectl("apply", "--server-side", "-f", str(rendered / f"{name}.yaml"))


def volume(store: Path) -> list[Object]:
    """The claim that the pods mount as their run store, and the folder of this machine behind it."""
    size, claim = {"storage": "1Gi"}, {"name": "bringup-store", "namespace": "bringup"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    backing = {**common, "capacity": size, "hostPath": {"path": str(store), "type": "Directory"}, "claimRef": claim}
    wanted = {**common, "resources": {"requests": size}, "volumeName": "bringup-store"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "bringup-store"}, "spec": backing},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim, "spec": wanted},
    ]


def large_node(name: str) -> Object:
    """A large, free and Ready node, with the label that every node of a bring-up has."""
    amounts = {"cpu": "200", "memory": "2Ti", "pods": "200"}
    ready = {"type": "Ready", "status": "True", "reason": "simulated", "message": "", "lastHeartbeatTime": "2099-01-01T00:00:00Z"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    meta = {"name": name, "labels": {"bringup/group": "gpu", "kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


@contextmanager
def kept_alive(plane: ControlPlane, node: str) -> Iterator[None]:
    """Renew the Lease of a node without a kubelet while the context lasts: it stays Ready, and the scheduler may choose it."""
    ending, kube = threading.Event(), Kube.from_file(plane.kubeconfig)
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": _now()}
    meta = {"name": node, "namespace": "kube-node-lease"}
    kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})

    def renew() -> None:
        while not ending.wait(RENEWAL_SECONDS):
            kube.merge(path, {"spec": {"renewTime": _now()}})

    thread = threading.Thread(target=renew, name=f"lease-{node}")
    thread.start()
    try:
        box.until(lambda: may_take_pods(plane, node), f"{plane.name}-manager")
        yield
    finally:
        ending.set()
        thread.join()
        kube.delete(path)


def may_take_pods(plane: ControlPlane, node: str) -> bool:
    """Whether a node is Ready and nothing keeps pods away from it. What nobody renewed is never Ready again by itself."""
    found = plane.get(f"/api/v1/nodes/{node}") or {"spec": {}, "status": {}}
    ready = [row["status"] for row in found["status"].get("conditions", ()) if row["type"] == "Ready"]
    return ready == ["True"] and not found["spec"].get("taints") and not found["spec"].get("unschedulable")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())


@dataclass(frozen=True)
class Ended:
    """How one pod ended. `runtime` is what containerd ran, as an OCI runtime specification."""

    template: str
    verb: str
    exit_code: int
    message: str
    log: str
    pod: Object
    runtime: Object


@dataclass
class Pods:
    """Makes pods of one rendered WorkflowTemplate, in the namespace that it names, one after another."""

    plane: ControlPlane
    node: Node
    template: Object
    run: str
    environment: Mapping[str, str] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)

    def play(self, approve: Approve) -> None:
        """Run the pipeline and its exit handler; what fails stops the pipeline, as with Argo."""
        spec = self.template["spec"]
        went_well = self._dag(spec["entrypoint"], {}, approve)
        self._dag(spec["onExit"], {"workflow.status": "Succeeded" if went_well else "Failed"}, approve)

    def pod(self, name: str, known: Mapping[str, str], *command: str) -> Object:
        """The pod of a container template, with its parameters filled in; `command` replaces what it runs."""
        spec, one = self.template["spec"], self._named(name)
        container = json.loads(self._filled(json.dumps(one["container"]), known)) | {"name": "main"}
        container["env"] += [{"name": key, "value": value} for key, value in self.environment.items()]
        if command:
            container |= {"command": list(command), "args": []}
        elif "outputs" in one:
            container["terminationMessagePath"] = one["outputs"]["parameters"][0]["valueFrom"]["path"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        pod_level = ("securityContext", "automountServiceAccountToken", "affinity", "nodeSelector", "tolerations")
        body = {key: spec[key] for key in pod_level if key in spec}
        body["volumes"] = [volume for volume in spec["volumes"] if volume["name"] in mounted]  # as Argo does
        body |= {"serviceAccountName": one["serviceAccountName"], "activeDeadlineSeconds": one["activeDeadlineSeconds"]}
        meta = {"generateName": f"{self.run}-{name}-", "namespace": self.template["metadata"]["namespace"]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": body | {"restartPolicy": "Never", "containers": [container]},
        }

    def start(self, name: str, known: Mapping[str, str], *command: str) -> Ended:
        """Run one pod to its end."""
        body = self.pod(name, known, *command)
        space = body["metadata"]["namespace"]
        made = self.plane.post(f"/api/v1/namespaces/{space}/pods", body)["metadata"]["name"]
        found: list[Object] = []

        def over() -> bool:
            found[:] = [self.plane.get(f"/api/v1/namespaces/{space}/pods/{made}") or {"status": {}}]
            return found[0]["status"].get("phase") in ("Succeeded", "Failed")

        try:
            box.until(over, "kubelet", STEP_SECONDS)
        except box.DidNotStart as error:
            raise AssertionError(f"{made} did not end: {json.dumps(found[0]['status'])}") from error
        (status,) = found[0]["status"]["containerStatuses"]
        state = status["state"]["terminated"]
        log = self.plane.kubectl("-n", space, "logs", made)
        runtime = self.node.runtime(status["containerID"].removeprefix("containerd://"))
        verb = self._named(name)["container"]["args"][0]
        return Ended(name, verb, state["exitCode"], state.get("message", ""), log, found[0], runtime)

    def placed_without(self, part: str, name: str, known: Mapping[str, str]) -> str:
        """The node that the scheduler chooses for the same pod without one part of its spec; the pod is gone afterwards."""
        body = self.pod(name, known, "true")
        del body["spec"][part]
        space = body["metadata"]["namespace"]
        made = self.plane.post(f"/api/v1/namespaces/{space}/pods", body)["metadata"]["name"]
        chosen = ""

        def bound() -> bool:
            nonlocal chosen
            found = self.plane.get(f"/api/v1/namespaces/{space}/pods/{made}") or {"spec": {}}
            chosen = found["spec"].get("nodeName", "")
            return bool(chosen)

        try:
            box.until(bound, f"{self.plane.name}-scheduler")
        finally:
            self.plane.kubectl("-n", space, "delete", f"pod/{made}", "--grace-period=0", "--force")
        return chosen

    def _dag(self, name: str, known: dict[str, str], approve: Approve) -> bool:
        """Whether all went well; a task whose pod failed is the last one."""
        scope = dict(known)
        for task in self._named(name)["dag"]["tasks"]:
            given = {row["name"]: row["value"] for row in task.get("arguments", {}).get("parameters", ())}
            for item in self._items(task, scope):
                inputs = {f"inputs.parameters.{key}": self._filled(value, scope | item) for key, value in given.items()}
                if not self._task(task, known | inputs, scope, approve):
                    return False
        return True

    def _items(self, task: Object, scope: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """One for each shard of a task that is fanned out, else one without."""
        if "withParam" not in task:
            yield {}
            return
        yield from ({"item": str(item)} for item in json.loads(self._filled(task["withParam"], scope)))

    def _task(self, task: Object, known: dict[str, str], scope: dict[str, str], approve: Approve) -> bool:
        one, outputs = self._named(task["template"]), f"tasks.{task['name']}.outputs.parameters."
        if "dag" in one:
            return self._dag(one["name"], known, approve)
        if "suspend" in one:
            answer = approve(one["name"].removeprefix("approve-"))
            scope.update({outputs + key: value for key, value in answer.items()})
            return True
        ended = self.start(one["name"], known)
        self.ended.append(ended)
        # of several outputs the message is the first: all shards are the shards of agents too, and those without skip themselves
        scope.update({outputs + row["name"]: ended.message for row in one.get("outputs", {}).get("parameters", ())})
        return ended.exit_code == 0

    def _named(self, name: str) -> Object:
        found: Object = next(one for one in self.template["spec"]["templates"] if one["name"] == name)
        return found

    def _filled(self, text: str, known: Mapping[str, str]) -> str:
        given = self.template["spec"].get("arguments", {}).get("parameters", ())
        fixed = {"workflow.name": self.run, "workflow.namespace": self.template["metadata"]["namespace"]}
        fixed |= {f"workflow.parameters.{row['name']}": row["value"] for row in given}
        return _REFERENCE.sub(lambda found: json.dumps({**fixed, **known}[found[1]])[1:-1], text)
