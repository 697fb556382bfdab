"""Models of a recipe file: a lowest recipe, or one that extends another by more layers."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from workflows.nodeimage.recipe_layers import PackageName, RecipeLayer
from workflows.spec.fields import ClusterName, DnsLabel, Listed, Section, SnakeId, Text, problem
from workflows.spec.pipeline_specs import RelativePath

KIND = "ImageRecipe"


class Budget(Section):
    """Size limit of the finished image."""

    root_mib: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Most MiB of the whole root.", examples=[400]
    )
    squashfs_mib: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Most MiB of the packed root, which every node fetches when it boots.", examples=[130]
    )


class Foundation(Section):
    """Settings that the lowest recipe decides for all that extend it."""

    distribution: Literal["debian", "ubuntu"] = Field(description="Distribution.", examples=["debian"])
    release: DnsLabel = Field(description="Its release.", examples=["bookworm"])
    architecture: Literal["amd64", "arm64"] = Field(
        default="amd64",
        description="Architecture; test machines are amd64: an image for arm64 is tested in the sandbox, and not published.",
        examples=["amd64"],
    )
    epoch: Annotated[int, Field(ge=1_000_000_000, le=4_000_000_000)] = Field(
        description="Time of every file of the image, in seconds since 1970 (SOURCE_DATE_EPOCH).", examples=[1795219200]
    )
    kernel: PackageName = Field(
        description="The package with the kernel, or the one that depends on the newest.", examples=["linux-image-cloud-amd64"]
    )


class RecipeSpec(Section):
    """A recipe file of `images/recipes`."""

    api_version: Literal["bringup/v1"] = Field(alias="apiVersion", description="Version of this format.", examples=["bringup/v1"])
    kind: Literal["ImageRecipe"] = Field(description="What the file describes.", examples=["ImageRecipe"])
    name: ClusterName = Field(description="Name of the image.", examples=["compute"])
    description: Text = Field(description="What it is for, in a sentence.", examples=["Compute nodes without GPUs."])
    extends: RelativePath | None = Field(
        default=None,
        description="Name of a shipped recipe, or the path of your own (ends with .yaml), whose layers lie below.",
        examples=["base"],
    )
    foundation: Foundation | None = Field(
        default=None, description="What the lowest recipe decides; absent where another is extended."
    )
    variables: Mapping[SnakeId, Annotated[str, StringConstraints(max_length=10_000)] | None] = Field(
        default={},
        description="Values for {{ name }} in this recipe and those that it extends; empty: the spec must give one.",
        examples=[{"time_server": "ntp.example.org"}],
    )
    layers: Annotated[tuple[RecipeLayer, ...], Listed, Field(min_length=1, max_length=20)] = Field(
        description="Layers, lowest first."
    )
    budget: Budget = Field(default=Budget(), description="What the finished image may weigh.")

    @model_validator(mode="after")
    def _lowest_or_not(self) -> "RecipeSpec":
        if self.extends is None and self.foundation is None:
            raise problem("a recipe stands on another, or on a foundation of its own", "add extends: base, or foundation")
        if self.extends is not None and self.foundation is not None:
            raise problem("the foundation is that of the lowest recipe", "remove foundation, or extends")
        return self
