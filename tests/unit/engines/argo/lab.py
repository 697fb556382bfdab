"""A home cluster for the Argo engine's tests: an API server (emulated, or the one that BRINGUP_TEST_KUBECONFIG names), the CRDs of
Argo Workflows in it, a namespace of its own, and the stand-in for the controller.

A real server needs no controller but must serve nobody else. Whoever starts it serves pod logs, at each node's kubelet port, from
the folder BRINGUP_TEST_POD_LOGS."""

import dataclasses
import functools
import os
import select
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import urllib3
import yaml

from steps.clients.kube import kubeconfig
from steps.clients.kube.api import ApiError, Http
from steps.runtime.target import LEASE
from tests.argo_stand_in.controller import StandIn
from tests.argo_stand_in.pod_host import PodHost
from tests.argo_stand_in.workflow_run import Behaviour
from workflows.engines.argo.home import Home
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.argo.workflow_objects import API
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[5] / "shared")
CRDS = DATA / "crds/argo-workflows-v4.1.2/crds"
REAL = os.environ.get("BRINGUP_TEST_KUBECONFIG", "")
PLACE = PodHost(node="argo-stand-in", logs=Path(os.environ.get("BRINGUP_TEST_POD_LOGS", "/"))) if REAL else PodHost()
NODE_ADDRESS = "198.51.100.1"
"""Of the node on which pods are shown: nobody's (RFC 5737)."""
KINDS = {"workflows": "Workflow", "workflowtemplates": "WorkflowTemplate", "workflowtaskresults": "WorkflowTaskResult"}
MORE_KINDS = {"cronworkflows": "CronWorkflow", "workfloweventbindings": "WorkflowEventBinding"}
"""Kinds of Argo that only schedules and events need."""
PATIENCE = 60.0
"""Seconds for what takes three or four on an idle machine: steps are processes."""


def until(holds: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until a condition holds; what it gave."""
    idle, end = select.poll(), time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, f"{what} did not come to be within {seconds:.0f} s"
        idle.poll(20)
    return found


def minimal_crd(plural: str) -> dict[str, Any]:
    """Return a CRD like one of Argo's `minimal` manifests, whose schema only says that unknown fields are kept."""
    kind = (KINDS | MORE_KINDS)[plural]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"metadata": {"type": "object"}}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "argoproj.io", "scope": "Namespaced", "names": names, "versions": [version]}
    meta = {"name": f"{plural}.argoproj.io"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


@functools.cache
def full_crd(plural: str) -> dict[str, Any]:
    """The published CRD, which takes seconds to read: nobody may change what is returned."""
    found: dict[str, Any] = yaml.load((CRDS / f"argoproj.io_{plural}.yaml").read_bytes(), Loader=yaml.CSafeLoader)
    return found


@dataclasses.dataclass
class Lab:
    """One home cluster. `server` is None where it is a real one."""

    folder: Path
    server: RunningServer | None
    where: HomeAddress
    target: Path
    """Kubeconfig of the cluster that runs change: not the home cluster, where both are emulated."""
    built: RunningServer | None = None
    stand_ins: list[StandIn] = dataclasses.field(default_factory=list)

    @property
    def store(self) -> Path:
        """Return the folder that pods see as the run store."""
        return self.folder / "shared-store"

    @property
    def home(self) -> Home:
        """A client of its own."""
        return Home(self.where)

    def create(self, manifest: Mapping[str, Any]) -> None:
        self.home.ask(lambda kube: kube.create(dict(manifest)))

    def prepare(self, *, crd: Callable[[str], dict[str, Any]] | None = None, controller: str = "v4.1.2") -> None:
        """CRDs (minimal ones where the server is emulated), namespace, volume claim and the Deployment of a controller."""
        made = crd or (minimal_crd if self.server else full_crd)
        for plural in [plural for plural in KINDS if not self.served(plural)]:
            self.ensure(made(plural))
        until(lambda: all(self.served(plural) for plural in KINDS), "the CRDs of Argo Workflows")
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.where.namespace}})
        if self.server is None:
            self.ensure(self._named("v1", "ServiceAccount", "default"))
            self.ensure({"apiVersion": "v1", "kind": "Node", "metadata": {"name": PLACE.node}})
            address = {"type": "InternalIP", "address": NODE_ADDRESS}
            status = {"addresses": [address], "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}
            self.home.ask(lambda kube: kube.merge(f"/api/v1/nodes/{PLACE.node}/status", {"status": status}))
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        self.create(self._named("v1", "PersistentVolumeClaim", "bringup-store", spec=claim))
        if controller:
            self.deploy(f"quay.io/argoproj/workflow-controller:{controller}")

    def ensure(self, manifest: dict[str, Any]) -> None:
        """Create an object unless it is there."""
        try:
            self.create(manifest)
        except ApiError as error:
            if error.status != 409:
                raise

    def deploy(self, image: str) -> None:
        """A Deployment of a workflow-controller, without one that deploys it."""
        labels = {"app": "workflow-controller"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "workflow-controller", "image": image}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}
        self.create(self._named("apps/v1", "Deployment", "workflow-controller", spec=spec))

    def _named(self, version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
        meta = {"name": name, "namespace": self.where.namespace}
        return {"apiVersion": version, "kind": kind, "metadata": meta, **more}

    def served(self, plural: str) -> bool:
        """Return True if the API server serves a kind of Argo and lists it in its discovery."""
        try:
            found = msgspec.json.decode(self.home.fetch(f"/apis/{API}"))
            self.home.fetch(f"/apis/{API}/namespaces/default/{plural}", {"limit": "1"})
        except ApiError:
            return False
        return plural in [one["name"] for one in found["resources"]]

    def stand_in(self, **ways: Any) -> StandIn:
        """Start a stand-in for the controller."""
        started = StandIn(self.where, self.folder / "stand-in", self.store, Behaviour(backoff="0", place=PLACE, **ways)).start()
        self.stand_ins.append(started)
        return started

    def end_runs(self) -> None:
        while self.stand_ins:
            self.stand_ins.pop().stop()

    def close(self) -> None:
        """A run that was ended without its exit handler holds the target, which is everybody's where it is a real one."""
        self.end_runs()
        if self.server is None:
            self.home.ask(lambda kube: kube.delete(LEASE))
        for server in (self.server, self.built):
            if server is not None:
                server.stop()

    # --- trouble --------------------------------------------------------------------------------------------------------

    def disturb(self, **what: Any) -> None:
        """A disturbance of the emulated server."""
        self._emulation("PUT", "disturbance", msgspec.json.encode(what))

    def restart(self, *, tell: bool = True) -> Callable[[], None]:
        """Take the server down and up again with its state; its token is a new one, written into the kubeconfig at once or, with
        `tell` false, when the returned function is called."""
        assert self.server is not None
        port = int(self.server.url.rsplit(":", 1)[1])
        state = self._emulation("GET", "snapshot")
        self.server.stop()
        self.server = serve_in_thread(port)
        access = kubeconfig.Access(server=self.server.url, token=self.server.token)
        urllib3.PoolManager(1).request(
            "PUT", f"{access.server}/emulation/snapshot", body=state, headers={"Authorization": f"Bearer {access.token}"}
        )
        text = self.server.kubeconfig

        def write() -> None:
            Path(self.where.kubeconfig).write_text(text)

        if tell:
            write()
        return write

    def _emulation(self, method: str, what: str, body: bytes | None = None) -> bytes:
        return Http(self.home.access).request(method, f"/emulation/{what}", body=body)


def lab(folder: Path) -> Lab:
    """A lab below a folder."""
    namespace = f"bringup-{uuid.uuid4().hex[:6]}"
    if REAL:
        return Lab(folder, None, HomeAddress(kubeconfig=REAL, namespace=namespace), Path(REAL))
    server, built = serve_in_thread(), serve_in_thread()
    (folder / "kubeconfig").write_text(server.kubeconfig)
    (folder / "target").write_text(built.kubeconfig)
    return Lab(folder, server, HomeAddress(kubeconfig=str(folder / "kubeconfig"), namespace=namespace), folder / "target", built)
