"""What a rehearsed stage is given: the commit that an earlier one delivered, and stand-ins of the secrets that it reads."""

import shutil
from pathlib import Path

from steps.contract.delivery import RECORD
from workflows.plan.model import Plan
from workflows.stages.access import GIT_CA, GIT_CREDENTIALS, GIT_KNOWN_HOSTS

_CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIA0zCCAIWgAwIBAgIBATAFBgMrZXAwEzERMA8GA1UEAwwIc3RhbmQtaW4wHhcN
MjAwMTAxMDAwMDAwWhcNNDkxMjMxMjM1OTU5WjATMREwDwYDVQQDDAhzdGFuZC1p
bjAqMAUGAytlcAMhAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAMAUG
AytlcANBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
-----END CERTIFICATE-----
"""
"""Of `stand-in`, signed by nobody: no server can have it, for its key is zeros."""
STAND_INS = {
    GIT_CREDENTIALS: "rehearsal:simulated-password-1\n",
    GIT_CA: _CERTIFICATE,
    GIT_KNOWN_HOSTS: "* ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000\n",
}
"""Simulated hosts need no secrets, but the target gets these: what Argo CD is told is looked at."""


def secrets(plan: Plan, folder: Path) -> None:
    """Write stand-ins of the secrets that the plan names into its secrets folder."""
    for file in plan.secrets:
        if file.name in STAND_INS:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / file.name).write_text(STAND_INS[file.name])


def delivered(source: Path, target: Path) -> None:
    """Copy `delivery.json` from one folder to another, where there is one."""
    if (source / RECORD).exists():
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / RECORD, target / RECORD)
