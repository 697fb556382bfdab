"""Section `easybuild` of `stack.yaml`: easyconfigs, a matrix of packages and toolchains, and limits to CPU targets."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.fields import Listed, Section, problem
from workflows.spec.pipelines.pipeline_specs import RelativePath

Easyconfig = Annotated[RelativePath, StringConstraints(pattern=r"\.eb$")]
"""Path of an easyconfig below the folder of the spec."""


Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$", max_length=150)]
"""Part of an easyconfig's name: a package with its version, or a toolchain with its version."""


CpuTarget = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{2,30}$")]
"""CPU target by its name in archspec."""


class MatrixExclusion(Section):
    """Combinations that a matrix leaves out: those of a package, of a toolchain, for a CPU target, or of several of these."""

    package: Word | None = Field(default=None, description="Package with version; default: any.", examples=["HPL-2.3"])
    toolchain: Word | None = Field(default=None, description="Toolchain with version; default: any.", examples=["gompi-2022.12"])
    target: CpuTarget | None = Field(default=None, description="CPU target of the stack; default: any.", examples=["zen4"])

    @model_validator(mode="after")
    def _excludes_something(self) -> "MatrixExclusion":
        if self.package is None and self.toolchain is None and self.target is None:
            raise problem("an exclusion without package, toolchain and target excludes everything", "name at least one of them")
        return self

    def is_about(self, package: str, toolchain: str, target: str) -> bool:
        """Return True if the exclusion leaves out a combination; an empty target stands for all of them."""
        wanted = ((self.package, package), (self.toolchain, toolchain), (self.target, target))
        return all(word in (None, value) for word, value in wanted)


class EasyBuildMatrix(Section):
    """Section `easybuild.matrix` of `stack.yaml`: packages built with several toolchains, which are compilers with their MPI."""

    packages: Annotated[tuple[Word, ...], Listed, Field(min_length=1, max_length=500)] = Field(
        description="Packages with their versions.", examples=[["HPL-2.3"]]
    )
    toolchains: Annotated[tuple[Word, ...], Listed, Field(min_length=1, max_length=50)] = Field(
        description="Toolchains with their versions: compilers, or compilers with an MPI.",
        examples=[["GCC-12.2.0", "gompi-2022.12"]],
    )
    exclude: Annotated[tuple[MatrixExclusion, ...], Listed, Field(max_length=500)] = Field(
        default=(), description="Combinations that are left out."
    )
    folder: RelativePath = Field(
        default="easyconfigs",
        description="Folder with an easyconfig PACKAGE-TOOLCHAIN.eb for each combination.",
        examples=["easyconfigs"],
    )

    def easyconfigs(self, target: str = "") -> tuple[str, ...]:
        """Return the paths of the easyconfigs of all combinations that are not left out for a CPU target, packages first.

        Without a target these are the combinations that are not left out for all.
        """
        return tuple(
            f"{self.folder}/{package}-{toolchain}.eb"
            for package in self.packages
            for toolchain in self.toolchains
            if not any(rule.is_about(package, toolchain, target) for rule in self.exclude)
        )

    @model_validator(mode="after")
    def _has_combinations(self) -> "EasyBuildMatrix":
        for rule in self.exclude:
            for word, words, name in ((rule.package, self.packages, "packages"), (rule.toolchain, self.toolchains, "toolchains")):
                if word is not None and word not in words:
                    raise problem(f"exclude names {word}, which is none of {name}", "correct the name, or leave the exclusion out")
        if not self.easyconfigs():
            raise problem("nothing is left of the matrix", "leave an exclusion out")
        return self


class TargetLimit(Section):
    """Easyconfigs that a stack for several CPU targets offers for some of them only."""

    easyconfigs: Annotated[tuple[Easyconfig, ...], Listed, Field(min_length=1, max_length=2000)] = Field(
        description="Easyconfigs that the stack offers.", examples=[["easyconfigs/GROMACS-2024.1-gompi-2022.12.eb"]]
    )
    targets: Annotated[tuple[CpuTarget, ...], Listed, Field(min_length=1, max_length=20)] = Field(
        description="CPU targets of the stack for which they are built.", examples=[["zen4"]]
    )


class EasyBuildSection(Section):
    """Section `easybuild` of `stack.yaml`: the release of EasyBuild that builds, and the easyconfigs that it builds."""

    release: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] = Field(
        description="Release of EasyBuild; another one is refused.", examples=["5.4.1"]
    )
    easyconfigs: Annotated[tuple[Easyconfig, ...], Listed, Field(max_length=2000)] = Field(
        default=(),
        description="What the stack offers; what these need is found in the robot folders.",
        examples=[["easyconfigs/HPL-2.3-gompi-2022.12.eb"]],
    )
    matrix: EasyBuildMatrix | None = Field(
        default=None, description="More easyconfigs that the stack offers: packages, each with several toolchains."
    )
    only_for: Annotated[tuple[TargetLimit, ...], Listed, Field(max_length=500)] = Field(
        default=(), description="Easyconfigs that are offered for some of the stack's CPU targets only; default: all for each."
    )
    robot: Annotated[tuple[RelativePath, ...], Listed, Field(min_length=1)] = Field(
        default=("easyconfigs",), description="Folders of easyconfigs; they hold those above too.", examples=[["easyconfigs"]]
    )
    naming: Literal["EasyBuildMNS", "HierarchicalMNS"] = Field(
        default="HierarchicalMNS",
        description="Names of modules: all in one folder, or by compiler and MPI.",
        examples=["HierarchicalMNS"],
    )

    @property
    def offered(self) -> tuple[str, ...]:
        """Paths of all easyconfigs that the stack offers: those that it names, and those of the matrix."""
        of_matrix = self.matrix.easyconfigs() if self.matrix is not None else ()
        return tuple(dict.fromkeys((*self.easyconfigs, *of_matrix)))

    def offered_for(self, target: str) -> tuple[str, ...]:
        """Return the paths of the easyconfigs that the stack offers for one of its CPU targets."""
        of_matrix = self.matrix.easyconfigs(target) if self.matrix is not None else ()
        elsewhere = {path for limit in self.only_for if target not in limit.targets for path in limit.easyconfigs}
        return tuple(path for path in dict.fromkeys((*self.easyconfigs, *of_matrix)) if path not in elsewhere)

    @property
    def named_targets(self) -> tuple[str, ...]:
        """CPU targets that exclusions and limits name."""
        of_matrix = self.matrix.exclude if self.matrix is not None else ()
        named = (*(rule.target for rule in of_matrix if rule.target), *(name for limit in self.only_for for name in limit.targets))
        return tuple(dict.fromkeys(named))

    @model_validator(mode="after")
    def _limits_what_is_offered(self) -> "EasyBuildSection":
        for path in (path for limit in self.only_for for path in limit.easyconfigs):
            if path not in self.offered:
                raise problem(f"only_for names {path}, which the stack does not offer", "name it in easyconfigs too, or correct it")
        return self

    @model_validator(mode="after")
    def _offers_something(self) -> "EasyBuildSection":
        if not self.offered:
            raise problem("the stack offers no package", "name easyconfigs, or write a matrix")
        return self

    @model_validator(mode="after")
    def _lie_in_robot_folders(self) -> "EasyBuildSection":
        outside = [path for path in self.offered if not any(Path(path).is_relative_to(folder) for folder in self.robot)]
        if outside:
            raise problem(f"easyconfig {outside[0]} is in no robot folder", "add its folder to robot")
        return self
