"""systemd units that rebuild a factory on a schedule from an admin's machine, with the embedded engine."""

import re
import tempfile
from pathlib import Path

from steps.clients import process
from workflows.spec import FactorySpec

_PLAIN = re.compile(r"/[A-Za-z0-9._/+@-]+")
"""Paths that need no quoting in a unit file."""


class NoTimer(ValueError):
    """Error for a spec without a calendar, for paths that a unit file cannot hold plainly, or for units that systemd refuses."""


def unit_files(spec: FactorySpec, path: Path, program: Path, home: Path) -> dict[str, str]:
    """Return name → text of service and timer. `program` is bringup, `home` its BRINGUP_HOME. Raises NoTimer.

    systemd starts no second run while one goes on, and runs a missed time after the machine is up again.
    """
    if spec.rebuild.calendar is None:
        raise NoTimer("the spec has no rebuild.calendar, so no timer starts a rebuild")
    for name in (path, program, home):
        if not _PLAIN.fullmatch(str(name)):
            raise NoTimer(
                f"{name} has characters that a unit file needs to quote: choose a path of letters, digits, dots and dashes"
            )
    unit = f"bringup-factory-{spec.name}"
    service = (
        f"[Unit]\nDescription=Rebuild of factory {spec.name}\nWants=network-online.target\nAfter=network-online.target\n\n"
        f"[Service]\nType=oneshot\nEnvironment=BRINGUP_HOME={home}\nWorkingDirectory={path.parent}\n"
        f"ExecStart={program} factory rebuild {path} --yes\n"
        # a rebuild refused for now (65) or temporarily failed (75) is tried at the next time, and shows as failed until then
        "TimeoutStartSec=6h\nNoNewPrivileges=yes\nPrivateTmp=yes\n"
    )
    timer = (
        f"[Unit]\nDescription=Schedule of the rebuild of factory {spec.name}\n\n"
        f"[Timer]\nOnCalendar={spec.rebuild.calendar}\nPersistent=yes\nAccuracySec=1min\nUnit={unit}.service\n\n"
        "[Install]\nWantedBy=timers.target\n"
    )
    return {f"{unit}.service": service, f"{unit}.timer": timer}


def verify(files: dict[str, str]) -> None:
    """Have systemd-analyze check the units. Raises NoTimer with its first complaint, and BadTask if it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in files]
        for path in paths:
            path.write_text(files[path.name])
        done = process.run(["systemd-analyze", "verify", "--man=no", *map(str, paths)])
        complaints = [line for line in done.err.splitlines() if folder in line or "OnCalendar" in line]
    if done.code or complaints:
        raise NoTimer(f"systemd refuses the units: {(complaints or done.err.splitlines() or ['no reason'])[0]}")
