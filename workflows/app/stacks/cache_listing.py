"""Packages in a build cache that lies in a registry, as this machine can list them before a run."""

import os
from pathlib import Path
from typing import Final

from steps.clients import certificates
from steps.clients.registry_client import RegistryClient, RegistryLimits
from steps.clients.secret_file import has_private_key
from steps.errors import StepError
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


class PrivateKeyGiven(SecretMissing):
    """Exception: a private key stands where the login of a registry is wanted. It is sent nowhere."""


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
        content = run_secrets.check_secret(file, run_secrets.read_secret(file, folder, os.environ)).decode().strip()
        if has_private_key(content):
            raise PrivateKeyGiven(f"secret {name} has a private key, which no registry may see", "correct cache_access in the spec")
        return content

    field = "cache_access.ca"
    return build_cache_registry.registry_client(
        registry,
        password=text(registry.password) if registry.password else "",
        authorities=certificates.check_certificates(text(registry.ca, field), registry.ca, field) if registry.ca else (),
        limits=RegistryLimits(tries=_TRIES),
    )


def listed(registry: CacheRegistry, spec: StackSpec, folder: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the hashes of `hashes`, or none with a sentence for people if this machine cannot read the registry.

    Pods may reach a registry that a laptop does not, trust another CA, or have a password that only they have: then each build asks
    by itself for its package. Raises PrivateKeyGiven, which is an error of the spec everywhere.
    """
    try:
        return hashes(registry, spec, folder), ()
    except PrivateKeyGiven:
        raise
    except (SecretMissing, StepError) as error:
        sentence = f"the build cache {spec.cache} cannot be listed from here, so every package counts as a build: {error}"
        return frozenset(), (sentence,)
