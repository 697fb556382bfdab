"""Runs every bench command, one after the other; ends non-zero if one printed SHORT or broke."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NO_COMMANDS = ("all", "argo_followed", "argo_home", "argo_played", "figures")
"""What the commands share, and this one."""


def main() -> int:
    """Run them."""
    commands = [path for path in sorted(HERE.glob("*.py")) if path.stem not in NO_COMMANDS]
    short = [path.stem for path in commands if subprocess.run([sys.executable, str(path)], check=False).returncode]
    print(f"SHORT: {', '.join(short)}" if short else "PASS: all figures are within their limits")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
