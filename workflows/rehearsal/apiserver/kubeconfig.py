"""The kubeconfig by which clients reach the emulated server."""

import os
import tempfile
from pathlib import Path

import yaml

CLUSTER = "emulated"


def text(url: str, token: str) -> str:
    """A kubeconfig with one cluster, one user (a bearer token) and one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": {"server": url}}],
        "users": [{"name": CLUSTER, "user": {"token": token}}],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": CLUSTER}}],
        "current-context": CLUSTER,
    }
    return yaml.safe_dump(config, sort_keys=False)


def write(path: Path, content: str) -> None:
    """Writes the file with mode 0600 and all at once: who sees it sees it whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(content)
    Path(name).replace(path)
