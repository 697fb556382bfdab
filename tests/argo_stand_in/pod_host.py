"""The kubelet's part for pods without a kubelet: a place on a node, a log, and removal after deletion."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.clients.kube.api import ApiError, Http
from steps.errors import Refused
from workflows.engines.argo.home import Home

Object = dict[str, Any]
SCHEDULER = "argo-stand-in"
"""Name of a scheduler that does not exist, so that a real cluster leaves the pods alone."""
EMULATION_LOGS = "/emulation/logs"


@dataclass(frozen=True, kw_only=True)
class PodHost:
    """The node on which pods are shown, a Node without kubelet, and the folder from which another process serves their logs.

    Both are empty for an emulated API server, which keeps logs itself; a real one reads them from the node's kubelet port.
    """

    node: str = ""
    logs: Path | None = None

    def spec(self) -> Object:
        """Return the fields of a pod's spec that keep every scheduler and kubelet away from it."""
        return {"schedulerName": SCHEDULER, **({"nodeName": self.node} if self.node else {})}

    def bind(self, home: Home, pod: str) -> None:
        """Bind a pod to the node, as a scheduler does."""
        if not self.node:
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        meta = {"name": pod, "namespace": home.namespace}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        _request(home, "POST", f"{home.core('pods', pod)}/binding", binding)

    def holds(self, pod: Object) -> bool:
        """Return True if the pod is on this node, so that nobody else would remove it after a delete."""
        return bool(self.node) and pod["spec"].get("nodeName") == self.node

    def remove(self, home: Home, pod: Object) -> None:
        """Remove a deleted pod, as a kubelet does once its containers have ended."""
        _request(home, "DELETE", home.core("pods", pod["metadata"]["name"]), {"gracePeriodSeconds": 0})

    def write(self, home: Home, pod: str, text: bytes, container: str = "main") -> bool:
        """Append to a pod's log. Return False if nothing serves the log."""
        if self.logs is not None:
            kept = self.logs / home.namespace / pod / container
            kept.parent.mkdir(parents=True, exist_ok=True)
            with kept.open("ab") as file:
                file.write(text)
            return True
        try:
            path = f"{EMULATION_LOGS}/{home.namespace}/{pod}/{container}"
            Http(home.access).request("POST", path, body=text, content_type="text/plain")
        except Refused:
            return False
        except ApiError as error:
            if error.status in (404, 405):
                return False
            raise
        return True


def _request(home: Home, method: str, path: str, body: Object) -> None:
    try:
        Http(home.access).request(method, path, body=body)
    except ApiError as error:
        if error.status not in (404, 409):  # gone or done by an earlier try
            raise
