"""Pods that are not Argo's (short pods that read or write the store) run as processes, where no kubelet does it."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from steps.clients.kube.api import ApiError
from steps.errors import Refused, Temporary
from workflows.engines.argo.home import Home, Where
from workflows.engines.argo.pods import ERRAND
from workflows.engines.local.paths import RunPaths
from workflows.engines.local.settings import default_environment
from workflows.rehearsal.argo_stand_in import mounts
from workflows.rehearsal.argo_stand_in.kubelet import Place

__all__ = ["ERRAND", "Errands"]

Object = dict[str, Any]
T = TypeVar("T")
LONGEST = 60.0
AGAIN = 0.5
"""Seconds until the next try when the API server does not answer."""


class Errands:
    """Runs each such pod once, one thread a pod."""

    def __init__(self, where: Where, folder: Path, store: Path, ways: Any) -> None:
        self._where, self._folder, self._store = where, folder / "errands", store
        self._environment = ways.environment
        self._place: Place = ways.place
        self._over = threading.Event()
        self._taken: set[str] = set()
        self._threads: list[threading.Thread] = []

    def take(self, pod: Object) -> None:
        """Run a pod that has not been run."""
        uid = pod["metadata"]["uid"]
        if uid in self._taken or pod["status"].get("phase", "Pending") != "Pending":
            return
        self._taken.add(uid)
        self._threads.append(threading.Thread(target=self._run, args=(pod,), daemon=True))
        self._threads[-1].start()

    def end(self) -> None:
        """Wait for those that run."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, pod: Object) -> None:
        home, name = Home(self._where), pod["metadata"]["name"]
        try:
            self._patiently(lambda: self._place.bind(home, name))
            said, code = self._played(pod, self._patiently(lambda: self._laid_out(home, pod)))
            self._patiently(lambda: self._place.write(home, name, said, pod["spec"]["containers"][0]["name"]))
            self._patiently(lambda: home.ask(lambda kube: kube.merge(f"{home.core('pods', name)}/status", _ended(pod, code))))
        except ApiError as error:
            if error.status != 404:  # whoever asked did not wait
                raise

    def _patiently(self, call: Callable[[], T]) -> T:
        """Once the API server answers: a kubelet waits for it as well."""
        while True:
            try:
                return call()
            except (Temporary, Refused):
                if self._over.wait(AGAIN):
                    raise

    def _laid_out(self, home: Home, pod: Object) -> RunPaths:
        return mounts.lay_out(home, pod["spec"].get("volumes") or (), self._folder / pod["metadata"]["name"], self._store)

    def _played(self, pod: Object, paths: RunPaths) -> tuple[bytes, int]:
        """What the container prints, and its exit code."""
        (container, *_), folder = pod["spec"]["containers"], self._folder / pod["metadata"]["name"]
        out = folder / "out"
        out.mkdir(exist_ok=True)
        words = [paths.rewrite(word, out) for word in (*container["command"], *container.get("args", ()))]
        given = {row["name"]: paths.rewrite(row.get("value", ""), out) for row in container.get("env", ())}
        environment = {**default_environment(), **self._environment, **given}
        done = subprocess.run(words, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST)
        return done.stdout, done.returncode


def _ended(pod: Object, code: int) -> Object:
    """The status that a kubelet writes."""
    container = pod["spec"]["containers"][0]
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
    return {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{**status, "state": state}]}}
