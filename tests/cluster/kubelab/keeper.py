"""The whole state of a rehearsal on a real API server: objects in etcd, and logs of simulated pods in a folder."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from kubelab.control_plane import ControlPlane


@dataclass(frozen=True)
class RealState:
    """What a stand sets back between two cases."""

    plane: ControlPlane
    logs: Path

    def snapshot(self) -> bytes:
        """Objects and logs as they are now."""
        kept = {str(path.relative_to(self.logs)): path.read_text() for path in self.logs.rglob("*") if path.is_file()}
        return json.dumps({"objects": self.plane.snapshot().decode(), "logs": kept}).encode()

    def restore(self, snapshot: bytes, /) -> None:
        """Make both what they were."""
        found = json.loads(snapshot)
        self.plane.restore(found["objects"].encode())
        for part in self.logs.iterdir():
            shutil.rmtree(part)
        for name, text in found["logs"].items():
            path = self.logs / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
