"""Errand pods on the real kubelet: a run on Argo is cancelled, swept and pulled from the command line, by pods of the step image.

Its Workflow is really submitted; nobody is there who drives it, so its first step is a pod made by hand, and the test writes the
phases that Argo would write. The namespace takes restricted pods alone.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from actors.argo_home import CRDS, Machine
from actors.pod_home import load_image, volume
from actors.step_pods import Pods
from kubelab import custom_kinds
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster

from steps.contract.run_records import cancellation_key
from workflows import examples
from workflows.engines.argo import helper_pods
from workflows.engines.argo import home as argo

pytestmark = pytest.mark.sampled("parts of a real cluster")

USER = 8737
SPACE = "bringup"
ARGO = f"/apis/argoproj.io/v1alpha1/namespaces/{SPACE}"
WRITES = ("python", "-c", "open('/bringup/store/by-a-reader', 'w')")


class Home(NamedTuple):
    """A cluster that takes runs, the folder behind their store, and somebody's machine."""

    cluster: Cluster
    store: Path
    machine: Machine

    @property
    def plane(self) -> ControlPlane:
        return self.cluster.plane

    def workflow(self, run: str) -> dict[str, Any]:
        found = self.plane.get(f"{ARGO}/workflows/{run}")
        assert found is not None
        return found

    def phase(self, run: str, phase: str) -> None:
        """Set the phase of a run's Workflow, as Argo's controller would."""
        patch = json.dumps({"metadata": {"labels": {"workflows.argoproj.io/phase": phase}}, "status": {"phase": phase}})
        self.plane.kubectl("-n", SPACE, "patch", "workflow", run, "--type=merge", "-p", patch)

    def kept(self, run: str) -> dict[str, bytes]:
        """Return path and content of a run's files in home's store, without its secrets."""
        top = self.store / "runs" / run
        files = [path for path in top.rglob("*") if path.is_file() and "secrets" not in path.relative_to(top).parts]
        return {str(path.relative_to(self.store)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def home(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Made with the lines that the README tells an admin."""
    folder, plane = tmp_path_factory.mktemp("errands"), cluster.plane
    load_image(cluster.node, folder / "image")
    store = cluster.node.folder / "errands"
    store.mkdir(mode=0o700)
    os.chown(store, USER, USER)
    custom_kinds.install(plane, CRDS)
    plane.kubectl("create", "namespace", SPACE)
    plane.kubectl("label", "namespace", SPACE, "pod-security.kubernetes.io/enforce=restricted")
    listed = {"apiVersion": "v1", "kind": "List", "items": volume(store)}
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))
    (folder / "cluster.yaml").write_text(examples.path("single-node").read_text())
    for name in ("id_ed25519", "known_hosts"):
        (folder / name).write_text("nobody is asked\n")
    yield Home(cluster, store, Machine(folder / "machine", plane.kubeconfig, folder))
    plane.kubectl("delete", f"namespace/{SPACE}", "pv/bringup-store", "--timeout=90s")


@pytest.fixture(scope="module")
def run(home: Home) -> str:
    """A run that was submitted and whose first step has run, by the pod that Argo would have made."""
    done = home.machine.call("run", "cluster.yaml", "--engine", "argo", "--no-wait", "--argo-version", "4.1.2")
    assert done.returncode == 0, done.stdout + done.stderr
    listed = home.plane.get(f"{ARGO}/workflows")
    assert listed is not None
    (one,) = listed["items"]
    name: str = one["metadata"]["name"]
    template = home.plane.get(f"{ARGO}/workflowtemplates/{one['spec']['workflowTemplateRef']['name']}")
    assert template is not None
    opened = Pods(home.plane, home.cluster.node, template, name).start("run-open", {})
    assert opened.exit_code == 0, opened.log
    home.phase(name, "Running")
    return name


def test_a_run_is_cancelled_swept_and_pulled(home: Home, run: str) -> None:
    done = home.machine.call("cancel", run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert home.workflow(run)["spec"]["shutdown"] == "Stop"
    assert cancellation_key(run) in home.kept(run)
    home.phase(run, "Failed")
    done = home.machine.call("sweep", run)
    assert done.returncode == 0, done.stdout + done.stderr
    there = home.kept(run)
    assert json.loads(there[f"runs/{run}/seal.json"])["status"] == "Failed"
    other = Machine(home.machine.folder / "other", home.machine.kubeconfig, home.machine.specs)
    done = other.call("pull", run, "--engine", "argo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path: (other.folder / "store" / path).read_bytes() for path in there} == there


def test_errands_leave_nothing_and_were_nobody_special(home: Home, run: str) -> None:
    there = home.plane.get(f"/api/v1/namespaces/{SPACE}/pods") or {"items": []}
    assert [one["metadata"]["name"] for one in there["items"] if "bringup/errand" in one["metadata"].get("labels", {})] == []
    assert {path.stat().st_uid for path in (home.store / "runs" / run).rglob("*")} == {USER}


def test_a_reader_cannot_write(home: Home, run: str) -> None:
    """The claim itself is mounted for reading."""
    there = argo.Home(argo.HomeAddress(kubeconfig=str(home.plane.kubeconfig), namespace=SPACE))
    with pytest.raises(helper_pods.HelperPodFailed, match="Read-only file system"):
        helper_pods.run(there, there.workflow(run), helper_pods.HelperPod(purpose="read", command=WRITES, environment={}))
    assert not (home.store / "by-a-reader").exists()
