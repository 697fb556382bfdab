"""The kubeconfig by which clients reach the emulated server."""

import base64
import os
import tempfile
from pathlib import Path

import yaml

CLUSTER = "emulated"


def text(url: str, token: str, authority: str = "") -> str:
    """A kubeconfig with one cluster, one user (a bearer token) and one context. `authority` is a PEM certificate."""
    trust = {"certificate-authority-data": base64.b64encode(authority.encode()).decode()} if authority else {}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": {"server": url, **trust}}],
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
