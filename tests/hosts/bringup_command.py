"""The command line `bringup`, called beside a spec with runs of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BRINGUP = Path(sys.executable).with_name("bringup")


@dataclass(frozen=True)
class Command:
    """`folder` is where the spec lies, `home` where the runs do."""

    folder: Path
    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def call(self, *arguments: str | Path, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `check`: it must pass."""
        done = subprocess.run([BRINGUP, *arguments], **self._settings, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def report(self) -> dict[str, Any]:
        """The report of the newest run."""
        return dict(json.loads(self.call("report", "-o", "json", check=True).stdout))

    def release(self) -> list[str]:
        """Let the hosts that the newest run set aside take part again; which they were."""
        rows = json.loads(self.call("quarantine", "list", "-o", "json", check=True).stdout)
        names = [str(row["node"]) for row in rows if not row["released"]]
        if names:
            self.call("quarantine", "release", *names, "--as", "tests@example.org", check=True)
        return names

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[str]:
        """Start a command; what it prints is added to the log."""
        with log.open("a") as out:
            return subprocess.Popen([BRINGUP, *arguments], **self._settings, stdout=out, stderr=subprocess.STDOUT, text=True)

    @property
    def _settings(self) -> dict[str, Any]:
        own = {"BRINGUP_HOME": str(self.home), "NO_COLOR": "1"}
        return {"cwd": self.folder, "env": {**os.environ, **own, **self.environment}}
