"""The real Argo CD beside the control plane, without images: Redis, repo server, application and ApplicationSet controller."""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubelab import box, parts
from kubelab.control_plane import ControlPlane

NAMESPACE = "argocd"
REDIS, REPO_SERVER, CONTROLLER, SETS = (
    "argocd-redis",
    "argocd-repo-server",
    "argocd-application-controller",
    "argocd-applicationset-controller",
)
REDIS_PROGRAM = "/usr/bin/redis-check-rdb"
"""Debian's redis-tools: this file is the server when it is called so. The package redis-server would start one on the machine."""

LOOK = 10
"""Seconds after which Argo CD looks again at what nobody told it of; its default is 180."""

REPOSITORY = ("argocd.argoproj.io/secret-type", "repository")
"""The label by which Argo CD finds repositories."""

CLUSTER = ("argocd.argoproj.io/secret-type", "cluster")
"""Label by which Argo CD finds the Secrets of clusters."""

_API = "/apis/argoproj.io/v1alpha1"
_REDIS_AT, _REPO_AT, _REPO_METRICS = "127.0.0.1:6399", "127.0.0.1:8091", "8094"


@dataclass(frozen=True)
class ArgoCd:
    """Argo CD as an installation has it: its CRDs and settings from its own manifests, an admin of its cluster.

    It runs outside of the cluster's pods. `ARGOCD_FAKE_IN_CLUSTER`, which Argo CD's own tests use, makes the destination
    `https://kubernetes.default.svc` the cluster of its kubeconfig, as it would be in a pod; nothing else differs.
    """

    plane: ControlPlane

    @property
    def folder(self) -> Path:
        """Return the folder with Argo CD's programs, caches and logs."""
        return box.folder() / "argo-cd"

    def start(self) -> None:
        """Install and start it, and wait until its controllers work; programs that are not cached are built first."""
        self._programs()
        self._settings()
        listen, port = _REDIS_AT.split(":")
        self._start(REDIS, "redis-server", "--bind", listen, "--port", port, "--save", "", "--appendonly", "no")
        serve = ["--redis", _REDIS_AT, "--port", _REPO_AT.split(":")[1], "--metrics-port", _REPO_METRICS, "--disable-tls"]
        self._start(REPO_SERVER, REPO_SERVER, *serve)
        box.until(lambda: self._answers(f"127.0.0.1:{_REPO_METRICS}/healthz"), REPO_SERVER)
        sets = ["--argocd-repo-server", _REPO_AT, "--repo-server-plaintext", "--metrics-addr", "127.0.0.1:8093"]
        self._start(SETS, SETS, *sets, "--probe-addr", "127.0.0.1:8095", "--webhook-addr", "127.0.0.1:7000")
        self._start_controller()
        box.until(lambda: "Starting workers" in box.log(SETS).read_text(), SETS)

    def stop(self) -> None:
        """End it; what it applied stays."""
        for name in (SETS, CONTROLLER, REPO_SERVER, REDIS):
            box.stop(name)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects as the pipeline does: server side, with its field manager."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.plane.kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=bringup", "-f", "-", stdin=text)

    def project(self, name: str, **spec: Any) -> None:
        """An AppProject that allows everything but what `spec` narrows."""
        wide = {
            "sourceRepos": ["*"],
            "destinations": [{"server": "*", "namespace": "*"}],
            "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
        }
        self.apply(_object("argoproj.io/v1alpha1", "AppProject", name, spec=wide | spec))

    def trust(self, host: str, certificate: Path) -> None:
        """Trust a server of repositories by its certificate, as argocd-tls-certs-cm lets it."""
        shutil.copy(certificate, self.folder / "tls" / host)

    def mount(self) -> None:
        """Lay what argocd-tls-certs-cm and argocd-ssh-known-hosts-cm hold where pods have them mounted, as a kubelet would."""
        for name, folder in (("argocd-tls-certs-cm", "tls"), ("argocd-ssh-known-hosts-cm", "ssh")):
            found = self.plane.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}") or {}
            for key, text in (found.get("data") or {}).items():
                (self.folder / folder / key).write_text(text)

    def distrust(self, host: str) -> None:
        """Forget a server's certificates, in the ConfigMap and where it is mounted."""
        patch = json.dumps({"data": {host: None}})
        self.plane.kubectl("-n", NAMESPACE, "patch", "configmap", "argocd-tls-certs-cm", "--type=merge", "-p", patch)
        (self.folder / "tls" / host).unlink(missing_ok=True)

    def credentials(self, name: str, url: str, user: str, password: str) -> None:
        """A repository with its credentials, as Argo CD keeps it."""
        about = {"type": "git", "url": url, "username": user, "password": password}
        made = _object("v1", "Secret", name, stringData=about)
        made["metadata"]["labels"] = dict([REPOSITORY])
        self.apply(made)

    def register(self, name: str, server: str) -> None:
        """Let Argo CD into a cluster at an address; its ApplicationSets make no Application for a cluster that it does not know."""
        config = {"bearerToken": self.plane.token, "tlsClientConfig": {"insecure": True}}
        about = {"name": name, "server": server, "config": json.dumps(config)}
        made = _object("v1", "Secret", f"cluster-{name}", stringData=about)
        made["metadata"]["labels"] = dict([CLUSTER])
        self.apply(made)

    def application(self, name: str) -> dict[str, Any] | None:
        """An Application with its status."""
        return self.plane.get(f"{_API}/namespaces/{NAMESPACE}/applications/{name}")

    def applications(self) -> list[dict[str, Any]]:
        """All Applications."""
        found = self.plane.get(f"{_API}/namespaces/{NAMESPACE}/applications") or {"items": []}
        return list(found["items"])

    def clear(self) -> None:
        """Forget all Applications, sets and projects, and remove the namespaces that they filled."""
        spaces = {one["spec"]["destination"].get("namespace", NAMESPACE) for one in self.applications()} - {NAMESPACE, "default"}
        self.plane.kubectl("-n", NAMESPACE, "delete", "applicationset", "--all")
        while self.applications():  # one that is over others makes them again until it is gone itself
            self.plane.kubectl("-n", NAMESPACE, "delete", "application", "--all")
        self.plane.kubectl("-n", NAMESPACE, "delete", "appproject", "--all")
        for label in (REPOSITORY, CLUSTER):
            self.plane.kubectl("-n", NAMESPACE, "delete", "secret", "-l", "=".join(label))
        if spaces:
            self.plane.kubectl("delete", "namespace", "--wait=false", "--ignore-not-found", *sorted(spaces))

    def _programs(self) -> None:
        """One folder with everything that Argo CD calls by its name."""
        binaries = self.folder / "bin"
        binaries.mkdir(parents=True)
        argocd = parts.built(parts.ARGO_CD) / "argocd"
        for name in ("argocd", CONTROLLER, REPO_SERVER, SETS):
            (binaries / name).symlink_to(argocd)
        (binaries / "kustomize").symlink_to(parts.built(parts.KUSTOMIZE) / "kustomize")
        (binaries / "helm").symlink_to(self.plane.programs["helm"])
        (binaries / "redis-server").symlink_to(REDIS_PROGRAM)
        for name in ("tmp", "tls", "ssh", "home"):
            (self.folder / name).mkdir()

    def _settings(self) -> None:
        """CRDs, settings and the kubeconfig."""
        manifests = parts.built(parts.ARGO_CD)
        self.plane.kubectl("create", "namespace", NAMESPACE)
        for path in ("crds", "config"):
            self.plane.kubectl("apply", "--server-side", "--namespace", NAMESPACE, "--kustomize", str(manifests / path))
        key = json.dumps({"stringData": {"server.secretkey": secrets.token_hex(16)}})
        self.plane.kubectl("-n", NAMESPACE, "patch", "secret", "argocd-secret", "-p", key)
        box.until(self._served, "Argo CD's CRDs")
        document = json.loads(self.plane.kubeconfig.read_text())
        document["contexts"][0]["context"]["namespace"] = NAMESPACE
        self._kubeconfig.touch(0o600)
        self._kubeconfig.write_text(json.dumps(document))

    @property
    def _kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def _start(self, name: str, program: str, *arguments: str) -> None:
        folder = self.folder
        environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._kubeconfig),
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_TLS_DATA_PATH": str(folder / "tls"),
            "ARGOCD_SSH_DATA_PATH": str(folder / "ssh"),
            "ARGOCD_ASK_PASS_SOCK": str(folder / "ask-pass.sock"),
            "ARGOCD_RECONCILIATION_JITTER": "0",
        }
        box.start(name, [str(folder / "bin" / program), *arguments], environment)

    def _start_controller(self) -> None:
        control = ["--redis", _REDIS_AT, "--repo-server", _REPO_AT, "--repo-server-plaintext", "--metrics-port", "8092"]
        self._start(CONTROLLER, CONTROLLER, *control, "--app-resync", str(LOOK), "--self-heal-timeout-seconds", "1")
        box.until(lambda: self._answers("127.0.0.1:8092/healthz"), CONTROLLER)

    def _served(self) -> bool:
        kinds = {row["kind"] for row in (self.plane.get(_API) or {"resources": ()})["resources"]}
        return kinds >= {"Application", "ApplicationSet", "AppProject"}

    def _answers(self, address: str) -> bool:
        return box.run("/usr/bin/busybox", "wget", "-q", "-O", "-", f"http://{address}", check=False).returncode == 0


def _object(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}
