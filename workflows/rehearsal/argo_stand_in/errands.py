"""Pods that are not Argo's (short pods that read or write the store) run as processes, where no kubelet does it."""

import subprocess
import threading
from pathlib import Path
from typing import Any

from steps.clients.kube_http import ApiError
from workflows.engines.argo.home import Home, Where
from workflows.engines.argo.pods import ERRAND
from workflows.engines.local.driver import default_environment
from workflows.rehearsal.argo_stand_in import mounts
from workflows.rehearsal.argo_stand_in.pods import write_log

__all__ = ["ERRAND", "Errands"]

Object = dict[str, Any]
LONGEST = 60.0


class Errands:
    """Runs each such pod once, one thread a pod."""

    def __init__(self, where: Where, folder: Path, store: Path, ways: Any) -> None:
        self._where, self._folder, self._store = where, folder / "errands", store
        self._environment = ways.environment
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
        for thread in self._threads:
            thread.join()

    def _run(self, pod: Object) -> None:
        home, name, (container, *_) = Home(self._where), pod["metadata"]["name"], pod["spec"]["containers"]
        folder = self._folder / name
        paths = mounts.lay_out(home, pod["spec"].get("volumes") or (), folder, self._store)
        (folder / "out").mkdir(exist_ok=True)
        words = [paths.rewrite(word, folder / "out") for word in (*container["command"], *container.get("args", ()))]
        given = {row["name"]: paths.rewrite(row.get("value", ""), folder / "out") for row in container.get("env", ())}
        environment = {**default_environment(), **self._environment, **given}
        done = subprocess.run(words, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST)
        state = {"terminated": {"exitCode": done.returncode, "reason": "Completed" if not done.returncode else "Error"}}
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
        phase = "Failed" if done.returncode else "Succeeded"
        patch = {"status": {"phase": phase, "containerStatuses": [{**status, "state": state}]}}
        try:
            write_log(home, name, done.stdout, container["name"])
            home.ask(lambda kube: kube.merge(f"{home.core('pods', name)}/status", patch))
        except ApiError as error:
            if error.status != 404:  # whoever asked did not wait
                raise
