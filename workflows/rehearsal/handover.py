"""Inputs of a rehearsed stage: the commit that an earlier stage delivered, and stand-ins for the secrets that it reads."""

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
"""A certificate of the host name `stand-in` whose public key is all zeros, so that no server can own it."""
STAND_INS = {
    GIT_CREDENTIALS: "rehearsal:simulated-password-1\n",
    GIT_CA: _CERTIFICATE,
    GIT_KNOWN_HOSTS: "* ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000\n",
}
"""Stand-ins for secrets by name. Simulated hosts need none, but the gates look at the copies that Argo CD gets in the target."""


def write_stand_in_secrets(plan: Plan, folder: Path) -> None:
    """Write stand-ins for the secrets that the plan names into a folder."""
    for file in plan.secrets:
        if file.name in STAND_INS:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / file.name).write_text(STAND_INS[file.name])


def copy_delivery(source: Path, target: Path) -> None:
    """Copy `delivery.json` from one folder to another if it exists."""
    if (source / RECORD).exists():
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / RECORD, target / RECORD)
