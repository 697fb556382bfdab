"""`image.yaml`: the recipe of a node image, its boot tests, and where it is published."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, cast

from pydantic import Field, StringConstraints, field_validator, model_validator

from steps.contract.release_layout import NODES
from steps.nodeimage.contract.boot_tree import START, is_machine
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
    problem,
)
from workflows.spec.parsing.loading import load_as
from workflows.spec.pipelines.git_schedule import GitSchedule, require_home_secrets
from workflows.spec.pipelines.pipeline_specs import PipelineSpec, RelativePath, stays_below
from workflows.spec.pipelines.publish_access import PUBLISH_KEY, PUBLISH_KNOWN_HOSTS, PublishSsh
from workflows.spec.sections.governance import ApprovalPoint, ApprovalRequest
from workflows.spec.sections.proxy import Proxies
from workflows.stage_names import StageName

PUBLISHED: Final = "image_publish"
"""Stage that waits for the approval of an image spec, if there is one."""
SIGN_KEY, BOOT_KEY = "image_sign_key", "image_boot_key"
"""Names (beside those of `publish_access`) of bringup's files in the secrets folder; secrets of a recipe's commands keep theirs."""

REPORTS: Final = f"/{NODES}"
"""End of the URL to which booted nodes report which image they run (`images/boot/report.sh`)."""

MirrorUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+[^\s@/]$", max_length=500)]
"""URL of a package mirror: no credentials, no slash at the end."""
NodesUrl = Annotated[str, StringConstraints(pattern=r"^http://[^\s@]+[^\s@/]$", max_length=500)]
"""URL that nodes use while they boot: http, because they have nothing yet to check a certificate with. No slash at the end."""
KernelArgument = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,:=/@%+-]{0,199}$")]
"""A word of the kernel command line, without characters that a boot script would interpret."""
Mac = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]


class Boot(Section):
    """Section `boot` of `image.yaml`: settings of the PXE boot test."""

    firmware: Annotated[tuple[Literal["bios", "uefi"], ...], Listed, Field(min_length=1)] = Field(
        default=("bios", "uefi"), description="Firmware that must boot it.", examples=[["uefi"]]
    )
    nodes: Annotated[int, Field(ge=1, le=16)] = Field(
        default=1, description="Machines that boot it at once, with each firmware.", examples=[2]
    )
    memory_mib: Annotated[int, Field(ge=512, le=65536)] = Field(
        default=3072, description="Memory of a test machine in MiB.", examples=[3072]
    )
    timeout: Duration = Field(
        default="5m", validate_default=True, description="Longest boot; 35 to 70 s are usual on an idle builder.", examples=["5m"]
    )

    @model_validator(mode="after")
    def _has_each_firmware_once(self) -> "Boot":
        if len(set(self.firmware)) < len(self.firmware):
            raise problem("a firmware stands twice", "name each once; nodes says how many machines boot")
        return self


class NodeGroup(Section):
    """A group of nodes that boot with the same boot script."""

    kernel_arguments: Annotated[tuple[KernelArgument, ...], Listed] = Field(
        default=(), description="Kernel arguments beside those of the recipe.", examples=[["console=ttyS1,115200"]]
    )
    nodes: Mapping[Mac, HostName] = Field(
        default={}, description="MAC address, lower case, to host name.", examples=[{"52:54:00:12:34:56": "node001"}]
    )


class ImagePublish(Section):
    """The published tree: the folder that nodes boot from, how they reach it, and how many versions are kept for rollback."""

    root: AbsolutePath = Field(description="Folder that the boot server serves.", examples=["/srv/bringup/images"])
    url: NodesUrl = Field(description="How nodes reach that folder.", examples=["http://boot.example.org/images"])
    report: NodesUrl | None = Field(
        default=None,
        description="Where booted nodes put which image they run (`bringup image nodes`): url and /nodes; default: nowhere.",
        examples=["http://boot.example.org/images/nodes"],
    )
    ssh: PublishSsh | None = Field(default=None, description="The boot server by SSH; default: the folder is on this machine.")
    keep: Annotated[int, Field(ge=2, le=100)] = Field(
        default=3, description="Versions kept; at least 2, so that one can go back.", examples=[3]
    )
    groups: Mapping[DnsLabel, NodeGroup] = Field(
        default={"default": NodeGroup()}, description="Groups of nodes, each with a boot script.", examples=[{"compute": {}}]
    )
    sign: SecretRef | None = Field(
        default=None,
        description="SSH private key that signs the manifest; default: unsigned.",
        examples=[{"file": "./sign_ed25519"}],
    )
    boot_signing: SecretRef | None = Field(
        default=None,
        description="PEM file with a key and its certificate for code signing, by which iPXE verifies kernel and initrd. It takes "
        "an iPXE built with IMAGE_TRUST_CMD that trusts the certificate. Default: iPXE verifies nothing.",
        examples=[{"file": "./boot_signing.pem"}],
    )
    signers: Annotated[tuple[PublicKey, ...], Listed] = Field(
        default=(),
        description="SSH public keys whose signatures are trusted.",
        examples=[["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"]],
    )

    @field_validator("report")
    @classmethod
    def _ends_with_reports_folder(cls, report: str | None) -> str | None:
        """Return the report URL. Raises for one that boot servers do not accept reports at, because nodes would retry for ever."""
        if report is not None and not report.endswith(REPORTS):
            raise problem(
                f"nodes put their files into the folder {REPORTS} of the tree, and this names another one",
                f"write url and {REPORTS}, as in http://boot.example.org/images{REPORTS}",
            )
        return report

    @model_validator(mode="after")
    def _has_groups_and_signers(self) -> "ImagePublish":
        if not self.groups:
            raise problem("there is no group of nodes, hence no boot script", "name one, as in groups: {default: {}}")
        if reserved := sorted(name for name in self.groups if name == START or is_machine(name)):
            raise problem(f"group {reserved[0]} has the name of a boot script that bringup writes itself", "give it another name")
        if self.sign is not None and not self.signers:
            raise problem("a signature that nobody is told to trust proves nothing", "add signers, the public keys of sign")
        group_by_mac: dict[str, str] = {}
        for name, group in self.groups.items():
            for mac in group.nodes:
                if other_group := group_by_mac.get(mac):
                    raise problem(f"{mac} is in group {other_group} and in {name}", "name each node in one group")
                group_by_mac[mac] = name
        return self


class ImageSpec(PipelineSpec):
    """The content of `image.yaml`: a node image from a recipe, tested in a sandbox and by a PXE boot, then published."""

    kind: Literal["Image"] = Field(description="What the file describes.", examples=["Image"])
    recipe: RelativePath = Field(
        description="Name of a shipped recipe, or the path of your own (ends with .yaml), relative to this file.",
        examples=["compute"],
    )
    variables: Mapping[SnakeId, str] = Field(
        default={}, description="Values for variables of the recipe.", examples=[{"time_server": "ntp.example.org"}]
    )
    lock: RelativePath | None = Field(
        default=None, description="Package lock; default: the one beside the recipe.", examples=["compute.lock.json"]
    )
    mirror: MirrorUrl | None = Field(
        default=None,
        description="Package mirror of the distribution; default: its public one.",
        examples=["https://mirror.example.org/debian"],
    )
    security_mirror: MirrorUrl | None = Field(
        default=None,
        description="Mirror of the security updates; default: that of Debian beside mirror, as in …/debian-security.",
        examples=["https://mirror.example.org/debian-security"],
    )
    mirror_keyring: Argument | None = Field(
        default=None,
        description="Key of the mirror, relative to this file, where it signs by itself; default: the distribution's.",
        examples=["./mirror.gpg"],
    )
    proxy: Proxies | None = Field(
        default=None,
        description="HTTP proxies by which tasks, also in pods, fetch packages, tell a webhook and read Git; "
        "default: those of this machine, and in pods none.",
        examples=[{"http": "http://proxy.example.org:3128"}],
    )
    secrets: Mapping[SnakeId, SecretRef] = Field(
        default={}, description="Secrets of the recipe's commands, by reference.", examples=[{"license": {"file": "./license"}}]
    )
    boot: Boot = Field(default=Boot(), description="The PXE boot test.")
    schedule: GitSchedule | None = Field(
        default=None, description="When Argo builds by itself what stands in Git; default: only when asked, or by CI."
    )
    approval: ApprovalRequest | None = Field(
        default=None, description="Who decides before it is published; default: nobody is asked."
    )
    publish: ImagePublish = Field(description="Where image, kernel and initrd go.")

    @property
    def approvals(self) -> tuple[ApprovalPoint, ...]:
        """The approval in the form of other specs: a run waits for it before the image is published."""
        if self.approval is None:
            return ()
        settings = {name: getattr(self.approval, name) for name in type(self.approval).model_fields}
        return (ApprovalPoint.model_construct(before=cast(StageName, PUBLISHED), **settings),)

    @model_validator(mode="after")
    def _has_no_reserved_secrets(self) -> "ImageSpec":
        if reserved := sorted({SIGN_KEY, BOOT_KEY, PUBLISH_KEY, PUBLISH_KNOWN_HOSTS} & set(self.secrets)):
            raise problem(f"secrets has {', '.join(reserved)}, which bringup names itself", "give yours another name")
        return self

    @model_validator(mode="after")
    def _is_buildable_in_a_pod(self) -> "ImageSpec":
        """Raise if a spec that a pod reads from Git needs files or folders of this machine."""
        if self.schedule is None:
            return self
        if self.publish.ssh is None:
            raise problem(
                "a schedule builds in pods, which have none of the folder publish.root", "add publish.ssh, the boot server"
            )
        if self.publish.ssh.known_hosts.startswith("~") or not stays_below(self.publish.ssh.known_hosts):
            raise problem(
                "a schedule reads no file outside of the spec's folder, and known_hosts is one", "put it beside the spec, in Git"
            )
        require_home_secrets(self.references, self.approval)
        return self

    @property
    def references(self) -> dict[str, SecretRef]:
        """References to all secrets except those of the approval, by file name in the secrets folder."""
        ssh = self.publish.ssh
        keys = {SIGN_KEY: self.publish.sign, BOOT_KEY: self.publish.boot_signing, PUBLISH_KEY: ssh.key if ssh else None}
        references = {**keys, **self.secrets}
        return {name: reference for name, reference in references.items() if reference is not None}


def load_image(source: Path | str) -> ImageSpec:
    """Load `image.yaml`. Raises SpecErrors with all its errors."""
    return load_as(ImageSpec, source)


def is_path(recipe: str) -> bool:
    """Return True if `recipe` is the path of a recipe file, False if it is the name of a shipped recipe."""
    return recipe.endswith((".yaml", ".yml"))
