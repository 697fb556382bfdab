"""A small HTTP client for an API server, and bodies to send to it."""

import json
import select
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import urllib3
import yaml

JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: Any = field(default_factory=dict)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))


class Cluster:
    """Requests against one server; bodies go out and come in as JSON."""

    def __init__(self, url: str, token: str, real: bool = False) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.url, self.real = url, real
        self._headers = {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(ssl_context=context if url.startswith("https") else None, retries=False)

    def call(self, method: str, path: str, body: Any = None, *, content: str = "application/json", **headers: str) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = self._headers | ({"Content-Type": content} if data is not None else {}) | headers
        answer = self._pool.request(method, self.url + path, body=data, headers=sent)
        text = answer.data
        parsed = json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text
        return Answer(answer.status, parsed, answer.headers)

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any) -> Answer:
        return self.call("POST", path, body)

    def put(self, path: str, body: Any) -> Answer:
        return self.call("PUT", path, body)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.call("DELETE", path, body)

    def patch(self, path: str, body: Any, content: str = MERGE) -> Answer:
        return self.call("PATCH", path, body, content=content)

    def apply(self, path: str, body: Any, manager: str, *, force: bool = False) -> Answer:
        return self.patch(f"{path}?fieldManager={manager}&force={str(force).lower()}", body, APPLY)

    def watch(self, path: str, seconds: int = 60) -> Iterator[Any]:
        """Events as they come, until the server ends the watch."""
        mark = "&" if "?" in path else "?"
        address = f"{self.url}{path}{mark}watch=true&timeoutSeconds={seconds}"
        answer = self._pool.request("GET", address, headers=self._headers, preload_content=False)
        buffer = b""
        for chunk in answer.stream(65536):
            *lines, buffer = (buffer + chunk).split(b"\n")
            yield from map(json.loads, lines)
        answer.release_conn()

    def revision(self, path: str) -> str:
        return str(self.get(f"{path}?limit=1").body["metadata"]["resourceVersion"])

    def close(self) -> None:
        self._pool.clear()


def of_kubeconfig(text: str, *, real: bool) -> Cluster:
    config = yaml.safe_load(text)
    return Cluster(config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"], real)


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    idle, end = select.poll(), time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "condition not reached"
        idle.poll(20)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]} | spec}


def definition(group: str, open_api: dict[str, Any], /, **version: Any) -> dict[str, Any]:
    """A CRD `things.GROUP` with one version v1."""
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "shortNames": ["th"]}
    row = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": open_api}} | version
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [row]}
    return {"metadata": {"name": f"things.{group}"}, "spec": spec}


def thing(path: str, named: str, /, **spec: Any) -> dict[str, Any]:
    group = path.split("/")[2]
    return {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": named}, "spec": spec}
