"""Measure speed and memory of the emulated API server: `python tests/bench/apiserver.py` prints value, limit, PASS or SHORT.

The server runs as its own process, the client here: 5,000 nodes for time, then 1,000 nodes with 12,000 pods for memory.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
import yaml

ROOT = Path(__file__).parents[2]
LIST_LIMIT_S = 0.5
WRITES_LIMIT = 200.0
MEMORY_LIMIT_MIB = 500.0
WRITES = 1000


class Server:
    """The server process and a connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self.process = process
        self._url = config["clusters"][0]["cluster"]["server"]
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self._pool = urllib3.PoolManager()

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> bytes:
        data = None if body is None else json.dumps(body).encode()
        answer = self._pool.request(method, self._url + path, body=data, headers=self._headers | {"Content-Type": content})
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.data[:300]!r}")
        return answer.data

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def served() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kubeconfig"
        command = [sys.executable, "-m", "workflows.rehearsal.apiserver", "--kubeconfig-out", str(file)]
        process = subprocess.Popen(command, cwd=ROOT)
        while not file.exists():
            if process.poll() is not None:
                raise RuntimeError("the server did not start")
            time.sleep(0.02)
        try:
            yield Server(process, file)
        finally:
            process.terminate()
            process.wait()


def node(number: int) -> dict[str, Any]:
    """A GPU node of about 6 kB, with the labels and images that one has after all operators ran."""
    name = f"gpu-{number:04d}"
    labels = {f"nvidia.com/gpu.label-{index}": "some-value" for index in range(30)}
    labels |= {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"su-{number // 32:03d}"}
    amounts = {"cpu": "224", "memory": "2113Gi", "pods": "110", "nvidia.com/gpu": "8", "rdma/rdma_shared_device_a": "63"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    times = {"lastHeartbeatTime": "2026-11-21T09:00:00Z", "lastTransitionTime": "2026-11-21T08:00:00Z"}
    conditions = [
        {"type": kind, "status": "True", "reason": "KubeletReady", "message": "kubelet is posting", **times} for kind in kinds
    ]
    images = [{"names": [f"nvcr.io/nvidia/thing{index}@sha256:{'ab' * 32}"], "sizeBytes": 123456789} for index in range(20)]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"providerID": f"sim://{name}"}, "status": status}


def pod(number: int, of_nodes: int) -> dict[str, Any]:
    """A DaemonSet pod of about 3 kB."""
    mounts = [{"name": f"v{index}", "mountPath": f"/mnt/{index}"} for index in range(4)]
    volumes = [{"name": f"v{index}", "hostPath": {"path": f"/run/nvidia/{index}"}} for index in range(4)]
    env = [{"name": f"VARIABLE_{index}", "value": "some value"} for index in range(8)]
    container = {"name": "main", "image": "nvcr.io/nvidia/driver:580.82.07", "env": env, "volumeMounts": mounts}
    spec = {"nodeName": f"gpu-{number % of_nodes:04d}", "containers": [container], "volumes": volumes}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "d",
        "uid": "0d5c1f4e-1111-4222-8333-444455556666",
        "controller": True,
    }
    meta = {"name": f"pod-{number:05d}", "labels": {"app": f"app-{number // of_nodes}"}, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": spec}


def report(what: str, value: float, unit: str, limit: float, good: bool) -> bool:
    print(f"{what:<52} {value:9.2f} {unit:<9} limit {limit:g}  {'PASS' if good else 'SHORT'}", flush=True)
    return good


def speed(nodes: int) -> Iterator[bool]:
    with served() as server:
        start = time.perf_counter()
        for number in range(nodes):
            server.call("POST", "/api/v1/nodes", node(number))
        rate = nodes / (time.perf_counter() - start)
        yield report(f"create {nodes} nodes", rate, "writes/s", WRITES_LIMIT, rate >= WRITES_LIMIT)
        took = []
        for _ in range(5):
            start = time.perf_counter()
            size = len(server.call("GET", "/api/v1/nodes"))
            took.append(time.perf_counter() - start)
        middle = sorted(took)[2]
        yield report(f"LIST {nodes} nodes, {size / 1e6:.0f} MB, median of 5", middle, "s", LIST_LIMIT_S, middle <= LIST_LIMIT_S)
        content = "application/strategic-merge-patch+json"
        start = time.perf_counter()
        for number in range(WRITES):
            label = {"metadata": {"labels": {"bench": f"n{number}"}}}
            server.call("PATCH", f"/api/v1/nodes/gpu-{number % nodes:04d}", label, content)
        rate = WRITES / (time.perf_counter() - start)
        yield report("strategic label PATCH of nodes", rate, "writes/s", WRITES_LIMIT, rate >= WRITES_LIMIT)


def memory(nodes: int, pods: int) -> Iterator[bool]:
    with served() as server:
        for number in range(nodes):
            server.call("POST", "/api/v1/nodes", node(number))
        for number in range(pods):
            path = "/api/v1/namespaces/default/pods"
            server.call("POST", path, pod(number, nodes))
            server.call(
                "PATCH", f"{path}/pod-{number:05d}/status", {"status": {"phase": "Running"}}, "application/merge-patch+json"
            )
        server.call("GET", "/api/v1/pods")
        used = server.memory_mib()
        yield report(f"memory with {nodes} nodes and {pods} pods", used, "MiB", MEMORY_LIMIT_MIB, used <= MEMORY_LIMIT_MIB)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=12_000, help="on 1,000 nodes, for the memory figure")
    arguments = parser.parse_args()
    results = [*speed(arguments.nodes), *memory(1000, arguments.pods)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
