"""The key with which this machine signs the seals of its runs: made at first use, in `BRINGUP_HOME/keys`."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

from steps.clients import process
from steps.errors import StepError
from workflows.engines.folders import StateFolder

FOLDER = "keys"
NAME = "seal"


def path(home: StateFolder) -> Path:
    """Return the path of the private key; its public key lies beside it, with the ending `.pub`."""
    return home.root / FOLDER / NAME


def ensure(home: StateFolder) -> Path | None:
    """Return the private key's path, and make the key if there is none; None where that is not possible, as without ssh-keygen.

    A run is sealed without a signature then. The key has no passphrase, since nobody is there when a run ends.
    """
    key = path(home)
    try:
        if not key.exists():
            _make(key)
    except (OSError, StepError):
        return None
    return key


def _make(key: Path) -> None:
    key.parent.mkdir(parents=True, exist_ok=True)
    key.parent.chmod(0o700)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=key.parent) as folder:
        fresh = Path(folder, NAME)
        comment = f"bringup on {socket.gethostname()}"
        done = process.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(fresh)])
        if done.code != 0:
            raise OSError(0, done.err.strip(), str(key))
        public = key.with_suffix(".pub")
        try:
            os.link(fresh, key)  # fails if another command was first, whose key then counts
        except FileExistsError:
            return
        shutil.copyfile(fresh.with_suffix(".pub"), public)


def public_key(home: StateFolder) -> str:
    """Return this machine's public key as one line, empty if it has none."""
    try:
        return path(home).with_suffix(".pub").read_text().strip()
    except OSError:
        return ""
