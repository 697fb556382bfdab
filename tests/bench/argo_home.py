"""A home cluster for measuring: a real API server with etcd, one account for the person, and what it counts of their requests."""

import re
import ssl
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from actors import kubelet_port
from actors.argo_home import NODE, SPACE, account, kubeconfig, prepare
from kubelab.control_plane import ControlPlane
from real_server import serving

from steps.clients.kube.api import Http
from tests.argo_stand_in.errands import Errands
from tests.argo_stand_in.pod_host import PodHost
from tests.argo_stand_in.workflow_run import Behaviour
from workflows.engines.argo.home import Home
from workflows.engines.argo.home_address import HomeAddress

PERSON = "person"


class Measured:
    """The API server, and what the person's account asked of it since the last look."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.admin = Home(HomeAddress(kubeconfig=str(plane.kubeconfig), namespace=SPACE))
        self.kubeconfig = folder / "person"
        self.store = folder / "store"
        self._seen = 0

    def calls(self) -> Counter[str]:
        """Requests of the person since the last call of this, as the audit log has them: `verb resource`."""
        rows = {row["auditID"]: row for row in self.plane.audited() if row["user"]["username"].endswith(f":{PERSON}")}
        fresh = list(rows.values())[self._seen :]
        self._seen = len(rows)
        return Counter(_said(row) for row in fresh)

    def watched(self) -> tuple[int, int]:
        """Events of Workflows sent to watchers so far, and their bytes, by the API server's own metrics."""
        request = urllib.request.Request(self.plane.server + "/metrics", headers={"Authorization": f"Bearer {self.plane.token}"})
        with urllib.request.urlopen(request, timeout=30, context=ssl._create_unverified_context()) as answer:
            text = answer.read().decode()
        found = re.findall(r'apiserver_watch_events_sizes_(count|sum)\{[^}]*resource="workflows"[^}]*\} (\S+)', text)
        sums = {kind: sum(float(value) for which, value in found if which == kind) for kind in ("count", "sum")}
        return int(sums["count"]), int(sums["sum"])


def _said(row: dict[str, Any]) -> str:
    asked = row.get("objectRef") or {}
    resource = "/".join(part for part in (asked.get("resource", ""), asked.get("subresource", "")) if part)
    return f"{row['verb']} {resource or row['requestURI'].partition('?')[0]}"


@contextmanager
def measured(folder: Path) -> Iterator[Measured]:
    """While the context lasts."""
    with serving() as plane:
        made = Measured(plane, folder)
        _prepare(made)
        with kubelet_port.serving(folder / "kubelet") as logs, _errands(made, folder, logs):
            made.calls()
            yield made


def _prepare(made: Measured) -> None:
    plane = made.plane
    prepare(plane)
    account(plane, PERSON)
    plane.kubectl("create", "clusterrolebinding", PERSON, "--clusterrole=cluster-admin", f"--serviceaccount={SPACE}:{PERSON}")
    token = plane.kubectl("-n", SPACE, "create", "token", PERSON, "--duration=4h").strip()
    kubeconfig(plane, made.kubeconfig, {"token": token})


@contextmanager
def _errands(made: Measured, folder: Path, logs: Path) -> Iterator[None]:
    """Short pods that read the store run as processes, and go away when they are deleted."""
    place, over = PodHost(node=NODE, logs=logs), threading.Event()
    runner = Errands(made.admin.where, folder / "errands", made.store, Behaviour(place=place))

    def serve() -> None:
        home = Home(made.admin.where)
        while not over.wait(0.2):
            for pod in msgspec.json.decode(home.fetch(home.core("pods")))["items"]:
                if "deletionTimestamp" in pod["metadata"]:
                    place.remove(home, pod)
                else:
                    runner.take(pod)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        runner.end()


def create(home: Home, manifest: dict[str, Any]) -> dict[str, Any]:
    """Create an object, and return it as it is there."""
    made: dict[str, Any] = home.ask(lambda kube: kube.create(manifest))
    return made


def put(home: Home, found: dict[str, Any], status: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Write a Workflow's status as the controller does, by an update of the whole object; the object, and the bytes sent."""
    meta = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    body = msgspec.json.encode({**found, "metadata": meta, "status": status})
    path = home.workflows(meta["name"])
    made: dict[str, Any] = msgspec.json.decode(Http(home.access).request("PUT", path, body=body))
    return made, len(body)
