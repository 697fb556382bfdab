"""The parts that `factory.yaml`, `image.yaml` and `stack.yaml` share: keys of all three, and the folder of results."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from workflows.spec.fields import (
    AbsolutePath,
    ClusterName,
    Section,
    Text,
    problem,
)
from workflows.spec.sections.schedule import Schedule


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
