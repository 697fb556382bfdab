"""What a run is begun with, as its journal keeps it, and what its children have in their environment."""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from workflows.engines.local.paths import RunPaths

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
WAY_OUT = (*_PROXIES, *(name.upper() for name in _PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR")
"""By which proxies, and trusting whose certificates, this machine reaches mirrors, Git servers and webhooks. Requests to a
Kubernetes API use no proxy; plays and what builds layers have environments of their own."""
INHERITED = ("HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SSH_AUTH_SOCK", *WAY_OUT)


def default_environment() -> dict[str, str]:
    """What children get when the caller gives nothing: this interpreter first on PATH, a few harmless variables, no secrets but the
    login that may stand in a proxy's URL."""
    found = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**found, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


class Settings(msgspec.Struct, frozen=True):
    """What a run was begun with; kept in the journal, without the environment (it may hold what no file should)."""

    manifest: dict[str, Any]
    templates: dict[str, dict[str, Any]]
    paths: tuple[str, str, str, str]
    private_tmp: bool
    parallelism: int
    grace: float
    token: str

    def run_paths(self) -> RunPaths:
        """The folders as paths."""
        tasks, fleet, secret, store = (Path(path) for path in self.paths)
        return RunPaths(tasks, fleet, secret, store, self.private_tmp)
