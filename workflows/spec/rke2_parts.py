"""Parts of the section `rke2`: access to registries, saves of etcd, and the virtual address that servers hold themselves."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from workflows.spec import cron
from workflows.spec.fields import Argument, Listed, SecretRef, Section, Url, problem

RegistryName = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z0-9.-]+(:[0-9]{1,5})?)$", max_length=260)]
"""A registry as image names have it, or * for every one that is not named."""
Interface = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$")]
Image = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][A-Za-z0-9._/:-]*[:@][A-Za-z0-9._:-]+$", max_length=300)]
OWN_ARCHIVE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.tar(\.(gz|zst|bz2|lz4))?"
Archive = Annotated[str, StringConstraints(pattern=rf"^([a-z][a-z0-9-]{{1,30}}|{OWN_ARCHIVE})$")]
"""A release's archive of images, without what all their names have; or the file name of one of the site's own."""
MAX_PODS, MAX_PODS_FIELD = "max-pods", "maxPods"
"""The one setting of the kubelet that every spec says, by flag and by field."""


def _check_flags(flags: Mapping[str, str]) -> Mapping[str, str]:
    if not re.fullmatch("[1-9][0-9]{0,4}", text := flags.get(MAX_PODS, "1")):
        raise problem(f"{MAX_PODS} is {text}, which is no number of pods", f'write {MAX_PODS}: "250", or another number')
    return flags


def _check_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    number = fields.get(MAX_PODS_FIELD, 1)
    if type(number) is not int or not 0 < number < 100_000:
        raise problem(f"{MAX_PODS_FIELD} is {number!r}, which is no number of pods", f"write {MAX_PODS_FIELD}: 250, without quotes")
    return fields


KubeletArgs = Annotated[
    Mapping[
        Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{1,60}$")],
        Annotated[str, StringConstraints(pattern=r"^[^\n\x00]{1,300}$")],
    ],
    AfterValidator(_check_flags),
]
"""Flags of the kubelet without the dashes."""
KubeletConfig = Annotated[
    Mapping[Annotated[str, StringConstraints(pattern=r"^[a-z][A-Za-z0-9]{1,60}$")], Any], AfterValidator(_check_fields)
]
"""Fields of KubeletConfiguration."""

SECRET_PARTS = ("password", "ca", "cert", "key")


class RegistryAccess(Section):
    """How containerd reaches one registry. Login and certificates are of the registry itself: a mirror's stand in an entry that is
    named as the mirror's host."""

    endpoints: Annotated[tuple[Url, ...], Listed, Field(max_length=10)] = Field(
        default=(),
        description="Mirrors, tried in order before the registry itself; a path is taken as it is, and begins with /v2.",
        examples=[["https://mirror.example.org:5000"]],
    )
    rewrite: Mapping[Argument, Argument] = Field(
        default={},
        description="Regular expression over an image's repository → what it becomes at the mirrors.",
        examples=[{"^rancher/(.*)": "mirrored/$1"}],
    )
    username: Argument | None = Field(default=None, description="User that pulls.", examples=["puller"])
    password: SecretRef | None = Field(default=None, description="Password or token of that user.")
    ca: SecretRef | None = Field(default=None, description="CA certificates (PEM) of the registry's server.")
    cert: SecretRef | None = Field(default=None, description="Client certificate (PEM).")
    key: SecretRef | None = Field(default=None, description="Key of the client certificate (PEM).")
    insecure: bool = Field(default=False, description="Whether any certificate of the server is taken.", examples=[False])

    @model_validator(mode="after")
    def _pairs_are_whole(self) -> "RegistryAccess":
        for one, other in (("username", "password"), ("cert", "key")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise problem(f"{one} and {other} belong together", f"give both {one} and {other}, or none")
        if self.rewrite and not self.endpoints:
            raise problem("rewrite changes names at mirrors, and there is none", "add endpoints, or remove rewrite")
        if not self.endpoints and not self.access:
            fix = "write endpoints: [https://REGISTRY] to have it asked itself and not at mirrors of *, or remove the entry"
            raise problem("nothing is said of this registry", fix)
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """The registries that the endpoints are, by the names that RKE2 looks up logins and certificates by."""
        hosts = (urlsplit(url).netloc for url in self.endpoints)
        return tuple("docker.io" if host == "registry-1.docker.io" else host for host in hosts)

    @property
    def access(self) -> tuple[str, ...]:
        """The keys given that say how the registry itself is asked."""
        return tuple(key for key in ("username", "ca", "cert", "insecure") if getattr(self, key))


def _schedule(text: str) -> str:
    return cron.check(text, "it counts in the time zone of the servers")


Schedule = Annotated[str, StringConstraints(max_length=100), AfterValidator(_schedule)]
"""Five cron fields. RKE2 says nothing of a line that it cannot read, and saves nothing."""


class EtcdSnapshots(Section):
    """When servers save etcd to their disks."""

    schedule: Schedule = Field(default="0 */12 * * *", description="When, in cron's words.", examples=["0 */6 * * *"])
    keep: Annotated[int, Field(ge=1, le=1000)] = Field(default=5, description="How many saves stay on each server.", examples=[10])


class VirtualAddress(Section):
    """kube-vip on every server: one of them answers at the registration address, and another where that one dies."""

    interface: Interface = Field(description="NIC of the servers that takes the address.", examples=["eth0"])
    image: Image = Field(
        default="ghcr.io/kube-vip/kube-vip:v1.0.1",
        description="Image of kube-vip.",
        examples=["registry.example.org:5000/kube-vip/kube-vip:v1.0.1"],
    )


def registry_secrets(registries: Mapping[str, RegistryAccess]) -> Iterator[tuple[str, str, str, SecretRef]]:
    """Name of the secret file, registry, part, and reference of every secret; numbered in the order of the registries' names."""
    for number, name in enumerate(sorted(registries), 1):
        for part in SECRET_PARTS:
            reference = getattr(registries[name], part)
            if reference is not None:
                yield f"registry_{number}_{part}", name, part, reference
