"""A control plane from its real programs: etcd and kube-apiserver, with controllers and scheduler where they are wanted."""

import json
import secrets
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubelab import box, state

SERVICES = "10.96.0.0/24"
SERVICE = "10.96.0.1"
"""The address at which pods find the API server."""

AUDIT: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""Audit policy: metadata of the requests of all ServiceAccounts but those in kube-system."""

ADMIN = {"level": "Metadata", "users": ["admin"]}
"""The admin's requests too, where no controller of Kubernetes uses that name."""

NAMES = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
DISCOVERY = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
"""Media types to request: objects without their content; all groups, versions and resources in one answer."""


@dataclass(frozen=True)
class ControlPlane:
    """One API server with its etcd, in a folder of the box. `base` numbers its ports: API at `base`, etcd after it.

    Without `controllers` nothing acts on objects: that is the place for somebody who plays all controllers.
    """

    name: str
    base: int
    programs: Mapping[str, Path]
    controllers: bool = True

    @property
    def folder(self) -> Path:
        """Return the folder of data, keys and kubeconfig."""
        return box.folder() / self.name

    @property
    def kubeconfig(self) -> Path:
        """A cluster admin's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://{box.ADDRESS}:{self.base}"

    @property
    def etcd(self) -> str:
        """etcd's address, which serves JSON too."""
        return f"http://{box.ADDRESS}:{self.base + 1}"

    def start(self) -> None:
        """Start everything and wait until it serves."""
        self.folder.mkdir()
        self._keys()
        self._start_etcd()
        self._start_api()
        if self.controllers:
            self._start_controllers()
            box.until(lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default") is not None, self._called("manager"))

    def stop(self) -> None:
        """End everything; the data stays."""
        for part in ("scheduler", "manager", "api", "etcd"):
            box.stop(self._called(part), "KILL" if part == "etcd" else "TERM")

    def restart_api(self) -> None:
        """End the API server as a crash would and start it again; watches break, data stays."""
        box.stop(self._called("api"), "KILL")
        self._start_api()

    def remove(self) -> None:
        """End everything and forget its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def snapshot(self) -> bytes:
        """All objects as etcd has them now."""
        return state.snapshot(self.etcd)

    def restore(self, snapshot: bytes) -> None:
        """Set the objects back while the API server runs: what differs is written or removed below it, in well under a second."""
        state.restore(self.etcd, snapshot)
        self.until_served()

    def until_served(self) -> None:
        """Wait until all custom kinds are served, a moment after their definitions are there."""
        box.until(self._serves_custom_kinds, self._called("api"))

    def _serves_custom_kinds(self) -> bool:
        """Asks for names alone: the definitions themselves may have megabytes."""
        there = self.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", accept=NAMES)
        known = self.get("/apis", accept=DISCOVERY)
        if there is None or known is None:
            return False
        served = {
            f"{row['resource']}.{group['metadata']['name']}": f"{group['metadata']['name']}/{version['version']}/{row['resource']}"
            for group in known["items"] or ()
            for version in group["versions"]
            for row in version.get("resources", ())
        }
        names = [item["metadata"]["name"] for item in there["items"] or ()]
        return all(name in served and self.get(f"/apis/{served[name]}?limit=1") is not None for name in names)

    def get(self, path: str, token: str = "", accept: str = "application/json") -> dict[str, Any] | None:
        """One answer of the API server, to the admin or to who has this token; None when it refuses or does not answer."""
        headers = {"Authorization": f"Bearer {token or self.token}", "Accept": accept}
        request = urllib.request.Request(self.server + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5, context=ssl._create_unverified_context()) as answer:
                found: dict[str, Any] = json.load(answer) if path != "/readyz" else {}
                return found
        except OSError:
            return None

    def post(self, path: str, body: dict[str, Any], user: str = "", token: str = "") -> dict[str, Any]:
        """Create something and return it: as the admin, as somebody whom the admin plays, or with a token. Raises HTTPError."""
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"}
        headers |= {"Impersonate-User": user} if user else {}
        request = urllib.request.Request(self.server + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=5, context=ssl._create_unverified_context()) as answer:
            made: dict[str, Any] = json.load(answer)
            return made

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run `kubectl` as admin and return its output. Raises CalledProcessError."""
        command = [str(self.programs["kubectl"]), "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout

    def audited(self) -> list[dict[str, Any]]:
        """Return the rows of the audit log, oldest first."""
        kept = self.folder / "audit.log"
        return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []

    @property
    def token(self) -> str:
        """The admin's bearer token."""
        return (self.folder / "tokens.csv").read_text().partition(",")[0]

    def _called(self, part: str) -> str:
        return f"{self.name}-{part}"

    def _keys(self) -> None:
        private, public = self.folder / "sa.key", self.folder / "sa.pub"
        subprocess.run(["openssl", "genrsa", "-out", str(private), "2048"], check=True, capture_output=True)
        subprocess.run(["openssl", "rsa", "-in", str(private), "-pubout", "-out", str(public)], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.touch(0o600)
        tokens.write_text(f'{secrets.token_hex(16)},admin,admin,"system:masters"\n')
        rules = AUDIT["rules"] if self.controllers else [ADMIN, *AUDIT["rules"]]
        (self.folder / "audit.yaml").write_text(json.dumps({**AUDIT, "rules": rules}))

    def _start_etcd(self) -> None:
        peer = f"http://{box.ADDRESS}:{self.base + 2}"
        command = [str(self.programs["etcd"]), "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync"]
        command += ["--listen-client-urls", self.etcd, "--advertise-client-urls", self.etcd, "--listen-peer-urls", peer]
        command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--log-level", "warn"]
        box.start(self._called("etcd"), command)
        box.until(lambda: state.answers(self.etcd), self._called("etcd"))

    def _start_api(self) -> None:
        options = {
            "etcd-servers": self.etcd,
            "secure-port": self.base,
            "bind-address": "0.0.0.0",
            "advertise-address": box.ADDRESS,
            "cert-dir": self.folder / "certs",
            "service-account-key-file": self.folder / "sa.pub",
            "service-account-signing-key-file": self.folder / "sa.key",
            "service-account-issuer": "https://kubernetes.default.svc",
            "authorization-mode": "RBAC",
            "token-auth-file": self.folder / "tokens.csv",
            "service-cluster-ip-range": SERVICES,
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
            "audit-policy-file": self.folder / "audit.yaml",
            "audit-log-path": self.folder / "audit.log",
        }
        box.start(
            self._called("api"), [str(self.programs["kube-apiserver"]), *(f"--{key}={value}" for key, value in options.items())]
        )
        box.until(lambda: self.get("/readyz") is not None, self._called("api"))
        self._write_kubeconfig()

    def _write_kubeconfig(self) -> None:
        """JSON is YAML; the certificate is the one that the API server made for itself."""
        cluster = {"server": self.server, "certificate-authority": str(self.folder / "certs/apiserver.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": "admin"}}],
            "current-context": self.name,
        }
        self.kubeconfig.touch(0o600)
        self.kubeconfig.write_text(json.dumps(document, indent=1))

    def _start_controllers(self) -> None:
        common = ["--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--secure-port=0"]
        keys = ["--service-account-private-key-file", str(self.folder / "sa.key")]
        trust = ["--root-ca-file", str(self.folder / "certs/apiserver.crt"), "--use-service-account-credentials"]
        box.start(self._called("manager"), [str(self.programs["kube-controller-manager"]), *common, *keys, *trust])
        box.start(self._called("scheduler"), [str(self.programs["kube-scheduler"]), *common])
