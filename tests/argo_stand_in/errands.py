"""Pods that do not belong to Argo (short pods that read or write the store), run as processes where no kubelet runs them."""

import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from steps.clients.kube.api import ApiError
from steps.errors import Refused, Temporary
from tests.argo_stand_in import volume_folders
from tests.argo_stand_in.pod_host import PodHost
from workflows.engines.argo.helper_pods import ERRAND
from workflows.engines.argo.home import Home
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.local.run_settings import RunPaths, default_environment
from workflows.rehearsal.home_rehearsal import REHEARSAL

__all__ = ["ERRAND", "Errands"]

Object = dict[str, Any]
T = TypeVar("T")
LONGEST = 60.0
AGAIN = 0.5
"""Seconds between tries while the API server does not answer."""


class Errands:
    """A runner of foreign pods: each runs once, in a thread of its own."""

    def __init__(self, address: HomeAddress, folder: Path, store: Path, behaviour: Any) -> None:
        self._address, self._folder, self._store = address, folder / "errands", store
        self._environment = behaviour.environment
        self._place: PodHost = behaviour.place
        self._ending = threading.Event()
        self._taken: set[str] = set()
        self._threads: list[threading.Thread] = []

    def take(self, pod: Object) -> None:
        """Run a pod unless it has been run."""
        uid = pod["metadata"]["uid"]
        if uid in self._taken or pod["status"].get("phase", "Pending") != "Pending":
            return
        self._taken.add(uid)
        self._threads.append(threading.Thread(target=self._run, args=(pod,), daemon=True))
        self._threads[-1].start()

    def end(self) -> None:
        """Wait for the pods that still run."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _run(self, pod: Object) -> None:
        home, name = Home(self._address), pod["metadata"]["name"]
        try:
            self._retry(lambda: self._place.bind(home, name))
            paths = self._retry(lambda: self._lay_out_volumes(home, pod))
            if pod["metadata"]["labels"].get(ERRAND) == REHEARSAL:
                self._serve(home, pod, paths)
                return
            output, code = self._run_container(pod, paths)
            self._retry(lambda: self._place.write(home, name, output, pod["spec"]["containers"][0]["name"]))
            self._retry(lambda: home.ask(lambda kube: kube.merge(f"{home.core('pods', name)}/status", _ended_status(pod, code))))
        except ApiError as error:
            if error.status != 404:  # whoever asked did not wait
                raise

    def _retry(self, call: Callable[[], T]) -> T:
        """Call until the API server answers, as a kubelet does."""
        while True:
            try:
                return call()
            except (Temporary, Refused):
                if self._ending.wait(AGAIN):
                    raise

    def _lay_out_volumes(self, home: Home, pod: Object) -> RunPaths:
        return volume_folders.lay_out(home, pod["spec"].get("volumes") or (), self._folder / pod["metadata"]["name"], self._store)

    def _started(self, pod: Object, paths: RunPaths) -> tuple[list[str], dict[str, str], Path]:
        """Return the command, the environment and the folder of the pod's container on this machine."""
        (container, *_), folder = pod["spec"]["containers"], self._folder / pod["metadata"]["name"]
        container = volume_folders.reached_here(container, self._address.namespace)
        out = folder / "out"
        out.mkdir(exist_ok=True)
        words = [paths.rewrite(word, out) for word in (*container["command"], *container.get("args", ()))]
        variables = {row["name"]: paths.rewrite(row.get("value", ""), out) for row in container.get("env", ())}
        return words, {**default_environment(), **self._environment, **variables}, folder

    def _run_container(self, pod: Object, paths: RunPaths) -> tuple[bytes, int]:
        """Return the output and the exit code of the pod's container."""
        words, environment, folder = self._started(pod, paths)
        process = subprocess.run(
            words, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST
        )
        return process.stdout, process.returncode

    def _serve(self, home: Home, pod: Object, paths: RunPaths) -> None:
        """Run a pod that serves until it is deleted, and show it ready once its port with the readiness probe answers."""
        words, environment, folder = self._started(pod, paths)
        name, (container, *_) = pod["metadata"]["name"], pod["spec"]["containers"]
        port = next(
            row["containerPort"] for row in container["ports"] if row["name"] == container["readinessProbe"]["tcpSocket"]["port"]
        )
        ready = False
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(words, env=environment, cwd=folder, stdout=log, stderr=log)
            try:
                while process.poll() is None and not self._ending.wait(AGAIN):
                    now = self._retry(lambda: home.ask(lambda kube: kube.get(home.core("pods", name), dict[str, Any])))
                    if now is None or now["metadata"].get("deletionTimestamp"):
                        return
                    if not ready and _listens(port):
                        ready = True
                        self._retry(lambda: home.ask(lambda kube: kube.merge(f"{home.core('pods', name)}/status", _READY)))
            finally:
                process.terminate()
                code = process.wait(LONGEST)
                self._place.write(home, name, (folder / "log").read_bytes(), container["name"])
        self._retry(lambda: home.ask(lambda kube: kube.merge(f"{home.core('pods', name)}/status", _ended_status(pod, code))))


_READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _ended_status(pod: Object, code: int) -> Object:
    """Return the status that a kubelet writes for an ended pod."""
    container = pod["spec"]["containers"][0]
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
    return {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{**status, "state": state}]}}
