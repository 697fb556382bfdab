"""The commented file that `bringup init` writes: valid as it stands, so the first edit starts from something that works."""

from __future__ import annotations

from pathlib import Path


def starter() -> str:
    """Return the starter `cluster.yaml` with its comments."""
    return (Path(__file__).parent / "starter.yaml").read_text(encoding="utf-8")
