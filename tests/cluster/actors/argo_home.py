"""A home cluster for runs on Argo, on a real API server: Argo's CRDs, and a stand-in for its controller as a process of its own.

Nothing runs pods there: the stand-in plays them, shows them on a Node without kubelet, and `kubelet_port` serves their logs.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors import tokens
from kubelab import box, custom_kinds, product
from kubelab.control_plane import ControlPlane

from tests.argo_stand_in.pod_driver import FRESH_STEPS

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or product.ROOT.parent / "shared")
CRDS = DATA / "crds/argo-workflows-v4.1.2/crds"
SPACE = "bringup"
NODE = "argo-stand-in"
NODE_ADDRESS = "198.51.100.1"
"""Of the node on which pods are shown: nobody's (RFC 5737); one of the pod network never comes past `kubelet_port`."""
CONTROLLER = "quay.io/argoproj/workflow-controller:v4.1.2"
COMMAND = str(Path(sys.executable).with_name("bringup"))
LOOK_SECONDS = 0.02
"""Between two looks for a step that is to be stopped at its work, which takes several times as long."""
PATIENCE = 120.0
"""Seconds for what takes a few on an idle machine."""


def until(holds: Callable[[], Any], what: Callable[[], str], seconds: float = PATIENCE) -> Any:
    """Wait for a condition; what it gave. `what` tells where it stands at the deadline."""
    idle, end = select.poll(), time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, what()
        idle.poll(50)
    return found


def prepare(plane: ControlPlane) -> None:
    """Create what an admin gives a home cluster: CRDs, namespace, volume claim, and a controller's Deployment without pods."""
    custom_kinds.install(plane, CRDS)
    labels = {"app": "workflow-controller"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "workflow-controller", "image": CONTROLLER}]}}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    status = {
        "addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }
    objects: tuple[dict[str, Any], ...] = (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        _made("v1", "ServiceAccount", "default"),
        _made("v1", "PersistentVolumeClaim", "bringup-store", spec=claim),
        _made("apps/v1", "Deployment", "workflow-controller", spec={"selector": {"matchLabels": labels}, "template": pod}),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
    )
    for one in objects:
        plane.kubectl("create", "-f", "-", stdin=json.dumps(one))
    plane.kubectl("patch", "node", NODE, "--subresource=status", "-p", json.dumps({"status": status}))


def _made(version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, **more}


def account(plane: ControlPlane, name: str) -> str:
    """Make a ServiceAccount in home; its UID."""
    plane.kubectl("create", "serviceaccount", name, "-n", SPACE)
    return plane.kubectl("get", "serviceaccount", name, "-n", SPACE, "-o", "jsonpath={.metadata.uid}")


def kubeconfig(plane: ControlPlane, path: Path, user: Mapping[str, Any], server: str = "") -> Path:
    """A kubeconfig for somebody, perhaps by another address of the API server; its certificate is good for `localhost` too."""
    document = json.loads(plane.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = server or plane.server
    document["users"][0]["user"] = dict(user)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text(json.dumps(document))
    return path


def token_user(plane: ControlPlane, name: str, uid: str, seconds: float) -> dict[str, Any]:
    """A user of a kubeconfig whose exec plug-in hands out tokens that are good for so long."""
    arguments = [tokens.__file__, str(plane.folder), SPACE, name, uid, str(seconds)]
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": arguments}
    return {"exec": {**plugin, "interactiveMode": "Never"}}


@dataclass(frozen=True)
class Started:
    """A command that follows a run; what it prints goes to a file."""

    process: subprocess.Popen[bytes]
    out: Path

    @property
    def said(self) -> str:
        return self.out.read_text()

    def say(self, text: str, times: int = 1) -> None:
        """Wait until it has printed this so often."""
        until(lambda: self.said.count(text) >= times or self.process.poll() is not None, lambda: self.said)
        assert self.said.count(text) >= times, self.said

    def end(self) -> int:
        """Wait until the command has ended and return its exit code."""
        until(lambda: self.process.poll() is not None, lambda: self.said)
        return int(self.process.returncode)


@dataclass
class Machine:
    """Somebody's machine: a home for runs, a kubeconfig, and the specs beside it."""

    folder: Path
    kubeconfig: Path
    specs: Path
    started: list[Started] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "BRINGUP_HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig), "COLUMNS": "200"}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return subprocess.run(
            [COMMAND, *words], cwd=self.specs, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def start(self, *words: str) -> Started:
        """A command that goes on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        out = self.folder / f"said-{len(self.started)}"
        with out.open("w") as output:
            process = subprocess.Popen([COMMAND, *words], cwd=self.specs, env=self.environment, stdout=output, stderr=output)
        self.started.append(Started(process, out))
        return self.started[-1]

    def run(self, spec: str) -> tuple[Started, str]:
        """Start `bringup run` on Argo and wait until its approval is asked for; the run's name."""
        following = self.start("run", spec, "--engine", "argo")
        following.say("waits for an approval")
        found = re.search(r"^run (\S+):", following.said, re.MULTILINE)
        assert found, following.said
        return following, found[1]

    def close(self) -> None:
        """End what still goes on."""
        for one in self.started:
            one.process.kill()
            one.process.wait()


@dataclass
class Controller:
    """The stand-in for Argo's controller, and the folder that its pods see as the run store."""

    plane: ControlPlane
    folder: Path
    logs: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def start(self) -> None:
        """Stand in from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options = {
            "--kubeconfig": self.plane.kubeconfig,
            "--namespace": SPACE,
            "--folder": self.folder / "runs",
            "--store": self.store,
            "--backoff": "0",
            "--node": NODE,
            "--pod-logs": self.logs,
        }
        words = [str(word) for option in options.items() for word in option]
        passed = [word for name in self.environment for word in ("--pass-on", name)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.argo_stand_in", *words, *passed],
                cwd=product.ROOT,
                env={**os.environ, FRESH_STEPS: "yes", **self.environment},
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """End it with its runs."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)

    @contextmanager
    def halting(self, *words: str) -> Iterator["Halted"]:
        """Stops the process of the first step with these words in its command line, so that it is at work for as long as needed."""
        halted, over = Halted(), threading.Event()

        def look() -> None:
            while not over.wait(LOOK_SECONDS) and not halted.pid:
                if pid := _process([str(self.folder), *words]):
                    os.kill(pid, signal.SIGSTOP)
                    halted.pid = pid

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield halted
        finally:
            over.set()
            thread.join()
            halted.go_on()

    @property
    def said(self) -> str:
        """Return the output of the controller's stand-in."""
        return (self.folder / "log").read_text()


@dataclass
class Halted:
    """A step that was stopped at its work."""

    pid: int = 0

    def wait(self) -> None:
        """Until there is one."""
        until(lambda: self.pid, lambda: "no such step began")

    def go_on(self) -> None:
        """Let it work."""
        with contextlib.suppress(ProcessLookupError):  # its pod was deleted
            if self.pid:
                os.kill(self.pid, signal.SIGCONT)


def _process(words: Sequence[str]) -> int:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            known = (path / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue  # gone meanwhile
        if "-m steps" in line and all(word in line + known for word in words):
            return int(path.name)
    return 0


def stop_api(plane: ControlPlane) -> Callable[[], None]:
    """End the API server as a crash would; what is returned starts it again with its data."""
    box.stop(f"{plane.name}-api", "KILL")
    return plane.restart_api
