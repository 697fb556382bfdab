"""Parts of the section `rke2`: access to registries, etcd snapshots, kubelet settings, and the virtual address of the servers."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from workflows.spec.fields import Argument, Listed, SecretRef, Section, Url, problem
from workflows.spec.sections import schedule

RegistryName = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z0-9.-]+(:[0-9]{1,5})?)$", max_length=260)]
"""Name of a registry as in image names, or `*` for every registry without an entry."""
Interface = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$")]
Image = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][A-Za-z0-9._/:-]*[:@][A-Za-z0-9._:-]+$", max_length=300)]
OWN_ARCHIVE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.tar(\.(gz|zst|bz2|lz4))?"
Archive = Annotated[str, StringConstraints(pattern=rf"^([a-z][a-z0-9-]{{1,30}}|{OWN_ARCHIVE})$")]
"""Name of an image archive: one of an RKE2 release, without the common parts of its name, or a file of the site."""
MAX_PODS, MAX_PODS_FIELD = "max-pods", "maxPods"
"""Names of the kubelet's limit of pods, which every plan states: as a flag, and as a field of KubeletConfiguration."""


def _check_flags(flags: Mapping[str, str]) -> Mapping[str, str]:
    if not re.fullmatch("[1-9][0-9]{0,4}", text := flags.get(MAX_PODS, "1")):
        raise problem(f"{MAX_PODS} is {text}, which is not a number of pods", f'write {MAX_PODS}: "250", or another number')
    return flags


def _check_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    number = fields.get(MAX_PODS_FIELD, 1)
    if type(number) is not int or not 0 < number < 100_000:
        raise problem(
            f"{MAX_PODS_FIELD} is {number!r}, which is not a number of pods", f"write {MAX_PODS_FIELD}: 250, without quotes"
        )
    return fields


KubeletArgs = Annotated[
    Mapping[
        Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,60}$")],
        Annotated[str, StringConstraints(pattern=r"^[^\n\x00]{1,300}$")],
    ],
    AfterValidator(_check_flags),
]
"""Kubelet flags without the leading dashes."""
KubeletConfig = Annotated[
    Mapping[Annotated[str, StringConstraints(pattern=r"^[a-z][A-Za-z0-9]{1,60}$")], Any], AfterValidator(_check_fields)
]
"""Fields of KubeletConfiguration."""

SECRET_PARTS = ("password", "ca", "cert", "key")


class RegistryAccess(Section):
    """An entry of `rke2.registries`: mirrors, login and certificates with which containerd reaches a registry.

    Login and certificates belong to the registry itself. Those of a mirror go into an entry that has the name of the mirror's host.
    """

    endpoints: Annotated[tuple[Url, ...], Listed, Field(max_length=10)] = Field(
        default=(),
        description="Mirrors, tried in order before the registry itself. A path is used as written and begins with /v2.",
        examples=[["https://mirror.example.org:5000"]],
    )
    rewrite: Mapping[Argument, Argument] = Field(
        default={},
        description="Regular expression over the repository of an image → its replacement at the mirrors.",
        examples=[{"^rancher/(.*)": "mirrored/$1"}],
    )
    username: Argument | None = Field(default=None, description="User for pulls; default: anonymous.", examples=["puller"])
    password: SecretRef | None = Field(default=None, description="Password or token of that user.")
    ca: SecretRef | None = Field(default=None, description="CA certificates (PEM) of the registry's server.")
    cert: SecretRef | None = Field(default=None, description="Client certificate (PEM).")
    key: SecretRef | None = Field(default=None, description="Key of the client certificate (PEM).")
    insecure: bool = Field(
        default=False, description="Whether every certificate of the server is accepted without verification.", examples=[False]
    )

    @model_validator(mode="after")
    def _pairs_are_whole(self) -> "RegistryAccess":
        for first, second in (("username", "password"), ("cert", "key")):
            if (getattr(self, first) is None) != (getattr(self, second) is None):
                raise problem(f"{first} and {second} belong together", f"give both {first} and {second}, or none")
        if self.rewrite and not self.endpoints:
            raise problem("rewrite changes names at mirrors, and there are no mirrors", "add endpoints, or remove rewrite")
        if not self.endpoints and not self.access:
            fix = "write endpoints: [https://REGISTRY] to use it directly instead of the mirrors of *, or remove the entry"
            raise problem("the entry of this registry has no effect", fix)
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the endpoints, by the names under which RKE2 looks up logins and certificates."""
        hosts = (urlsplit(url).netloc for url in self.endpoints)
        return tuple("docker.io" if host == "registry-1.docker.io" else host for host in hosts)

    @property
    def access(self) -> tuple[str, ...]:
        """The keys of this entry that are given and say how to connect to the registry itself: username, ca, cert, insecure."""
        return tuple(key for key in ("username", "ca", "cert", "insecure") if getattr(self, key))


Schedule = Annotated[
    str,
    StringConstraints(max_length=100),
    AfterValidator(lambda text: schedule.check(text, "it counts in the time zone of the servers")),
]
"""Cron line of five fields. It is checked here, because RKE2 ignores an unreadable one silently, and then makes no snapshot."""


class EtcdSnapshots(Section):
    """Section `rke2.etcd_snapshots`: when servers save snapshots of etcd to their disks, and how many they keep."""

    schedule: Schedule = Field(
        default="0 */12 * * *", description="Five cron fields in the time zone of the servers.", examples=["0 */6 * * *"]
    )
    keep: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=5, description="Number of snapshots kept on each server.", examples=[10]
    )


class VirtualAddress(Section):
    """kube-vip on every server: one server answers at the registration address, and another one takes over if it dies."""

    interface: Interface = Field(description="Interface of the servers that gets the address.", examples=["eth0"])
    image: Image = Field(
        default="ghcr.io/kube-vip/kube-vip:v1.0.1",
        description="Image of kube-vip.",
        examples=["registry.example.org:5000/kube-vip/kube-vip:v1.0.1"],
    )


def registry_secrets(registries: Mapping[str, RegistryAccess]) -> Iterator[tuple[str, str, str, SecretRef]]:
    """Yield (secret file name, registry, key of its entry, reference) for every secret of `rke2.registries`.

    File names have the number of the registry in the order of names.
    """
    for number, name in enumerate(sorted(registries), 1):
        for part in SECRET_PARTS:
            reference = getattr(registries[name], part)
            if reference is not None:
                yield f"registry_{number}_{part}", name, part, reference
