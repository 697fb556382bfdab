#!/usr/bin/python3
"""Part of the stand-in for RKE2: the control plane of one server, from the real etcd and kube-apiserver, inside its host.

Run by the stand-in `rke2 server` where its images held the programs. RKE2 runs these as static pods with certificates of its own;
here they are child processes. Standard library only: it runs on the host.
"""

import base64
import contextlib
import itertools
import json
import os
import secrets
import select
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CLIENT, PEER, METRICS, API = 2379, 2380, 2381, 6443
HEALTH, READY = f"http://127.0.0.1:{METRICS}/health", f"https://127.0.0.1:{API}/readyz"
SERVE_SECONDS = 90.0
LOOK_SECONDS = 0.2
SAMPLE_WRITES, SAMPLE_SECONDS = 120, 0.02
"""Writes after a start, and seconds between them: a play reads how fast etcd's disk is once 100 writes have been measured."""
RENEW_SECONDS = 2.0
"""Seconds between later writes, as between renewals of a real lease. After each, the simulator lists all kinds anew."""
ENCRYPTION = "encryption-config.json"
SHARED = ("ca.key", "ca.crt", "sa.key", "sa.pub", "tokens.csv", ENCRYPTION)
"""Files that all servers must have in common; RKE2 hands such data out as bootstrap data at its port 9345."""


class ControlPlane:
    """etcd and the API server of this host. `certified` is the `subjectAltName` of its certificate. Of the `folders` `data` and
    `etcd` outlive restarts (only the second is a database), in `programs` lie the binaries. `flags` are further ones of the API
    server; `user` runs etcd (empty: root)."""

    def __init__(
        self,
        name: str,
        address: str,
        certified: str,
        folders: Mapping[str, Path],
        flags: Mapping[str, str],
        user: str = "",
    ) -> None:
        self.name = name
        self.address = address
        self.certified = certified
        self.data, self.etcd, self.programs = (folders[kind] for kind in ("data", "etcd", "programs"))
        self.flags = flags
        self.user = user
        self.children: list[subprocess.Popen[bytes]] = []

    def shared(self) -> dict[str, str]:
        """Return the files that another server needs to serve the same cluster: file name → text."""
        return {name: (self.data / name).read_text() for name in SHARED}

    def start(self, first: str, shared: Mapping[str, str] | None = None) -> None:
        """Start etcd, as a member of the cluster of `first` (an address) where that is not this host, then the API server."""
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.data / SHARED[0]).exists():
            if shared is None:
                self._make()
            else:
                self._keep(shared)
            self._certify()
        self._end()
        self._start_etcd(first)
        self._start_api()
        threading.Thread(target=self._renew, daemon=True).start()

    def _end(self) -> None:
        """End those of an earlier start: like containers they outlive the service that started them. Who was killed holds its ports
        until it is gone, so that is waited for: an etcd that finds them taken ends, and systemd would start all of it again."""
        ours = f"--data-dir={self.etcd}|--tls-cert-file={self.data}/"
        found = subprocess.run(["pgrep", "--full", "--", ours], check=False, capture_output=True, text=True).stdout
        for pid in found.split():
            with contextlib.suppress(ProcessLookupError), open(os.pidfd_open(int(pid))) as process:
                signal.pidfd_send_signal(process.fileno(), signal.SIGKILL)
                select.select([process], [], [])

    def _renew(self) -> None:
        """Write to etcd: at first as much as a real control plane does when it starts, then as often as one renews its leases."""
        lease = json.dumps(
            {"key": base64.b64encode(f"/stand-in/leases/{self.name}".encode()).decode(), "value": "bGVhc2U="}
        ).encode()
        for number in itertools.count():
            with contextlib.suppress(OSError):
                self._get(f"http://127.0.0.1:{CLIENT}/v3/kv/put", lease)
            time.sleep(SAMPLE_SECONDS if number < SAMPLE_WRITES else RENEW_SECONDS)

    def save(self) -> bytes:
        """Return a snapshot of etcd, as `etcdctl snapshot save` writes it."""
        answers = self._get(f"http://127.0.0.1:{CLIENT}/v3/maintenance/snapshot", b"{}").splitlines()
        return b"".join(base64.b64decode(json.loads(answer)["result"].get("blob", "")) for answer in answers)

    def restore(self, saved: bytes) -> None:
        """Have etcd hold what was saved, this host its only member, at its next start."""
        self._end()
        peer = f"http://{self.address}:{PEER}"
        with tempfile.NamedTemporaryFile(dir=self.data) as file:
            file.write(saved)
            file.flush()
            shutil.rmtree(self.etcd, ignore_errors=True)
            options = (f"--name={self.name}", f"--initial-cluster={self.name}={peer}", f"--initial-advertise-peer-urls={peer}")
            command = [str(self.programs / "etcdutl"), "snapshot", "restore", file.name, *options, f"--data-dir={self.etcd}"]
            subprocess.run(command, check=True, capture_output=True)

    def encrypts(self) -> bool:
        """Return True if Secrets are written encrypted from the next start on."""
        return "aescbc" in self._providers()[0]

    def encrypt(self, on: bool) -> None:
        """Have Secrets encrypted, or not, from the next start on; what was written before can be read either way."""
        both = sorted(self._providers(), key=lambda provider: ("aescbc" in provider) != on)
        rows = [{"resources": ["secrets"], "providers": both}]
        document = {"kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1", "resources": rows}
        self._keep({ENCRYPTION: json.dumps(document)})

    def _providers(self) -> list[dict[str, Any]]:
        """Return the encryption providers, the one for writing first; create a new key if there are none yet."""
        if (self.data / ENCRYPTION).exists():
            return list(json.loads((self.data / ENCRYPTION).read_text())["resources"][0]["providers"])
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        return [{"aescbc": {"keys": [{"name": "aescbckey", "secret": key}]}}, {"identity": {}}]

    def kubeconfig(self) -> str:
        """An admin kubeconfig for this host itself, as RKE2 writes it to rke2.yaml."""
        authority = base64.b64encode((self.data / "ca.crt").read_bytes()).decode()
        cluster = {"server": f"https://127.0.0.1:{API}", "certificate-authority-data": authority}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "default", "cluster": cluster}],
            "users": [{"name": "default", "user": {"token": self._token()}}],
            "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
            "current-context": "default",
        }
        return json.dumps(document, indent=1)

    def _token(self) -> str:
        return (self.data / "tokens.csv").read_text().partition(",")[0]

    def _make(self) -> None:
        """Create the files that all servers have in common; the first server does so."""
        request = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=stand-in-ca")
        self._openssl(*request, out="ca.crt", keyout="ca.key")
        self._openssl("genrsa", out="sa.key")
        self._openssl("rsa", "-pubout", **{"in": "sa.key", "out": "sa.pub"})
        self._keep({"tokens.csv": f'{secrets.token_hex(16)},admin,admin,"system:masters"\n'})
        self.encrypt(True)

    def _certify(self) -> None:
        """A certificate of this server, by the CA that all share."""
        own = f"DNS:{self.name},DNS:localhost"
        service = ",".join(f"DNS:{name}" for name in ("kubernetes", "kubernetes.default", "kubernetes.default.svc"))
        self._keep({"names": f"{self.certified},{own},{service}"})
        request = ("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver")
        self._openssl(*request, keyout="serving.key", out="serving.csr")
        files = {"in": "serving.csr", "CA": "ca.crt", "CAkey": "ca.key", "out": "serving.crt", "extfile": "names"}
        self._openssl("x509", "-req", "-days", "30", "-set_serial", str(secrets.randbits(60)), **files)

    def _openssl(self, command: str, *words: str, **files: str) -> None:
        """`openssl COMMAND`, with options that name files of ours."""
        given = [part for option, file in files.items() for part in (f"-{option}", str(self.data / file))]
        subprocess.run(["openssl", command, *given, *words], check=True, capture_output=True)

    def _keep(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.data / name).touch(0o600)
            (self.data / name).write_text(text)

    def _start_etcd(self, first: str) -> None:
        peer, is_first = f"http://{self.address}:{PEER}", first == self.address
        known = self.etcd.exists()
        options = {
            "name": self.name,
            "data-dir": self.etcd,
            "listen-client-urls": f"http://{self.address}:{CLIENT},http://127.0.0.1:{CLIENT}",
            "advertise-client-urls": f"http://{self.address}:{CLIENT}",
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"{self.name}={peer}" if is_first or known else self._join(first, peer),
            "initial-cluster-state": "new" if is_first else "existing",
            "listen-metrics-urls": f"http://127.0.0.1:{METRICS}",
            "log-level": "warn",
        }
        if self.user:
            self.etcd.mkdir(mode=0o700, exist_ok=True)
            subprocess.run(["chown", "--recursive", self.user, str(self.etcd)], check=True)
        self._run("etcd", options, self.user)
        self._until("etcd", lambda: json.loads(self._get(HEALTH))["health"] == "true")

    def _join(self, first: str, peer: str) -> str:
        """Make this host a member, and return who the members are. RKE2 removes the member of a Node that is deleted; here the
        machine that takes its place does."""
        url = f"http://{first}:{CLIENT}/v3/cluster/member"
        for old in json.loads(self._get(f"{url}/list", b"{}"))["members"]:
            if peer in old["peerURLs"]:
                self._get(f"{url}/remove", json.dumps({"ID": old["ID"]}).encode())
        asked = json.dumps({"peerURLs": [peer]}).encode()
        answer = json.loads(self._get(f"{url}/add", asked))
        return ",".join(f"{one.get('name') or self.name}={one['peerURLs'][0]}" for one in answer["members"])

    def _start_api(self) -> None:
        options = {
            "etcd-servers": f"http://127.0.0.1:{CLIENT}",
            "secure-port": API,
            "bind-address": "0.0.0.0",
            "advertise-address": self.address,
            "tls-cert-file": self.data / "serving.crt",
            "tls-private-key-file": self.data / "serving.key",
            "service-account-key-file": self.data / "sa.pub",
            "service-account-signing-key-file": self.data / "sa.key",
            "service-account-issuer": "https://kubernetes.default.svc",
            "authorization-mode": "RBAC",
            "token-auth-file": self.data / "tokens.csv",
            "service-cluster-ip-range": "10.43.0.0/16",
            "allow-privileged": "true",
            "encryption-provider-config": self.data / ENCRYPTION,
        }
        self._run("kube-apiserver", options | self.flags)
        self._until("kube-apiserver", lambda: self._get(READY) == "ok")

    def _run(self, program: str, options: Mapping[str, Any], user: str = "") -> None:
        command = [str(self.programs / program), *(f"--{option}={value}" for option, value in options.items())]
        # both would tell systemd for us that all of RKE2 is ready
        environment = {name: text for name, text in os.environ.items() if name != "NOTIFY_SOCKET"}
        with (self.data / f"{program}.log").open("ab") as log:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=user or None, env=environment
            )
        self.children.append(started)

    def _until(self, program: str, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + SERVE_SECONDS
        while time.monotonic() < until and self.children[-1].poll() is None:
            try:
                if ready():
                    return
            except (OSError, ValueError, KeyError):
                pass  # not yet
            time.sleep(LOOK_SECONDS)
        said = (self.data / f"{program}.log").read_text(errors="replace")[-600:]
        raise RuntimeError(f"{program} does not serve: {said}")

    def _get(self, url: str, body: bytes | None = None) -> str:
        headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=5, context=ssl._create_unverified_context()) as answer:
            return str(answer.read().decode())
