"""Packages in a build cache that lies in a registry, as this machine can list them before a run."""

import os
from pathlib import Path
from typing import Final

from steps.clients import certificates
from steps.clients.registry_client import RegistryClient, RegistryLimits
from steps.errors import Unreachable
from steps.softwarestack.cache import build_cache_registry
from steps.softwarestack.cache.build_cache_registry import RegistryStorage
from steps.softwarestack.contract.stack_input import CacheRegistry, prefix_digest
from workflows.engines import run_secrets
from workflows.engines.folders import StateFolder
from workflows.engines.run_secrets import SecretMissing
from workflows.softwarestack.stack_spec import StackSpec
from workflows.stages.host_access import secret_file

_TRIES: Final = 3
"""Tries of one request, so that a person learns within seconds that a registry is away."""


def hashes(registry: CacheRegistry, spec: StackSpec, folder: Path) -> frozenset[str]:
    """Return the hashes of the packages that the registry of a spec holds for its install root.

    Secret files are looked up from `folder`, that of the spec. Raises SecretMissing, and a StepError for an unreadable registry.
    """
    client, temporary = _client(registry, spec, folder), StateFolder.of_environment().store
    return RegistryStorage(client, prefix_digest(spec.publish.root), temporary).hashes()


def require_push(registry: CacheRegistry, spec: StackSpec, folder: Path) -> None:
    """Raise a StepError unless the login of a spec may push packages: a build may take hours before it is stored."""
    _client(registry, spec, folder).require_push()


def _client(registry: CacheRegistry, spec: StackSpec, folder: Path) -> RegistryClient:
    def text(name: str, certificates_of: str = "") -> str:
        file = secret_file(name, spec.secrets[name], certificates_of)
        return run_secrets.check_secret(file, run_secrets.read_secret(file, folder, os.environ)).decode().strip()

    field = "cache_access.ca"
    return build_cache_registry.registry_client(
        registry,
        password=text(registry.password) if registry.password else "",
        authorities=certificates.check_certificates(text(registry.ca, field), registry.ca, field) if registry.ca else (),
        limits=RegistryLimits(tries=_TRIES),
    )


def hashes_for_pods(spec: StackSpec, folder: Path) -> frozenset[str]:
    """Return the hashes of the packages in the build cache of pods, as far as this machine can read it.

    Where it cannot, each build finds out by itself: a cache in the run store of pods, a registry that only pods reach, or one whose
    password only they have.
    """
    if (registry := spec.cache_registry) is None:
        return frozenset()
    try:
        return hashes(registry, spec, folder)
    except (SecretMissing, Unreachable):
        return frozenset()
