"""`stack.yaml`: a software stack of Spack or EasyBuild, its lock, and where it is built and published."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, cast

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from steps.contract.release_layout import NODES
from steps.softwarestack.contract import cpu_targets, output_patterns
from steps.softwarestack.contract.spack_layout import FLAT
from steps.softwarestack.contract.stack_input import BEST, PACKAGES, TCL, CacheRegistry, choice_module
from steps.softwarestack.contract.stack_release import MODULES, VIEW
from steps.softwarestack.contract.stack_tests import name_for
from workflows.softwarestack import build_cache_spec, smoke_tests
from workflows.softwarestack.build_cache_spec import CACHE_CA, CACHE_PASSWORD, CacheAccess, CachePlace
from workflows.softwarestack.easybuild_section import CpuTarget, EasyBuildSection
from workflows.spec.fields import (
    AbsolutePath,
    Argument,
    DnsLabel,
    Duration,
    Listed,
    PublicKey,
    SecretRef,
    Section,
    SnakeId,
    Url,
    is_floating,
    problem,
)
from workflows.spec.parsing.loading import load_as
from workflows.spec.pipelines.git_schedule import GitSchedule, require_home_secrets
from workflows.spec.pipelines.pipeline_specs import PipelineSpec, RelativePath
from workflows.spec.sections.governance import ApprovalPoint, ApprovalRequest
from workflows.spec.sections.proxy import Proxies
from workflows.stage_names import StageName

PUBLISHED: Final = "stack_publish"
"""Stage that waits for the approval of a stack spec, if there is one."""
FLAT_MODULES: Final = (
    "Spack's modules lie in one folder (spack.naming: flat), not by compiler and MPI: builds of one package with several of them"
    " differ in the hash of their module's version, such as hdf5/1.14.3-4zs6t2k"
)
"""Sentence about the modules of a stack of Spack without a hierarchy."""
SEVERAL: Final = (
    "each package is built once for each CPU target, also one without compiled files: EasyBuild does not say which those are"
)
"""Sentence about a stack that EasyBuild builds for several CPU targets."""
SIGN_KEY, PACKAGE_KEY = "stack_sign_key", "package_sign_key"
"""Names of files in the secrets folder: the key that signs published stacks, and the one that signs packages in the cache."""

InstallRoot = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9][A-Za-z0-9+._-]*)+$", max_length=200)]
"""Absolute path of plain names: it is written into binaries and scripts, which know no quoting."""
ClaimFolder = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*(/[A-Za-z0-9][A-Za-z0-9+._-]*)*$", max_length=200)
]
"""Path of plain names within a volume."""
SYSTEM_FOLDERS: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys"),
    *("/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share"),
    *("/bringup", "/opt/bringup"),
)
"""Folders of a pod's image and of its engine, over or into which no volume may be mounted."""
ModuleName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*(/[A-Za-z0-9][A-Za-z0-9+._-]*)*$", max_length=200)
]
"""Name of a module, with or without its version."""


CompilerName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*@[A-Za-z0-9][A-Za-z0-9+._-]*$", max_length=100)]
"""Compiler with its version, as locks of Spack name it."""


class SpackSettings(Section):
    """Section `spack` of `stack.yaml`: the release of Spack that builds, and the environment that it builds."""

    url: Url = Field(description="Repository of Spack.", examples=["https://github.com/spack/spack.git"])
    revision: Argument = Field(description="Tag or commit; branches are refused.", examples=["v1.1.0"])
    environment: RelativePath = Field(
        description="The spack.yaml. Its specs, packages, compilers and repos count, nothing else.",
        examples=["spack.yaml"],
    )
    naming: Literal["flat", "hierarchical"] = Field(
        default="flat", description="Places of modules: all in one folder, or by compiler and MPI.", examples=["hierarchical"]
    )
    core_compilers: Annotated[tuple[CompilerName, ...], Listed, Field(max_length=20)] = Field(
        default=(),
        description="Compilers whose packages are visible without a compiler's module; default: the only one, or those that built "
        "compilers of the stack. Only with naming hierarchical.",
        examples=[["gcc@12.2.0"]],
    )

    @model_validator(mode="after")
    def _is_pinned(self) -> "SpackSettings":
        if is_floating(self.revision) or self.revision.startswith("develop"):
            raise problem(f"revision {self.revision} means different things at different times", "write a tag or a commit")
        return self

    @model_validator(mode="after")
    def _has_a_hierarchy_for_its_core(self) -> "SpackSettings":
        if self.core_compilers and self.naming == FLAT:
            raise problem("core_compilers has no effect where all modules lie in one folder", "write naming: hierarchical")
        return self


def _pattern(groups: int | None, text: str) -> str:
    if why := output_patterns.problem(text, groups):
        raise problem(f"pattern {text[:80]!r}: {why}", "write a short pattern of one line, such as 'rank [0-9]+ of 2'")
    return text


OutputLine = Annotated[str, AfterValidator(partial(_pattern, None))]
"""Regular expression that a line of a test's output matches."""
OutputFigure = Annotated[str, AfterValidator(partial(_pattern, 1))]
"""Regular expression with one group, the number that is compared."""


class FigureReference(Section):
    """Section `reference` of a test: a figure that its command prints, and the limits within which it must lie."""

    pattern: OutputFigure = Field(
        description="Regular expression with one group, the number, in one line of the output.",
        examples=["bandwidth: +([0-9.]+) GB/s"],
    )
    least: float | None = Field(default=None, description="Least value; default: any.", examples=[10.5])
    most: float | None = Field(default=None, description="Greatest value; default: any.", examples=[2.5])

    @model_validator(mode="after")
    def _has_limits(self) -> "FigureReference":
        if self.least is None and self.most is None:
            raise problem("a reference without least and most compares nothing", "write one of them, or both")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise problem(f"no figure is at least {self.least:g} and at most {self.most:g}", "exchange least and most")
        return self


class StackTest(Section):
    """A command that must succeed in the finished stack before it is promoted."""

    name: SnakeId = Field(description="Name.", examples=["mpi_hello"])
    modules: Annotated[tuple[ModuleName, ...], Listed] = Field(
        default=(), description="Modules that are loaded first, in this order.", examples=[["foss/2023b", "OSU-Micro-Benchmarks"]]
    )
    command: Annotated[tuple[Argument, ...], Listed, Field(min_length=1)] = Field(
        description="Command and arguments; no shell.", examples=[["mpirun", "-n", "2", "hello"]]
    )
    timeout: Duration = Field(default="10m", validate_default=True, description="Longest time.", examples=["10m"])
    expect: OutputLine = Field(
        default="",
        description="Regular expression that a line of its output must match; default: the exit code decides.",
        examples=["^rank [01] of 2$"],
    )
    reference: FigureReference | None = Field(default=None, description="Figure that it prints, with limits; default: none.")
    targets: Annotated[tuple[CpuTarget, ...], Listed, Field(max_length=20)] = Field(
        default=(),
        description="CPU targets of the stack whose modules it tests; default: it runs once for each.",
        examples=[["zen4"]],
    )
    incident: Annotated[str, StringConstraints(max_length=300, pattern=r"^[^\x00-\x1f]*$")] = Field(
        default="",
        description="Sentence about what went wrong where nobody tested this; it stands in the report.",
        examples=["mpirun of another MPI started two programs of one rank each, and the job looked well."],
    )

    @model_validator(mode="after")
    def _may_take_time(self) -> "StackTest":
        if self.timeout < timedelta(seconds=1):
            raise problem("timeout is no time in which a test ends", "write a time such as 90s or 10m")
        return self


ViewedPackage = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*(@[A-Za-z0-9][A-Za-z0-9+._-]*)?$", max_length=200)
]
"""Name of a package in the lock, or NAME@VERSION."""


class StackViewSettings(Section):
    """Section `view` of `stack.yaml`: a folder with links to the files of packages, for users who want paths and no modules."""

    packages: Annotated[tuple[ViewedPackage, ...], Listed, Field(max_length=2000)] = Field(
        default=(),
        description="Packages, as NAME or NAME@VERSION; default: all that the stack offers.",
        examples=[["hdf5", "zlib"]],
    )
    order: Annotated[tuple[ViewedPackage, ...], Listed, Field(max_length=2000)] = Field(
        default=(),
        description="Packages that may have files of the same path: the one that comes first here has it. Others are refused.",
        examples=[["mpich", "openmpi"]],
    )


class StackTimeLimits(Section):
    """Section `limits` of `stack.yaml`: longest times."""

    build: Duration = Field(default="6h", validate_default=True, description="Longest build of one package.", examples=["6h"])
    load: Duration = Field(default="60s", validate_default=True, description="Longest load of one module.", examples=["60s"])
    reframe: Duration = Field(default="1h", validate_default=True, description="Longest run of all ReFrame tests.", examples=["1h"])

    @model_validator(mode="after")
    def _are_positive(self) -> "StackTimeLimits":
        for name in type(self).model_fields:
            if getattr(self, name) < timedelta(seconds=1):
                raise problem(f"{name} is no time in which anything ends", "write a time such as 90s, 10m or 6h")
        return self


class PackageSigning(Section):
    """Section `package_signing` of `stack.yaml`: who signs packages in the build cache, and whose signatures count."""

    sign: SecretRef | None = Field(
        default=None,
        description="SSH private key that signs built packages; default: they are not signed.",
        examples=[{"file": "./package_ed25519"}],
    )
    signers: Annotated[tuple[PublicKey, ...], Listed] = Field(
        default=(),
        description="SSH public keys; if there are any, packages without a signature by one of them are refused.",
        examples=[["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"]],
    )

    @model_validator(mode="after")
    def _has_signers(self) -> "PackageSigning":
        if self.sign is not None and not self.signers:
            raise problem("a signature that nobody is told to trust proves nothing", "add signers, the public keys of sign")
        return self


class StackPublish(Section):
    """The published tree: the folder in which users and nodes see the stack, and how many versions are kept for rollback."""

    root: InstallRoot = Field(
        description="Folder at which users and nodes see the stacks. It is built into binaries: all see it by this path.",
        examples=["/srv/bringup/stacks"],
    )
    claim: DnsLabel | None = Field(
        default=None,
        description="PersistentVolumeClaim of the home cluster with the folder root, by which pods publish, such as claim `share` "
        "of a factory's projects. Default: pods do not publish.",
        examples=["share"],
    )
    claim_folder: ClaimFolder | None = Field(
        default=None, description="Folder in the volume of claim that is root; default: the whole volume.", examples=["stacks"]
    )
    largest_gib: Annotated[float, Field(gt=0, le=1_000_000)] | None = Field(
        default=None,
        description="Size budget in GiB: a larger installed stack is not tested and published; default: any size.",
        examples=[200],
    )
    keep: Annotated[int, Field(ge=2, le=100)] = Field(
        default=3, description="Versions kept; at least 2, so that one can go back.", examples=[3]
    )
    sign: SecretRef | None = Field(
        default=None,
        description="SSH private key that signs the manifest; default: unsigned.",
        examples=[{"file": "./sign_ed25519"}],
    )
    signers: Annotated[tuple[PublicKey, ...], Listed] = Field(
        default=(),
        description="SSH public keys whose signatures are trusted.",
        examples=[["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"]],
    )

    @model_validator(mode="after")
    def _has_signers(self) -> "StackPublish":
        if self.sign is not None and not self.signers:
            raise problem("a signature that nobody is told to trust proves nothing", "add signers, the public keys of sign")
        return self

    @model_validator(mode="after")
    def _can_be_mounted(self) -> "StackPublish":
        if self.claim is None:
            if self.claim_folder is not None:
                raise problem("claim_folder is a folder of no volume", "add claim, or leave claim_folder out")
            return self
        for folder in SYSTEM_FOLDERS:
            if f"{self.root}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{self.root}/"):
                raise problem(f"a volume at {self.root} would hide {folder} of the pods", "publish to another folder")
        return self


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
    target: CpuTarget = Field(default="x86_64_v3", description="CPU target of all packages.", examples=["zen4"])
    targets: Annotated[tuple[CpuTarget, ...], Listed, Field(max_length=20)] = Field(
        default=(),
        description="Several CPU targets, in place of target: EasyBuild builds each package for each of them.",
        examples=[["x86_64_v3", "x86_64_v4"]],
    )
    builder: Argument = Field(description="Builder image with its tag.", examples=["registry.example.org/builder:2026.11"])
    module_syntax: Literal["lua", "tcl"] = Field(
        default="lua",
        description="Language of module files. Lmod reads both; Environment Modules read Tcl, and are not tested.",
        examples=["tcl"],
    )
    jobs: Annotated[int, Field(ge=1, le=256)] = Field(default=8, description="Most make jobs of one package.", examples=[16])
    builds_at_once: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=4, description="Packages that are built at the same time.", examples=[16]
    )
    cache: CachePlace | None = Field(
        default=None,
        description="Build cache: a folder, or a repository of a registry as oci://REGISTRY/REPOSITORY; default: in the run store.",
        examples=["/srv/bringup/buildcache", "oci://registry.example.org/hpc/buildcache"],
    )
    cache_access: CacheAccess | None = Field(
        default=None,
        description="Access to the registry of the build cache; default: anonymous, with a certificate that is trusted.",
    )
    package_signing: PackageSigning = Field(default=PackageSigning(), description="Signatures of packages in the build cache.")
    sources: Annotated[tuple[AbsolutePath, ...], Listed, Field(max_length=20)] = Field(
        default=(),
        description="Folders with source archives, which are searched before anything is fetched.",
        examples=[["/srv/bringup/sources"]],
    )
    proxy: Proxies | None = Field(
        default=None,
        description="HTTP proxies by which tasks, also in pods, fetch sources and tell a webhook; "
        "default: those of this machine, and in pods none.",
        examples=[{"http": "http://proxy.example.org:3128"}],
    )
    view: StackViewSettings | None = Field(
        default=None,
        description="View of packages in folder view of each version; `true` is one of all that the stack offers. Default: none.",
        examples=[{"packages": ["hdf5"]}],
    )
    limits: StackTimeLimits = Field(default=StackTimeLimits(), description="Longest times.")
    tests: Annotated[tuple[StackTest, ...], Listed] = Field(default=(), description="Tests before the stack is promoted.")
    smoke_tests: bool = Field(
        default=True,
        description="Test packages that have no test here by the tests that bringup ships; `bringup stack plan` lists them.",
        examples=[False],
    )
    skip_smoke_tests: Annotated[tuple[SnakeId, ...], Listed, Field(max_length=50)] = Field(
        default=(),
        description="Shipped tests to leave out, by name; `bringup stack plan` says that they are.",
        examples=[["mpi_ranks"]],
    )
    reframe: Annotated[tuple[RelativePath, ...], Listed, Field(max_length=100)] = Field(
        default=(), description="Files of ReFrame tests, which must pass too.", examples=[["tests/osu.py"]]
    )
    factory: RelativePath | None = Field(
        default=None,
        description="Spec of the factory that builds; a stack is not published if a file names a host or folder of it. "
        "Default: not checked.",
        examples=["factory.yaml"],
    )
    schedule: GitSchedule | None = Field(
        default=None, description="When Argo builds by itself what stands in Git; default: only when asked, or by CI."
    )
    approval: ApprovalRequest | None = Field(
        default=None, description="Who decides before it is published; default: nobody is asked."
    )
    publish: StackPublish = Field(description="Where the stack goes.")

    @property
    def lock_path(self) -> str:
        """Path of the lock, relative to the folder of the spec."""
        return self.lock or lock_name(is_spack=self.spack is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about limits of this version that a user of this stack meets, for `validate` and `plan`."""
        return (FLAT_MODULES,) if self.spack is not None and self.spack.naming == FLAT else ()

    @property
    def target_notes(self) -> tuple[str, ...]:
        """Sentence about a single CPU target that bringup does not know, for `validate` and `plan`; none for one that it knows."""
        if self.targets or cpu_targets.is_known(self.target):
            return ()
        return (
            f"CPU target {self.target} is unknown: its code is tested on any machine, and fails where the CPU lacks what it needs",
        )

    @property
    def cpu_targets(self) -> tuple[str, ...]:
        """All CPU targets of the stack, mostly one."""
        return self.targets or (self.target,)

    @property
    def several_targets(self) -> tuple[str, ...]:
        """The CPU targets of a stack that is built for several; none for a stack with one."""
        return self.targets if len(self.targets) > 1 else ()

    @property
    def test_names(self) -> frozenset[str]:
        """Names of the tests of the spec as a run has them: with their CPU target in a stack that is built for several."""
        return frozenset(name_for(test.name, target) for test in self.tests for target in self.several_targets or ("",))

    @property
    def arrangement(self) -> tuple[str, ...]:
        """Sentences about where users find modules and the view, as far as the spec says it, for `plan`."""
        place = f"{self.publish.root}/{self.name}/current"
        sentences = []
        if self.several_targets:
            sentences.append(SEVERAL)
            sentences.append(
                f"modules lie by CPU target: users begin with `module use {place}/{MODULES}/{BEST}`,"
                f" `module load {choice_module(self.name)}`"
            )
        if self.spack is not None and self.spack.naming != FLAT:
            sentences.append(f"modules lie by compiler and MPI: users begin with `module use {place}/modules/all/Core`")
        if self.module_syntax == TCL:
            sentences.append("module files are in Tcl: they are tested with Lmod, and not with Environment Modules")
        if self.view is not None:
            packages = ", ".join(self.view.packages) or "all packages that the stack offers"
            sentences.append(f"versions have a view of {packages} in {place}/{VIEW}")
        return tuple(sentences)

    @property
    def approvals(self) -> tuple[ApprovalPoint, ...]:
        """The approval in the form of other specs: a run waits for it before the stack is published."""
        if self.approval is None:
            return ()
        settings = {name: getattr(self.approval, name) for name in type(self.approval).model_fields}
        return (ApprovalPoint.model_construct(before=cast(StageName, PUBLISHED), **settings),)

    @property
    def secrets(self) -> Mapping[str, SecretRef]:
        """References to all secrets except those of the approval, by file name in the secrets folder."""
        access = self.cache_access or CacheAccess()
        references = {SIGN_KEY: self.publish.sign, PACKAGE_KEY: self.package_signing.sign}
        references |= {CACHE_CA: access.ca, CACHE_PASSWORD: access.password}
        return {name: reference for name, reference in references.items() if reference is not None}

    @property
    def cache_registry(self) -> CacheRegistry | None:
        """The registry of the build cache; None if the cache is a folder."""
        return build_cache_spec.registry_of(self.cache, self.cache_access)

    @model_validator(mode="after")
    def _reaches_its_cache(self) -> "StackSpec":
        build_cache_spec.registry_of(self.cache, self.cache_access)
        return self

    @field_validator("target", mode="before")
    @classmethod
    def _is_one(cls, value: object) -> object:
        if isinstance(value, list):
            raise problem("target is one CPU target", f"write targets: [{', '.join(map(str, value[:5]))}]")
        return value

    @model_validator(mode="after")
    def _has_fitting_targets(self) -> "StackSpec":
        if not self.targets:
            return self._with_known_targets()
        if self.spack is not None:
            raise problem(
                "targets is for EasyBuild; Spack reads them in its environment",
                "write them in spack.yaml, such as specs: [{matrix: [[hdf5], ['target=x86_64_v3', 'target=zen3']]}]",
            )
        if "target" in self.model_fields_set:
            raise problem("the stack names target and targets", "name all of them in targets")
        if len(set(self.targets)) < len(self.targets) or BEST in self.targets:
            raise problem(f"targets {', '.join(self.targets)} has a name twice, or {BEST}", "name each CPU target once")
        if unknown := [name for name in self.targets if not cpu_targets.is_known(name)]:
            raise problem(
                f"CPU target {unknown[0]} is unknown, so no node could tell if its CPU runs it",
                "write names that archspec has for x86_64 and aarch64, such as x86_64_v3, zen4 or neoverse_v1",
            )
        return self._with_known_targets()

    def _with_known_targets(self) -> "StackSpec":
        """Return the spec; raise if a section names a CPU target that the stack lacks, or if a target has nothing to build."""
        section = self.easybuild
        named = (*(section.named_targets if section is not None else ()), *(name for test in self.tests for name in test.targets))
        if strange := [name for name in named if name not in self.cpu_targets]:
            raise problem(f"{strange[0]} is none of the stack's CPU targets", f"name one of {', '.join(self.cpu_targets)}")
        if section is not None and (empty := [name for name in self.cpu_targets if not section.offered_for(name)]):
            raise problem(f"nothing is left for CPU target {empty[0]}", "leave an exclusion or the target out")
        return self

    @model_validator(mode="after")
    def _has_one_builder(self) -> "StackSpec":
        if (self.spack is None) == (self.easybuild is None):
            named = "both spack and easybuild" if self.spack is not None else "neither spack nor easybuild"
            raise problem(f"the stack names {named}", "name the one that builds it")
        return self

    @model_validator(mode="after")
    def _has_free_names(self) -> "StackSpec":
        if self.name in (PACKAGES, NODES):
            raise problem(f"name {self.name} is that of a folder below publish.root", "give the stack another name")
        names = [test.name for test in self.tests]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise problem(f"two tests have the name {twice[0]}", "give each its own")
        return self

    @field_validator("view", mode="before")
    @classmethod
    def _is_a_view(cls, value: object) -> object:
        return {} if value is True else None if value is False else value

    @field_validator("skip_smoke_tests")
    @classmethod
    def _are_shipped(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if names and (wrong := smoke_tests.unknown(names)):
            shipped = ", ".join(test.name for test in smoke_tests.shipped())
            raise problem(f"no shipped test has the name {wrong[0]}", f"name tests of these: {shipped}")
        return names

    @model_validator(mode="after")
    def _is_buildable_in_a_pod(self) -> "StackSpec":
        """Raise if a spec that a pod reads from Git needs files or folders of one machine."""
        if self.schedule is None:
            return self
        if self.publish.claim is None:
            raise problem(
                "a schedule builds in pods, which have none of the folder publish.root",
                "add publish.claim, a PersistentVolumeClaim of the home cluster with that folder; or leave schedule out, and start"
                " `bringup stack build` by CI or cron on a machine that has it",
            )
        if reason := self.bound_to_machine:
            raise problem(f"a schedule builds in pods, and {reason[0]}", reason[1])
        require_home_secrets(self.secrets, self.approval)
        return self

    @property
    def bound_to_machine(self) -> tuple[str, str] | None:
        """Sentence about a folder that pods lack to build and test this stack, with the next step; None if they lack nothing."""
        if self.cache is not None and self.cache_registry is None:
            return "they have none of the folder cache", "leave cache out: packages then lie in the run store, which pods have"
        if self.cache is not None and build_cache_spec.is_local(self.cache):
            return "they reach no registry at localhost", "write an address in cache at which pods reach the registry"
        if self.sources:
            return "they have none of the folders of sources", "leave sources out: what is fetched stays in the run store"
        return None


def lock_name(*, is_spack: bool) -> str:
    """Return the name of a lock beside its spec if the spec names none."""
    return "spack.lock" if is_spack else "stack.lock.json"


def load_stack(source: Path | str) -> StackSpec:
    """Load `stack.yaml`. Raises `SpecErrors` with all its errors."""
    return load_as(StackSpec, source)
