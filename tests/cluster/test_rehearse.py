"""`bringup rehearse --kubeconfig` plays in a real API server that is there for it, and in no other."""

from pathlib import Path
from subprocess import CompletedProcess

from kubelab import product
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster


def rehearse(home: Path, kubeconfig: Path, *options: str) -> CompletedProcess[str]:
    return product.bringup(home, "rehearse", "h200-16", "--kubeconfig", str(kubeconfig), *options)


def test_a_rehearsal_brings_its_nodes_up_in_a_real_api_server(bare: ControlPlane, tmp_path: Path) -> None:
    before = bare.snapshot()
    done = rehearse(tmp_path, bare.kubeconfig, "--until", "rke2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(bare.kubectl("get", "nodes", "-o", "name").split()) == 19
    bare.restore(before)
    assert bare.kubectl("get", "nodes", "-o", "name") == ""


def test_a_cluster_with_nodes_of_its_own_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.plane.kubectl("get", "nodes,namespaces", "-o", "name")
    done = rehearse(tmp_path, cluster.plane.kubeconfig, "--until", "os_prep")
    assert done.returncode == 64, done.stdout + done.stderr
    assert "nodes of its own" in done.stderr
    assert cluster.plane.kubectl("get", "nodes,namespaces", "-o", "name") == before
