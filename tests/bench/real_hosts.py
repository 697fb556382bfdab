"""Real SSH hosts for measuring, made as `tests/hosts` makes them."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "tests/hosts")]

from hostlab import debian, lab, needs, profile  # noqa: E402  below the path that it is found by

__all__ = ["debian", "lab", "needs", "profile"]
