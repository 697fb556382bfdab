"""Volumes of a pod as local folders: ConfigMaps and Secrets read from the API, and a claim as the folder of the run store."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from workflows.engines.argo.home import Home
from workflows.engines.local.run_settings import RunPaths

Object = dict[str, Any]


class NotMounted(ValueError):
    """A volume refers to an object that does not exist; a real pod would wait for it."""


T = TypeVar("T")
_SERVICE = r"[a-z0-9-]+\.{}\.svc\b"


def reached_here(value: T, namespace: str) -> T:
    """Return data in which the DNS names of Services are this machine's loopback address: their pods are processes here."""
    text = re.sub(_SERVICE.format(re.escape(namespace)), "127.0.0.1", json.dumps(value))
    found: T = json.loads(text)
    return found


def lay_out(home: Home, volumes: Iterable[Object], folder: Path, store: Path) -> RunPaths:
    """Create the folders of a run and fill them from its volumes; a volume's name is the folder's. Raises NotMounted."""
    paths = RunPaths(folder / "tasks", folder / "fleet", folder / "secrets", store)
    paths.make()
    for volume in volumes:
        for source in volume.get("projected", {}).get("sources", ()):
            _secret(home, source["secret"], paths.secrets)
        if "configMap" in volume:
            document = _object(home, "configmaps", volume["configMap"]["name"])
            if document is None:
                raise NotMounted(f"volume {volume['name']}: there is no ConfigMap {volume['configMap']['name']}")
            _files(folder / volume["name"], {name: text.encode() for name, text in (document.get("data") or {}).items()})
            _files(
                folder / volume["name"], {name: base64.b64decode(text) for name, text in (document.get("binaryData") or {}).items()}
            )
    return paths


def _secret(home: Home, source: Object, folder: Path) -> None:
    document = _object(home, "secrets", source["name"]) or {}
    data = document.get("data") or {}
    items = [item for item in source.get("items", ()) if item["key"] in data]
    _files(folder, {item["path"]: base64.b64decode(data[item["key"]]) for item in items}, 0o600)


def _object(home: Home, kind: str, name: str) -> Object | None:
    return home.ask(lambda kube: kube.get(home.core(kind, name), dict[str, Any]))


def _files(folder: Path, files: Mapping[str, bytes], mode: int = 0o644) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / name
        path.touch(mode)
        path.write_bytes(data)
