"""Place of a stack's build cache in a spec, and access to it: a folder that all builders mount, or a repository of a registry."""

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from steps.softwarestack.contract.stack_input import CacheRegistry
from workflows.spec.fields import SecretRef, Section, problem

CACHE_CA, CACHE_PASSWORD = "cache_ca", "cache_password"
"""Names of files in the secrets folder: CA certificates and password of the registry with the build cache."""
OCI: Final = "oci://"
_SCHEME: Final = re.compile(r"([A-Za-z0-9+]{1,10})://")
_HOST: Final = r"([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9a-fA-F:.]{2,45}\])(:[0-9]{1,5})?"
_PART: Final = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_PLACE: Final = rf"^(/[^\x00\n]{{0,1000}}|oci://{_HOST}/{_PART}(/{_PART})*)$"
_LOCAL: Final = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?")


def _supported(value: object) -> object:
    scheme = _SCHEME.match(value) if isinstance(value, str) else None
    if scheme is None:
        return value
    if scheme[1] != "oci":
        raise problem(
            f"the build cache is a folder or in a registry in this version: nothing reads or writes one at {scheme[1]}://",
            "write oci://REGISTRY/REPOSITORY (registries keep blobs in object storage too), or a folder that all builders mount",
        )
    if not re.match(_PLACE, str(value)):
        raise problem(
            f"{str(value)[:100]} is no repository of a registry",
            "write oci://REGISTRY[:PORT]/REPOSITORY, with lower-case letters, digits and . _ - in the names of the repository",
        )
    return value


CachePlace = Annotated[str, BeforeValidator(_supported), StringConstraints(pattern=_PLACE, max_length=1001)]
"""Absolute path of a folder, or oci://REGISTRY[:PORT]/REPOSITORY."""


class CacheAccess(Section):
    """Section `cache_access` of `stack.yaml`: how the registry of the build cache is reached."""

    username: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f:]{1,200}$")] | None = Field(
        default=None, description="User who may pull and push; default: anonymous.", examples=["builder"]
    )
    password: SecretRef | None = Field(default=None, description="Password or token of that user.")
    ca: SecretRef | None = Field(
        default=None,
        description="CA certificates (PEM) of the registry; default: those that the machine, or the builder image, trusts.",
    )
    plain_http: bool | None = Field(
        default=None, description="Whether the registry speaks HTTP without TLS; default: only at localhost.", examples=[True]
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "CacheAccess":
        if (self.username is None) != (self.password is None):
            raise problem("username and password belong together", "give both, or none")
        if self.plain_http and self.ca is not None:
            raise problem("without TLS no server shows a certificate", "leave out plain_http, or ca")
        return self


def is_local(place: str) -> bool:
    """Return True if the registry of a build cache is one of this machine alone."""
    return _LOCAL.fullmatch(place.removeprefix(OCI).partition("/")[0]) is not None


def registry_of(place: str | None, access: CacheAccess | None) -> CacheRegistry | None:
    """Return the registry of a build cache; None for a folder, and for the cache of the run store. Raises for access that it lacks.

    The problems are those of a spec.
    """
    if place is None or not place.startswith(OCI):
        if access is not None:
            raise problem("cache_access is about a registry, and cache names none", "write cache: oci://REGISTRY/REPOSITORY")
        return None
    wanted = access or CacheAccess()
    host, _, repository = place.removeprefix(OCI).partition("/")
    is_plain = is_local(place) and wanted.ca is None if wanted.plain_http is None else wanted.plain_http
    if is_plain and wanted.password is not None and not is_local(place):
        raise problem("the password would cross the network in clear", "leave out plain_http, or username and password")
    return CacheRegistry(
        url=f"{'http' if is_plain else 'https'}://{host}",
        repository=repository,
        username=wanted.username or "",
        password=CACHE_PASSWORD if wanted.password is not None else "",
        ca=CACHE_CA if wanted.ca is not None else "",
    )
