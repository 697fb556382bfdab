"""The model of `factory.yaml`, and the base that it shares with `image.yaml` and `stack.yaml`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from workflows.spec.fields import (
    AbsolutePath,
    ChartVersion,
    ClusterName,
    Section,
    Text,
    problem,
)
from workflows.spec.hosts import Hosts
from workflows.spec.infrastructure import OsSettings, Rke2Settings, SshSettings
from workflows.spec.loading import load_as
from workflows.spec.schedule import Schedule
from workflows.spec.services import Storage


def stays_below(path: str) -> bool:
    """Return True if a relative path stays in the spec's folder: it has neither `/` at its start nor `..`."""
    return not path.startswith("/") and ".." not in path.split("/")


def _stays_below(path: str) -> str:
    if not stays_below(path):
        raise problem("the path leads outside the folder of the spec", "give a path below that folder, without ..")
    return path


RelativePath = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(_stays_below)]
"""A path below the folder of the spec."""


class Publish(Section):
    """The folder where results go, and how many of them are kept for a rollback."""

    root: AbsolutePath = Field(description="Folder on shared storage that holds the results.", examples=["/srv/bringup/stacks"])
    keep: Annotated[int, Field(ge=2, le=100)] = Field(
        default=3, description="Results kept; at least 2, so that a rollback is possible.", examples=[3]
    )


class PipelineSpec(Section):
    """Base model of `factory.yaml`, `stack.yaml` and `image.yaml`: the keys that they share."""

    api_version: Literal["bringup/v1"] = Field(alias="apiVersion", description="Version of this format.", examples=["bringup/v1"])
    name: ClusterName = Field(description="Name.", examples=["nightly"])
    owner: Text = Field(description="Person or team that is responsible for it.", examples=["hpc-software@example.org"])
    revision: Text = Field(description="Your revision of this file, shown in every report.", examples=["2026-11-21.1"])
    schedule: Schedule | None = Field(default=None, description="When Argo starts runs by itself; default: never.")


class Charts(Section):
    """Section `charts` of `factory.yaml`: chart versions of the factory's services."""

    argo_workflows: ChartVersion = Field(default="1.0.18", description="Version of the Argo Workflows chart.", examples=["1.0.18"])


class FactorySpec(PipelineSpec):
    """The content of `factory.yaml`: a disposable Kubernetes for builds, which can be rebuilt from this file at any time."""

    kind: Literal["Factory"] = Field(description="What the file describes.", examples=["Factory"])
    hosts: Hosts = Field(description="Groups of machines; three to five are enough.")
    ssh: SshSettings = Field(default=SshSettings(), description="SSH to the machines.")
    os: OsSettings = Field(default=OsSettings(), description="The operating system that the machines run.")
    rke2: Rke2Settings = Field(default=Rke2Settings(), description="RKE2.")
    storage: Storage = Field(default=Storage(), description="Storage class for build volumes.")
    charts: Charts = Field(default=Charts(), description="Chart versions.")

    @model_validator(mode="after")
    def _servers(self) -> "FactorySpec":
        servers = sum(len(group.names()) for group in self.hosts.values() if group.role == "server")
        if servers not in (1, 3, 5):
            raise problem(f"{servers} servers cannot hold an etcd majority well", "give 1, 3 or 5 hosts the role server")
        if servers > 1 and self.rke2.registration_address is None:
            raise problem("several servers need one address in front of them", "add rke2.registration_address")
        if any(group.gpu for group in self.hosts.values()):
            raise problem("a factory has no accelerators", "remove gpu: true; accelerators belong to cluster.yaml")
        return self


def load_factory(source: Path | str) -> FactorySpec:
    """Load `factory.yaml`. Raises `SpecErrors` with all its errors."""
    return load_as(FactorySpec, source)
