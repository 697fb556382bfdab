"""Preparation of a cluster with a real node for steps that run as pods: image, accounts, store, and a second node to choose."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubelab import box, product
from kubelab.control_plane import ControlPlane
from kubelab.node import Node

from steps.clients.kube.client import Kube

Object = dict[str, Any]

RENEWAL_SECONDS = 5.0
"""Between two renewals of a Lease; a kubelet waits 10 s, and after 40 s or more without one its node is tainted."""


def load_image(node: Node, home: Path, *more: str) -> str:
    """Build the step image as a user does and give it to a node; its digest. Layers are cached by their content. `more` are words
    of the command: `--builder` for the builder image."""
    out = node.folder / "step.tar"
    done = product.bringup(home, "image", "step", "build", "--out", str(out), "-o", "json", *more)
    assert done.returncode == 0, done.stderr
    node.load(out)
    return str(json.loads(done.stdout)["digest"])


def render(folder: Path, spec: str) -> Path:
    """Run `bringup render` on a spec and return the folder of the rendered files."""
    (folder / "cluster.yaml").write_text(spec)
    done = product.bringup(folder / "home", "render", str(folder / "cluster.yaml"), "--out", str(folder / "made"))
    assert done.returncode == 0, done.stderr
    return folder / "made"


def apply_rendered(plane: ControlPlane, rendered: Path) -> None:
    """Accounts and ConfigMaps, as `bringup install` lays them down; each spec has the accounts of its own verbs."""
    for name in ("rbac", "configmaps"):
        plane.kubectl("apply", "--server-side", "-f", str(rendered / f"{name}.yaml"))


def template(rendered: Path) -> Object:
    """The WorkflowTemplate of what was rendered."""
    found: Object = yaml.safe_load((rendered / "workflowtemplate.yaml").read_text())
    return found


def apply(plane: ControlPlane, *objects: Object) -> None:
    """Several objects at once."""
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def secrets(template: Object, other: str, **known: str) -> list[Object]:
    """The Secrets that the pods of a template mount. `known` is what some files hold, `other` what all others do."""
    volumes = [row for row in template["spec"]["volumes"] if "projected" in row]
    sources = [source["secret"] for volume in volumes for source in volume["projected"]["sources"]]
    held: dict[str, dict[str, str]] = {}
    for name, item in ((source["name"], item) for source in sources for item in source["items"]):
        held.setdefault(name, {})[item["key"]] = known.get(item["path"], other)
    meta = {"apiVersion": "v1", "kind": "Secret"}
    return [{**meta, "metadata": {"name": name, "namespace": "bringup"}, "stringData": content} for name, content in held.items()]


def volume(store: Path, space: str = "bringup") -> list[Object]:
    """The claim that the pods of a namespace mount as their run store, and the folder of this machine behind it."""
    size, claim, name = {"storage": "1Gi"}, {"name": "bringup-store", "namespace": space}, f"{space}-store"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    backing = {**common, "capacity": size, "hostPath": {"path": str(store), "type": "Directory"}, "claimRef": claim}
    wanted = {**common, "resources": {"requests": size}, "volumeName": name}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": backing},
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
    """Return True if a node is Ready, schedulable and without taints. A Lease that nobody renewed leaves it NotReady for good."""
    found = plane.get(f"/api/v1/nodes/{node}") or {"spec": {}, "status": {}}
    ready = [row["status"] for row in found["status"].get("conditions", ()) if row["type"] == "Ready"]
    return ready == ["True"] and not found["spec"].get("taints") and not found["spec"].get("unschedulable")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
