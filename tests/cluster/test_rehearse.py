"""`bringup rehearse --kubeconfig` plays in a real API server that is there for it, and in no other."""

import json
from pathlib import Path
from subprocess import CompletedProcess

from kubelab import product
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster

from workflows.rehearsal.simulator.controllers.node_objects import SIMULATED


def rehearse(home: Path, kubeconfig: Path, *options: str) -> CompletedProcess[str]:
    return product.bringup(home, "rehearse", "h200-16", "--kubeconfig", str(kubeconfig), *options)


def test_a_rehearsal_brings_its_nodes_up_in_a_real_api_server(bare: ControlPlane, tmp_path: Path) -> None:
    """The whole pipeline is in test_rights.py, which looks at what it asked of the server."""
    before = bare.snapshot()
    done = rehearse(tmp_path, bare.kubeconfig, "--until", "rke2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(bare.kubectl("get", "nodes", "-o", "name").split()) == 19
    bare.restore(before)
    assert bare.kubectl("get", "nodes", "-o", "name") == ""


def test_where_logs_cannot_be_read_a_rehearsal_says_so_before_it_begins(bare: ControlPlane, tmp_path: Path) -> None:
    before = bare.kubectl("get", "nodes,namespaces", "-o", "name")
    done = rehearse(tmp_path, bare.kubeconfig, "--nodes-at", "127.0.0.3")
    assert done.returncode == 64, done.stdout + done.stderr
    assert "stage validation is judged by logs of pods" in done.stderr
    assert "--nodes-at" in done.stderr
    assert bare.kubectl("get", "nodes,namespaces", "-o", "name") == before


def test_a_cluster_with_nodes_of_its_own_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    nodes, namespaces = (cluster.plane.kubectl("get", kind, "-o", "name") for kind in ("nodes", "namespaces"))
    done = rehearse(tmp_path, cluster.plane.kubeconfig, "--until", "os_prep")
    assert done.returncode == 64, done.stdout + done.stderr
    assert "real nodes that are not lent for rehearsals" in done.stderr
    assert cluster.plane.kubectl("get", "nodes", "-o", "name") == nodes
    made = set(cluster.plane.kubectl("get", "namespaces", "-o", "name").split()) - set(namespaces.split())
    assert not made  # one of an earlier probe may have been on its way out


def test_a_node_that_only_has_a_name_of_the_spec_is_foreign_too(bare: ControlPlane, tmp_path: Path) -> None:
    """So are those of the platform that the same spec built. Its owner may lend it; what is simulated is another rehearsal's."""
    before = bare.snapshot()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu001", "labels": {}}}
    bare.kubectl("create", "-f", "-", stdin=json.dumps(node))
    refused = rehearse(tmp_path, bare.kubeconfig, "--until", "os_prep")
    assert (refused.returncode, "real nodes that are not lent for rehearsals: gpu001" in refused.stderr) == (64, True), (
        refused.stderr
    )
    bare.kubectl("label", "node", "gpu001", "bringup/rehearsal=allowed")
    assert rehearse(tmp_path, bare.kubeconfig, "--until", "os_prep").returncode == 0
    bare.restore(before)
    bare.kubectl("create", "-f", "-", stdin=json.dumps(node | {"metadata": {"name": "gpu001", "annotations": {SIMULATED: "true"}}}))
    refused = rehearse(tmp_path, bare.kubeconfig, "--until", "os_prep")
    assert (refused.returncode, "simulated nodes of another rehearsal" in refused.stderr) == (64, True), refused.stderr
    bare.restore(before)


def test_an_api_server_that_is_away_or_keeps_one_out_is_a_sentence(bare: ControlPlane, tmp_path: Path) -> None:
    document = json.loads(bare.kubeconfig.read_text())
    other = tmp_path / "other"
    document["users"][0]["user"]["token"] = "nobody's"
    other.write_text(json.dumps(document))
    refused = rehearse(tmp_path, other)
    assert (refused.returncode, "refuses to list nodes" in refused.stderr) == (64, True), refused.stderr
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    other.write_text(json.dumps(document))
    away = rehearse(tmp_path, other)
    assert (away.returncode, "does not answer" in away.stderr) == (75, True), away.stderr
