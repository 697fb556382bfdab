"""`stack.yaml`: a software stack of Spack or EasyBuild, its lock, and where it is built and published."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.fields import AbsolutePath, Argument, Duration, Listed, Section, SnakeId, Url, is_floating, problem
from workflows.spec.loading import load_as
from workflows.spec.pipeline_specs import PipelineSpec, Publish, RelativePath

Easyconfig = Annotated[RelativePath, StringConstraints(pattern=r"\.eb$")]
"""Path of an easyconfig below the folder of the spec."""


class SpackSettings(Section):
    """Section `spack` of `stack.yaml`: the release of Spack that builds, and the environment that it builds."""

    url: Url = Field(description="Repository of Spack.", examples=["https://github.com/spack/spack.git"])
    revision: Argument = Field(description="Tag or commit; branches are refused.", examples=["v1.1.0"])
    environment: RelativePath = Field(description="The spack.yaml.", examples=["spack.yaml"])

    @model_validator(mode="after")
    def _is_pinned(self) -> "SpackSettings":
        if is_floating(self.revision) or self.revision.startswith("develop"):
            raise problem(f"revision {self.revision} means different things at different times", "write a tag or a commit")
        return self


class EasyBuildSection(Section):
    """Section `easybuild` of `stack.yaml`: the release of EasyBuild that builds, and the easyconfigs that it builds."""

    release: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] = Field(
        description="Release of EasyBuild; another one is refused.", examples=["5.4.1"]
    )
    easyconfigs: Annotated[tuple[Easyconfig, ...], Listed, Field(min_length=1, max_length=2000)] = Field(
        description="What the stack offers; what these need is found in the robot folders.",
        examples=[["easyconfigs/HPL-2.3-gompi-2022.12.eb"]],
    )
    robot: Annotated[tuple[RelativePath, ...], Listed, Field(min_length=1)] = Field(
        default=("easyconfigs",), description="Folders of easyconfigs; they hold those above too.", examples=[["easyconfigs"]]
    )
    naming: Literal["EasyBuildMNS", "HierarchicalMNS"] = Field(
        default="HierarchicalMNS",
        description="Names of modules: all in one folder, or by compiler and MPI.",
        examples=["HierarchicalMNS"],
    )

    @model_validator(mode="after")
    def _lie_in_robot_folders(self) -> "EasyBuildSection":
        outside = [path for path in self.easyconfigs if not any(Path(path).is_relative_to(folder) for folder in self.robot)]
        if outside:
            raise problem(f"easyconfig {outside[0]} is in no robot folder", "add its folder to robot")
        return self


class StackTest(Section):
    """A command that must succeed in the finished stack before it is promoted."""

    name: SnakeId = Field(description="Name.", examples=["mpi_hello"])
    command: Annotated[tuple[Argument, ...], Listed, Field(min_length=1)] = Field(
        description="Command and arguments; no shell.", examples=[["mpirun", "-n", "2", "hello"]]
    )
    timeout: Duration = Field(default="10m", validate_default=True, description="Longest time.", examples=["10m"])


class StackSpec(PipelineSpec):
    """The content of `stack.yaml`: a software stack that is built by hash, cached, tested and promoted atomically."""

    kind: Literal["Stack"] = Field(description="What the file describes.", examples=["Stack"])
    spack: SpackSettings | None = Field(default=None, description="A stack that Spack builds; this or easybuild.")
    easybuild: EasyBuildSection | None = Field(default=None, description="A stack that EasyBuild builds; this or spack.")
    lock: RelativePath | None = Field(
        default=None,
        description="The lock; default: spack.lock or stack.lock.json beside this file.",
        examples=["spack.lock"],
    )
    target: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{2,30}$")] = Field(
        default="x86_64_v3", description="CPU target of all packages.", examples=["zen4"]
    )
    builder: Argument = Field(description="Builder image with its tag.", examples=["registry.example.org/builder:2026.11"])
    jobs: Annotated[int, Field(ge=1, le=256)] = Field(default=8, description="Make jobs for each package.", examples=[16])
    cache: Url | AbsolutePath = Field(description="Build cache: a folder or an OCI registry.", examples=["/srv/bringup/buildcache"])
    tests: Annotated[tuple[StackTest, ...], Listed] = Field(default=(), description="Tests before the stack is promoted.")
    publish: Publish = Field(description="Target folder of the stack.")

    @property
    def lock_path(self) -> str:
        """Path of the lock, relative to the folder of the spec."""
        return self.lock or ("spack.lock" if self.spack is not None else "stack.lock.json")

    @model_validator(mode="after")
    def _has_one_builder(self) -> "StackSpec":
        if (self.spack is None) == (self.easybuild is None):
            named = "both spack and easybuild" if self.spack is not None else "neither spack nor easybuild"
            raise problem(f"the stack names {named}", "name the one that builds it")
        return self


def load_stack(source: Path | str) -> StackSpec:
    """Load `stack.yaml`. Raises `SpecErrors` with all its errors."""
    return load_as(StackSpec, source)
