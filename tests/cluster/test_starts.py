"""A real cluster starts and runs real pods, which reach the API by its service address; its objects can be set back."""

import json
import time

from kubelab import box, node
from kubelab.lab import Cluster

ASK = (
    'wget -q -O - --no-check-certificate --header "Authorization: Bearer $(cat $A/token)" '
    "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
)


def pod(name: str, script: str) -> str:
    environment = [{"name": "A", "value": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    image = {"image": "localhost/shell:1", "imagePullPolicy": "Never"}
    container = {"name": "main", **image, "command": ["sh", "-c", script], "env": environment}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def finished(cluster: Cluster, name: str) -> bool:
    found = cluster.plane.get(f"/api/v1/namespaces/default/pods/{name}") or {}
    return found.get("status", {}).get("phase") in ("Succeeded", "Failed")


def test_everything_is_ready(cluster: Cluster) -> None:
    print(f"ready after {cluster.seconds:.1f} s")
    assert "v1.34.4" in cluster.plane.kubectl("version")
    assert f"node/{node.NAME}" in cluster.plane.kubectl("get", "nodes", "-o", "name").split()


def test_a_real_pod_asks_the_api_at_its_service_address_and_is_audited(cluster: Cluster) -> None:
    grant = ["create", "rolebinding", "asking", "--clusterrole=view", "--serviceaccount=default:default"]
    cluster.plane.kubectl(*grant)
    cluster.plane.kubectl("create", "-f", "-", stdin=pod("asking", ASK))
    box.until(lambda: finished(cluster, "asking"), "kubelet")
    assert json.loads(cluster.plane.kubectl("logs", "asking"))["metadata"]["name"] == "kube-root-ca.crt"
    (row,) = [row for row in cluster.plane.audited() if row["user"]["username"] == "system:serviceaccount:default:default"]
    assert (row["verb"], row["objectRef"]["resource"], row["responseStatus"]["code"]) == ("get", "configmaps", 200)


def test_a_failing_pod_leaves_its_exit_code_and_message(cluster: Cluster) -> None:
    cluster.plane.kubectl("create", "-f", "-", stdin=pod("failing", "echo because >/dev/termination-log; exit 65"))
    box.until(lambda: finished(cluster, "failing"), "kubelet")
    found = cluster.plane.get("/api/v1/namespaces/default/pods/failing")
    assert found is not None
    (state,) = found["status"]["containerStatuses"]
    assert (state["state"]["terminated"]["exitCode"], state["state"]["terminated"]["message"]) == (65, "because\n")


def test_a_restarted_api_server_has_lost_nothing(cluster: Cluster) -> None:
    cluster.plane.kubectl("create", "configmap", "kept", "--from-literal=a=1")
    began = time.monotonic()
    cluster.plane.restart_api()
    print(f"serves again after {time.monotonic() - began:.1f} s")
    assert cluster.plane.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "1"
    cluster.plane.kubectl("create", "-f", "-", stdin=pod("after", "true"))
    box.until(lambda: finished(cluster, "after"), "kubelet")


def test_objects_can_be_set_back_under_a_running_server(cluster: Cluster) -> None:
    plane = cluster.bare()
    plane.start()
    try:
        plane.kubectl("create", "configmap", "one", "--from-literal=a=1")
        before = plane.snapshot()
        plane.kubectl("patch", "configmap", "one", "-p", '{"data":{"a":"2"}}')
        plane.kubectl("create", "configmap", "two")
        began = time.monotonic()
        plane.restore(before)
        print(f"set back in {time.monotonic() - began:.2f} s")
        assert plane.kubectl("get", "configmap", "-o", "name").split() == ["configmap/one"]
        assert plane.kubectl("get", "configmap", "one", "-o", "jsonpath={.data.a}") == "1"
    finally:
        plane.remove()
