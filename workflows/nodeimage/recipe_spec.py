"""Models of a recipe file and its layers: packages, users, files, commands, services, tests. Variables are filled in already."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from steps.nodeimage.contract.image_tests import BuiltinCheck
from workflows.nodeimage.image_spec import KernelArgument, MirrorUrl
from workflows.spec.fields import Argument, ClusterName, DnsLabel, Listed, Section, SnakeId, Text, problem
from workflows.spec.pipelines.pipeline_specs import RelativePath

PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]{1,100}$")]
UnitName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9:_.@\\-]{1,200}\.(service|socket|timer|target|mount|path|automount|slice)$")
]
Account = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
Id = Annotated[int, Field(ge=0, le=65533)]
Script = Annotated[str, StringConstraints(min_length=1, max_length=20_000, pattern=r"^[^\x00]+$")]
Suite = Annotated[str, StringConstraints(pattern=r"^(/|[A-Za-z0-9][A-Za-z0-9./_-]{0,100})$")]
CheckName = Literal[
    "services_enabled",
    "paths_present",
    "paths_absent",
    "packages_present",
    "packages_absent",
    "links_resolve",
    "not_world_writable",
    "no_host_identity",
    "size_budget",
    "modules_present",
    "setuid",
]
assert set(get_args(CheckName)) == {check.value for check in BuiltinCheck}, (
    "the checks of the contract and of the schema are the same"
)


def _plain_path(path: str) -> str:
    if any(part in ("", ".", "..") for part in path.split("/")[1:]):
        raise problem("the path is not in its plain form", "write it without //, . and .., and without / at its end")
    return path


ImagePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00\n]{1,1000}$"), AfterValidator(_plain_path)]
"""Absolute path in the image."""


def _no_colon(path: str) -> str:
    if ":" in path:
        raise problem("a colon ends a field of /etc/passwd", "choose a path without a colon")
    return path


def _other_than(reserved: object, description: str, fix: str) -> AfterValidator:
    def check(value: object) -> object:
        if value == reserved:
            raise problem(description, fix)
        return value

    return AfterValidator(check)


AccountPath = Annotated[ImagePath, AfterValidator(_no_colon)]
"""Absolute path that is valid in /etc/passwd."""
GroupId = Annotated[Id, _other_than(0, "group 0 is root's own", "leave gid out for a group of its own, or choose another number")]
UserId = Annotated[Id, _other_than(0, "number 0 is root's own", "choose another number")]
UserName = Annotated[
    Account,
    _other_than("root", "root is in every image already", "choose another name; a command of the layer may change what root has"),
]
Mode = Annotated[str, StringConstraints(pattern=r"^[0-7]{3,4}$")]
"""Octal mode in quotes: YAML would read 0644 as another number."""


class PackageSource(Section):
    """A package repository beside those of the distribution: `deb URL SUITE COMPONENTS`."""

    url: MirrorUrl = Field(description="Where it lies.", examples=["https://packages.example.org/debian"])
    suite: Suite = Field(description="Suite, or / for a flat repository.", examples=["bookworm"])
    components: Annotated[tuple[DnsLabel, ...], Listed] = Field(default=(), description="Components.", examples=[["main"]])
    keyring: Argument = Field(
        description="Key that signs it: a path of the machine that locks, or one below the recipe's folder.",
        examples=["/usr/share/keyrings/example-keyring.gpg"],
    )

    @model_validator(mode="after")
    def _has_components_unless_flat(self) -> "PackageSource":
        if (self.suite.endswith("/")) == bool(self.components):
            raise problem("a suite has components, a flat repository (suite /) has none", "write components: [main], or suite: /")
        return self


class RecipeFile(Section):
    """A file, link or folder that a recipe places in the image."""

    path: ImagePath = Field(description="Where it lies in the image.", examples=["/etc/motd"])
    content: Annotated[str, StringConstraints(max_length=60_000)] | None = Field(
        default=None, description="Its text.", examples=["hello\n"]
    )
    source: RelativePath | None = Field(
        default=None, description="A file below the recipe's folder, taken byte for byte.", examples=["files/motd"]
    )
    link: Argument | None = Field(default=None, description="Where a link leads.", examples=["/run/motd"])
    mode: Mode | None = Field(default=None, description="Octal; default: 0644 for files, 0755 for folders.", examples=["0755"])
    uid: Id = Field(default=0, description="Owner.", examples=[1000])
    gid: Id = Field(default=0, description="Group.", examples=[1000])

    @model_validator(mode="after")
    def _is_file_link_or_folder(self) -> "RecipeFile":
        if sum(part is not None for part in (self.content, self.source, self.link)) > 1:
            raise problem("it is of several kinds", "keep one of content, source and link; with none of them it is a folder")
        if self.link is not None and self.mode is not None:
            raise problem("a link has no mode of its own", "remove mode")
        return self


class RecipeCommand(Section):
    """A shell script of a recipe that runs in the layer as root, without network."""

    run: Script = Field(description="Script for /bin/sh -e.", examples=["update-initramfs -u -k all"])
    secrets: Annotated[tuple[SnakeId, ...], Listed] = Field(
        default=(), description="Names of secrets of the spec that it alone sees, at /run/secrets/NAME.", examples=[["license"]]
    )


class RecipeUser(Section):
    """A user account of the image, never with a password."""

    name: UserName = Field(description="Name.", examples=["admin"])
    uid: UserId = Field(description="Number.", examples=[1000])
    gid: GroupId | None = Field(default=None, description="Number of its own group; default: as uid.", examples=[1000])
    groups: Annotated[tuple[Account, ...], Listed] = Field(default=(), description="Further groups.", examples=[["adm"]])
    shell: AccountPath = Field(default="/bin/bash", description="Shell.", examples=["/bin/bash"])
    home: AccountPath | None = Field(default=None, description="Home; default: /home/NAME.", examples=["/home/admin"])
    keys: Annotated[tuple[Argument, ...], Listed] = Field(
        default=(), description="SSH public keys.", examples=[["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0 ada@example.org"]]
    )


class RecipeServices(Section):
    """systemd units of the image by the state that they get: enabled, disabled or masked."""

    enabled: Annotated[tuple[UnitName, ...], Listed] = Field(default=(), description="Started at boot.", examples=[["ssh.service"]])
    disabled: Annotated[tuple[UnitName, ...], Listed] = Field(default=(), description="Not started.", examples=[["ssh.service"]])
    masked: Annotated[tuple[UnitName, ...], Listed] = Field(
        default=(), description="Not to be started by anything.", examples=[["apt-daily.timer"]]
    )

    @property
    def states(self) -> Mapping[str, str]:
        """State of each unit: enabled, disabled or masked."""
        return {unit: state for state in ("enabled", "disabled", "masked") for unit in getattr(self, state)}

    @model_validator(mode="after")
    def _has_each_unit_once(self) -> "RecipeServices":
        if len(self.states) < len(self.enabled) + len(self.disabled) + len(self.masked):
            raise problem("a unit has two states", "name each once")
        return self


class RecipeTest(Section):
    """A test of the finished image that runs in the sandbox, on a booted node, or in both."""

    name: SnakeId = Field(description="Name.", examples=["mpi_runs"])
    incident: Annotated[str, StringConstraints(min_length=10, max_length=400)] = Field(
        description="What went wrong once where this was not tested.", examples=["An image without libfabric booted on 200 nodes."]
    )
    run: Script | None = Field(default=None, description="Script for /bin/sh -e; must end with 0.", examples=["mpirun --version"])
    check: CheckName | None = Field(default=None, description="A check that the builder brings.", examples=["paths_present"])
    arguments: Annotated[tuple[Argument, ...], Listed] = Field(
        default=(), description="Arguments of the check.", examples=[["/usr"]]
    )
    where: Literal["sandbox", "boot", "both"] = Field(default="sandbox", description="Where it runs.", examples=["both"])
    seconds: Annotated[float, Field(gt=0, le=600)] | Annotated[int, Field(gt=0, le=600)] = Field(
        default=1.0, description="How long it may take.", examples=[5]
    )
    next_step: Annotated[str, StringConstraints(max_length=400)] = Field(
        default="", description="What to do when it fails.", examples=["add the package to the hpc layer"]
    )

    @model_validator(mode="after")
    def _is_script_or_check(self) -> "RecipeTest":
        if (self.run is None) == (self.check is None):
            raise problem("a test is a script or a check", "keep one of run and check")
        if self.arguments and self.check is None:
            raise problem("a script takes no arguments", "write them into run")
        if self.check is not None and self.where != "sandbox":
            raise problem("a check reads the root that was built, not a booted node", "write where: sandbox, or a script")
        return self


class RecipeLayer(Section):
    """One layer of a recipe, which adds packages, users, files, commands and services, in this order."""

    name: SnakeId = Field(description="Name; by custom base, hpc, gpu, site.", examples=["hpc"])
    sources: Annotated[tuple[PackageSource, ...], Listed] = Field(
        default=(), description="Repositories that this layer and those above it also take packages from."
    )
    components: Annotated[tuple[DnsLabel, ...], Listed] = Field(
        default=(),
        description="Components of the distribution's own repositories, beside its free ones, that this layer and those above also "
        "take packages from: Debian keeps firmware in non-free-firmware.",
        examples=[["non-free-firmware"]],
    )
    packages: Annotated[tuple[PackageName, ...], Listed] = Field(default=(), description="Packages.", examples=[["gcc", "make"]])
    users: Annotated[tuple[RecipeUser, ...], Listed] = Field(default=(), description="Users.")
    files: Annotated[tuple[RecipeFile, ...], Listed] = Field(default=(), description="Files, links and folders.")
    commands: Annotated[tuple[RecipeCommand, ...], Listed] = Field(default=(), description="Commands, in order.")
    services: RecipeServices = Field(default=RecipeServices(), description="systemd units.")
    kernel_arguments: Annotated[tuple[KernelArgument, ...], Listed] = Field(
        default=(),
        description="Words of the kernel's command line, behind those of the layers below; order and repetition are kept.",
        examples=[["mitigations=auto"]],
    )
    tests: Annotated[tuple[RecipeTest, ...], Listed] = Field(default=(), description="Tests of the image.")
    budget_mib: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=0, description="Most MiB that the layer may add to the root; 0: no limit.", examples=[500]
    )


KIND = "ImageRecipe"


class Budget(Section):
    """Size limits of the finished image in MiB."""

    root_mib: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Most MiB of the whole root.", examples=[400]
    )
    squashfs_mib: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Most MiB of the packed root, which every node fetches when it boots.", examples=[130]
    )


class Foundation(Section):
    """Settings that the lowest recipe of a chain decides for all that extend it."""

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
    """The content of a recipe file, such as those in `images/recipes`."""

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
    def _has_foundation_unless_extending(self) -> "RecipeSpec":
        if self.extends is None and self.foundation is None:
            raise problem("a recipe stands on another, or on a foundation of its own", "add extends: base, or foundation")
        if self.extends is not None and self.foundation is not None:
            raise problem("the foundation is that of the lowest recipe", "remove foundation, or extends")
        return self
