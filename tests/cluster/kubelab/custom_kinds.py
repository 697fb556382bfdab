"""Large definitions of custom kinds: a real API server takes them once, others find them in their etcd as that one left them.

To take Argo's full CRDs costs kube-apiserver 15 to 20 s of CPU each time, and 4 s to find them.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path

from kubelab import parts, state
from kubelab.control_plane import ControlPlane

KEYS = "/registry/apiextensions.k8s.io/customresourcedefinitions/"


def install(plane: ControlPlane, folder: Path) -> None:
    """Let an API server serve all kinds that the files of a folder define. What it made of them is kept by content."""
    kept = parts.cache() / "custom-kinds" / f"{_digest(plane, folder)}.json"
    if kept.exists():
        state.put(plane.etcd, json.loads(kept.read_bytes()))
    else:
        said = plane.kubectl("apply", "--server-side", "-f", str(folder), "-o", "name")
        names = [line.rpartition("/")[2] for line in said.split()]
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *names)
        _keep(kept, json.dumps(state.of(plane.etcd, [KEYS + name for name in names])))
    plane.until_served()


def _digest(plane: ControlPlane, folder: Path) -> str:
    """Of the files, and of the program that takes them."""
    made = hashlib.sha256(str(plane.programs["kube-apiserver"].parent.name).encode())
    for path in sorted(folder.iterdir()):
        made.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()[:16]


def _keep(kept: Path, text: str) -> None:
    """Two who make it at once write the same file one after the other."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, kept)
