"""One real node: containerd and kubelet from Debian and Kubernetes, pods on a bridge, the API server at its service address.

There is no kube-proxy and no DNS: pods reach the API server at 10.96.0.1 and no other Service.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubelab import box, images
from kubelab.control_plane import SERVICE, ControlPlane

NAME = "real-node"
PODS = "10.79.0.0/24"
BRIDGE = "cni0"


@dataclass(frozen=True)
class Node:
    """The node of a control plane. Everything it keeps lies in `folder`."""

    plane: ControlPlane

    @property
    def folder(self) -> Path:
        """Images, containers, the kubelet's state."""
        return box.folder() / "node"

    def start(self) -> None:
        """Start the node and wait until it is Ready."""
        (self.folder / "net.d").mkdir(parents=True)
        (self.folder / "net.d/10-bridge.conflist").write_text(json.dumps(self._network()))
        (self.folder / "containerd.toml").write_text(self._containerd())
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet()))
        self._service_address()
        box.start("containerd", ["containerd", "--config", str(self.folder / "containerd.toml")])
        box.until(lambda: self._ctr("version", check=False), "containerd")
        self.load(images.pack(images.PAUSE, self.folder / "pause.tar"))
        box.start("kubelet", self._command())
        box.until(self._ready, "kubelet")

    def load(self, archive: Path) -> None:
        """Import an OCI archive; pods name it with `imagePullPolicy: Never` or `IfNotPresent`."""
        self._ctr("images", "import", "--no-unpack", str(archive))
        archive.unlink()

    def pull(self, image: str, *options: str) -> None:
        """Let containerd pull an image from a registry, as for a pod."""
        self._ctr("images", "pull", *options, image)

    def reach_registry(self, name: str, hosts: str) -> None:
        """Tell containerd how it reaches a registry for pods, as RKE2 does by registries.yaml; it reads that at each pull."""
        (folder := self._registries / name).mkdir(parents=True, exist_ok=True)
        (folder / "hosts.toml").write_text(hosts)

    def images(self) -> list[str]:
        """Names of the images that pods can use."""
        return self._listed("images", "ls", "-q")

    def runtime(self, container: str) -> dict[str, Any]:
        """Return the OCI runtime specification of a container that the kubelet still keeps, as containerd got it."""
        found: dict[str, Any] = json.loads(self._said("containers", "info", container))["Spec"]
        return found

    def restart_kubelet(self, *further: str) -> None:
        """End the kubelet as a crash would and start it again, with further flags; containers go on."""
        box.stop("kubelet", "KILL")
        box.start("kubelet", [*self._command(), *further])

    def register(self, *further: str) -> None:
        """Forget the node, and have the kubelet register it anew, with further flags."""
        self.plane.kubectl("delete", "node", NAME)
        self.restart_kubelet(*further)
        box.until(self._ready, "kubelet")

    def _command(self) -> list[str]:
        program = str(self.plane.programs["kubelet"])
        where = ["--config", str(self.folder / "kubelet.json"), "--kubeconfig", str(self.plane.kubeconfig)]
        return [program, *where, "--root-dir", str(self.folder / "kubelet"), "--hostname-override", NAME, "--node-ip", box.ADDRESS]

    def _ready(self) -> bool:
        node = self.plane.get(f"/api/v1/nodes/{NAME}") or {}
        conditions = node.get("status", {}).get("conditions") or ()
        return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions)

    def _ctr(self, *arguments: str, check: bool = True) -> bool:
        return box.run("ctr", "--address", self._socket, "--namespace", "k8s.io", *arguments, check=check).returncode == 0

    def _listed(self, *arguments: str) -> list[str]:
        return self._said(*arguments).split()

    def _said(self, *arguments: str) -> str:
        return box.run("ctr", "--address", self._socket, "--namespace", "k8s.io", *arguments).stdout

    @property
    def _socket(self) -> str:
        return "/run/containerd/containerd.sock"

    @property
    def _registries(self) -> Path:
        return self.folder / "registries"

    def _service_address(self) -> None:
        """Redirect the Service address of the API server, the only one that pods need, as kube-proxy would."""
        for chain in ("PREROUTING", "OUTPUT"):
            rule = ["-t", "nat", "-A", chain, "-d", f"{SERVICE}/32", "-p", "tcp", "--dport", "443"]
            box.run("iptables", *rule, "-j", "DNAT", "--to-destination", f"{box.ADDRESS}:{self.plane.base}")

    def _network(self) -> dict[str, object]:
        route = {"subnet": PODS, "dataDir": str(self.folder / "addresses"), "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": True}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge | {"ipam": {"type": "host-local"} | route}]}

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": box.ADDRESS,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": True,
            "cgroupRoot": f"/{box.CGROUP}",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "failCgroupV1": False,
            "localStorageCapacityIsolation": False,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "protectKernelDefaults": True,
            "resolvConf": "",
            "evictionHard": {"memory.available": "100Mi"},
            "syncFrequency": "5s",
            "maxPods": 60,
            "registryPullQPS": 0,
        }

    def _containerd(self) -> str:
        return f"""\
version = 2
root = "{self.folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE.name}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.folder}/net.d"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{self._registries}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""
