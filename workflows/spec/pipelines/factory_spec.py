"""`factory.yaml`: a disposable Kubernetes for builds, with its registry, Argo Workflows, projects, pipelines and rebuilds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from steps.contract.canonical import canonical
from workflows.spec import structure
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.fields import (
    AbsolutePath,
    Argument,
    ChartVersion,
    DnsLabel,
    Duration,
    Listed,
    SecretRef,
    Section,
    Text,
    Url,
    is_floating,
    problem,
)
from workflows.spec.parsing.loading import cut, read, validate_document
from workflows.spec.parsing.validation_errors import line_of
from workflows.spec.pipelines.pipeline_specs import PipelineSpec, RelativePath
from workflows.spec.sections.governance import ApprovalPoint
from workflows.spec.sections.hosts import Address, Hosts
from workflows.spec.sections.infrastructure import OsSettings, Rke2Settings, SshSettings
from workflows.spec.sections.proxy import Proxy
from workflows.spec.sections.rke2_parts import Image, RegistryAccess
from workflows.spec.sections.schedule import Schedule
from workflows.spec.sections.services import BaseServices, Storage

LEAST_ARGO = (4, 1, 2)
"""Oldest Argo Workflows that a factory may run: 4.1.0 and 4.1.1 lose locks (https://github.com/argoproj/argo-workflows/releases)."""
MOST_DEVELOPER_BYTES = 3900
"""Most bytes of the developers of all projects as JSON: the task that asks about their rights has them twice in its 8192 bytes."""
RESERVED = frozenset({"argo", "registry", "bringup", "bringup-check", "default", "local-path-storage"})
"""Namespaces that hold parts of a factory, or that its checks use."""
SYSTEM_SPACES = re.compile(r"kube-.*|cattle-.*|calico-.*|tigera-.*|cis-operator-.*|system-upgrade")
"""Namespaces that Kubernetes and RKE2 make."""

Quantity = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,9}(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
"""A Kubernetes quantity without a fraction, such as `64Gi` or `500m`."""
Account = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._:/+-]{0,199}$")]
"""A user or group name as the API server knows it."""


UserName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
"""A user of a machine."""
ContentPattern = Annotated[str, StringConstraints(pattern=r"^[a-z*][a-z0-9*-]{0,62}/[^%?\[\]\x00-\x1f\x7f]{1,300}$")]
"""Objects or images of a factory by name, with `*` for any characters.

Roles and their bindings may have all characters but `/` and `%` in their names; `?` and brackets would be patterns themselves.
"""


ClaimName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""A PersistentVolumeClaim: namespace and name."""


def _check_argo(text: str) -> str:
    numbers = re.fullmatch(r"v([0-9]+)\.([0-9]+)\.([0-9]+)", text)
    if numbers is None:
        raise problem("not a release of Argo Workflows", "write v4.1.2, or another exact release")
    if tuple(map(int, numbers.groups())) < LEAST_ARGO:
        raise problem(f"{text} is older than v4.1.2, whose locks the runs rely on", "write v4.1.2 or a newer release")
    return text


ArgoVersion = Annotated[str, AfterValidator(_check_argo)]
"""A release of Argo Workflows that is new enough."""


def _check_pinned(image: str) -> str:
    name, at, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if not at and (not tag or is_floating(tag)):
        raise problem("the image means different things at different times", "give a release's tag, or @sha256:DIGEST")
    if at and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise problem("not a digest", "write @sha256: and 64 hexadecimal digits")
    return image


PinnedImage = Annotated[Image, AfterValidator(_check_pinned)]
"""An image with a fixed tag or a digest."""


class BuilderImage(Section):
    """An image that `bringup factory up` pushes to the factory's registry, such as one in which builds run."""

    archive: RelativePath = Field(description="OCI archive beside the spec.", examples=["images/builder.oci.tar"])
    name: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*(/[a-z0-9]+([._-][a-z0-9]+)*)*$", max_length=200)
    ] = Field(description="Repository in the registry.", examples=["builders/spack"])
    tag: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")] = Field(
        description="Tag.", examples=["0.23.1"]
    )


REGISTRY_CERTIFICATE, REGISTRY_KEY = "registry_tls_certificate", "registry_tls_key"
REGISTRY_PASSWORD, REGISTRY_HTPASSWD = "registry_login_password", "registry_login_htpasswd"
"""Names of the secret files of a registry with TLS and a login."""


class RegistryTls(Section):
    """Section `registry.tls` of `factory.yaml`: the certificate of the registry, which then answers HTTPS alone."""

    certificate: SecretRef = Field(description="Certificate of the registry (PEM), with those between it and its CA.")
    key: SecretRef = Field(description="Key of the certificate (PEM).")
    ca: SecretRef | None = Field(
        default=None,
        description="CA certificates (PEM) by which nodes and pushes verify it; default: those that they trust anyway.",
    )
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")] = Field(
        default="localhost",
        description="Name in the certificate by which nodes pull. On each it leads to a node of the factory, as localhost does.",
        examples=["registry.example.org"],
    )


class RegistryLogin(Section):
    """Section `registry.login` of `factory.yaml`: users of the registry, and the login of nodes, pushes and the check."""

    username: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] = Field(
        description="User that nodes pull as and that pushes.", examples=["factory"]
    )
    password: SecretRef = Field(description="Password of that user.")
    htpasswd: SecretRef = Field(
        description="Users with bcrypt hashes, as `htpasswd -nbB USER PASSWORD` prints them; username is one of them."
    )


class RegistrySection(Section):
    """Section `registry` of `factory.yaml`: the registry for builder images and for results that are images."""

    image: PinnedImage = Field(
        default="docker.io/library/registry:2.8.3",
        description="Image of the registry (CNCF distribution), with tag or digest.",
        examples=["docker.io/library/registry:2.8.3"],
    )
    size: Quantity = Field(default="50Gi", description="Size of its volume.", examples=["200Gi"])
    node_port: Annotated[int, Field(ge=30000, le=32767)] = Field(
        default=30500, description="Port on every node by which images are pulled.", examples=[30500]
    )
    images: Annotated[tuple[BuilderImage, ...], Listed, Field(max_length=50)] = Field(
        default=(), description="Images that are pushed once the factory is built; default: none."
    )
    tls: RegistryTls | None = Field(default=None, description="Certificate of the registry; default: plain HTTP.")
    login: RegistryLogin | None = Field(default=None, description="Login of the registry; default: none, and everybody may push.")

    @model_validator(mode="after")
    def _password_is_encrypted(self) -> RegistrySection:
        if self.login and not self.tls:
            raise problem("the password would cross the network in clear", "add registry.tls, or remove registry.login")
        return self

    @property
    def secrets(self) -> Mapping[str, SecretRef]:
        """Return secret file → reference of what the registry itself reads, and of the password with which the check logs in."""
        tls, login = self.tls, self.login
        return {
            **({REGISTRY_CERTIFICATE: tls.certificate, REGISTRY_KEY: tls.key} if tls else {}),
            **({REGISTRY_PASSWORD: login.password, REGISTRY_HTPASSWD: login.htpasswd} if login else {}),
        }

    @property
    def access(self) -> Mapping[str, RegistryAccess]:
        """Return the entry of `rke2.registries` by which nodes pull from the registry; none while it has no TLS."""
        if self.tls is None:
            return {}
        name = f"{self.tls.name}:{self.node_port}"
        username, password = (self.login.username, self.login.password) if self.login else (None, None)
        # the endpoint is written out: containerd takes localhost for a registry without TLS
        access = RegistryAccess(endpoints=(f"https://{name}",), ca=self.tls.ca, username=username, password=password)
        return {name: access}


class SharedFolder(Section):
    """Section `share` of `factory.yaml`: a folder of an NFS server that all nodes and all projects have."""

    server: Address = Field(description="Name or address of the NFS server.", examples=["nas.example.org"])
    path: AbsolutePath = Field(description="Exported folder.", examples=["/srv/factory"])


class RateLimit(Section):
    """Section `argo.rate_limit` of `factory.yaml`: how fast the controller creates pods."""

    limit: Annotated[int, Field(ge=1, le=1000)] = Field(default=20, description="Pods a second.", examples=[20])
    burst: Annotated[int, Field(ge=1, le=1000)] = Field(default=5, description="Pods at once above that.", examples=[5])


class ArgoSection(Section):
    """Section `argo` of `factory.yaml`: Argo Workflows and the settings of its controller."""

    chart: ChartVersion = Field(default="2.0.1", description="Version of the chart argo-workflows.", examples=["2.0.1"])
    version: ArgoVersion = Field(
        default="v4.1.2", description="Release of Argo Workflows: the tag of its images.", examples=["v4.1.2"]
    )
    repo: Url = Field(
        default="https://argoproj.github.io/argo-helm",
        description="Repository of the chart.",
        examples=["oci://registry.example.org:5000/charts"],
    )
    requeue: Duration = Field(
        default="2s",
        validate_default=True,
        description="How soon the controller looks at a Workflow again after a pod ended.",
        examples=["2s"],
    )
    pod_gc_delay: Duration = Field(
        default="60s", validate_default=True, description="How long ended pods keep their logs.", examples=["10m"]
    )
    workers: Annotated[int, Field(ge=1, le=256)] = Field(default=32, description="Workflows handled at a time.", examples=[32])
    parallelism: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=50, description="Workflows that run at the same time in the whole factory.", examples=[50]
    )
    project_parallelism: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=10, description="Workflows that run at the same time in one project.", examples=[10]
    )
    rate_limit: RateLimit = Field(default=RateLimit(), description="How fast pods are created.")


class ProjectQuota(Section):
    """Section `projects.*.quota` of `factory.yaml`: the most that a project's pods may request together."""

    cpu: Quantity = Field(default="64", description="CPU cores.", examples=["128"])
    memory: Quantity = Field(default="256Gi", description="Memory.", examples=["512Gi"])
    storage: Quantity = Field(default="500Gi", description="Volumes.", examples=["2Ti"])
    pods: Annotated[int, Field(ge=1, le=5000)] = Field(default=200, description="Pods.", examples=[200])


class BuildPod(Section):
    """Section `projects.*.pod` of `factory.yaml`: what a container gets if its template requests nothing."""

    cpu: Quantity = Field(default="1", description="CPU cores.", examples=["2"])
    memory: Quantity = Field(default="2Gi", description="Memory.", examples=["4Gi"])


class FactoryProject(Section):
    """A project of `factory.yaml`: a namespace with a quota and a priority, and the developers who submit builds in it."""

    quota: ProjectQuota = Field(default=ProjectQuota(), description="The most that its pods may request together.")
    pod: BuildPod = Field(default=BuildPod(), description="Requests of containers that state none.")
    priority: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1000, description="Pods of a higher number go first and may evict others.", examples=[1000]
    )
    users: Annotated[tuple[Account, ...], Listed] = Field(
        default=(), description="Users who submit released templates and read logs.", examples=[["ada@example.org"]]
    )
    groups: Annotated[tuple[Account, ...], Listed] = Field(
        default=(), description="Groups of such users.", examples=[["hpc-developers"]]
    )


class PipelineFile(Section):
    """A released pipeline of `factory.yaml`: WorkflowTemplates and what they read, as `bringup render` wrote them."""

    project: DnsLabel = Field(description="Project that it runs in.", examples=["software"])
    file: RelativePath = Field(description="YAML file of WorkflowTemplates and ConfigMaps.", examples=["pipelines/stack.yaml"])
    schedule: Schedule | None = Field(default=None, description="When its template starts by itself; default: never.")
    template: DnsLabel | None = Field(
        default=None,
        description="Template that the schedule starts; default: the only one of the file.",
        examples=["stack-science-0a1b2c3d4e5f"],
    )


class SurvivingCopy(Section):
    """A copy of something that must survive the factory, with the time within which it must have been renewed."""

    what: Text = Field(description="What it is a copy of.", examples=["published stacks"])
    path: AbsolutePath = Field(
        description="File, or folder, outside the factory. Published stacks and images in it are compared with their manifests.",
        examples=["/srv/backup/stacks"],
    )
    marker: RelativePath | None = Field(
        default=None,
        description="File in the folder that the copying job writes last: its time is the copy's age. Default: the time of the "
        "oldest pointer of published stacks or images, which is that of its publication; any other folder needs a marker.",
        examples=["complete"],
    )
    within: Duration = Field(default="24h", validate_default=True, description="Greatest age of the copy.", examples=["24h"])
    volume: ClaimName | None = Field(
        default=None,
        description="Claim of a project whose bytes it holds, NAMESPACE/NAME. A rebuild refuses to lose bytes of claims without a "
        "copy. Default: none.",
        examples=["software/data"],
    )
    restored: RelativePath | None = Field(
        default=None,
        description="File in the folder that the site writes anew once it has brought the bytes back into the volume after a "
        "rebuild. A drill waits for it and counts the volume as lost without it. Default: nobody compares the volume.",
        examples=["restored"],
    )

    @model_validator(mode="after")
    def _restores_a_volume(self) -> SurvivingCopy:
        if self.restored and not self.volume:
            raise problem(
                "a file tells of a restored volume, and no volume is named", "add volume: NAMESPACE/NAME, or remove restored"
            )
        return self


class SecondPlace(Section):
    """Section `rebuild.second_place` of `factory.yaml`: another cluster with Argo Workflows, that rebuilds the factory."""

    schedule: Schedule = Field(description="When the factory is rebuilt.")
    image: PinnedImage = Field(
        description="Image with bringup, Ansible and OpenSSH, with tag or digest.", examples=["registry.example.org/bringup:1.4.0"]
    )
    namespace: DnsLabel = Field(default="bringup", description="Namespace of the CronWorkflow.", examples=["bringup"])
    account: DnsLabel = Field(
        default="default", description="ServiceAccount of its pods, which may report results to Argo.", examples=["bringup-steps"]
    )
    files: DnsLabel = Field(
        description="Secret with `factory.yaml` and the files that it names, such as the SSH key.", examples=["factory-files"]
    )
    home: DnsLabel = Field(
        description="PersistentVolumeClaim that keeps the runs and the factory's kubeconfig.", examples=["factory-home"]
    )
    claims: Mapping[DnsLabel, AbsolutePath] = Field(
        default={},
        description="Further claims, each with its folder in the pod: those of `rebuild.copies` and `rebuild.diagnostics`.",
        examples=[{"backup": "/srv/backup"}],
    )


class Rebuild(Section):
    """Section `rebuild` of `factory.yaml`: when and how the factory is thrown away and built again."""

    calendar: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9*:,./ ~-]{1,100}$")] | None = Field(
        default=None,
        description="When a systemd timer of the admin's machine rebuilds (systemd.time); default: only by hand.",
        examples=["Sun *-*-* 02:00"],
    )
    second_place: SecondPlace | None = Field(
        default=None, description="A CronWorkflow of another cluster that rebuilds; default: none."
    )
    reinstall: Annotated[tuple[Argument, ...], Listed] = Field(
        default=(),
        description="Command of the site that reinstalls the OS of one machine; `{host}` and `{address}` are replaced. "
        "It may return at once. Default: the OS stays, and RKE2 is removed from it.",
        examples=[["/usr/local/sbin/reinstall", "{host}"]],
    )
    reinstall_timeout: Duration = Field(
        default="45m",
        validate_default=True,
        description="Longest time until all machines answer from a new installation, without RKE2.",
        examples=["45m"],
    )
    drain: Duration | None = Field(
        default=None,
        description="How long a rebuild waits for builds that run, while schedules start none; default: builds refuse it.",
        examples=["2h"],
    )
    copies: Annotated[tuple[SurvivingCopy, ...], Listed] = Field(
        default=(), description="Copies without which nothing is rebuilt; default: nothing in the factory must survive."
    )
    restored: Annotated[tuple[ContentPattern, ...], Listed, Field(max_length=100)] = Field(
        default=(),
        description="Contents that the site brings back by itself, such as Secrets: RESOURCE/NAMESPACE/NAME, RESOURCE/NAME outside "
        "of namespaces, images/NAME:TAG, or volumes/NAMESPACE/CLAIM for bytes in a volume (volumes/VOLUME without a claim), with * "
        "for any characters; bytes need a pattern that begins with volumes/. A rebuild does not count them as lost; default: all "
        "others are.",
        examples=[["secrets/software/publish-key", "images/cache/*", "volumes/software/scratch"]],
    )
    restore_timeout: Duration = Field(
        default="30m",
        validate_default=True,
        description="How long a drill waits, after the rebuild, for the files of `copies[].restored`.",
        examples=["2h"],
    )
    platforms: Annotated[tuple[RelativePath, ...], Listed] = Field(
        default=(), description="Cluster specs whose hosts a rebuild refuses to touch.", examples=[["clusters/h200.yaml"]]
    )
    diagnostics: AbsolutePath = Field(
        default="/var/tmp/bringup-diagnostics",
        description="Folder outside the factory for what is saved before it is removed.",
        examples=["/srv/bringup/diagnostics"],
    )


class DrilledMachine(Section):
    """Section `drill.machine` of `factory.yaml`: a machine that the site boots while the factory is cut off."""

    power: Text = Field(
        description="Line for a login shell that starts the machine, shows its console, or is the machine. It ends with the trial.",
        examples=["ipmitool -H bmc07 -f /etc/bmc chassis power cycle"],
    )
    host: DnsLabel | None = Field(
        default=None, description="Host of `drill.hosts` that runs it; default: the first.", examples=["boot01"]
    )
    user: UserName = Field(default="root", description="User of that host who runs it.", examples=["root"])
    answers: Annotated[str, StringConstraints(pattern=r"^(ssh|https?)://[A-Za-z0-9.:/_\[\]-]{1,300}$")] | None = Field(
        default=None,
        description="Address at which the machine must answer once it has booted: an SSH server or a URL. If it answers before, it "
        "must fall silent first. A machine has this or console.",
        examples=["ssh://n007.example.org:22"],
    )
    console: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00\n]+$")] | None = Field(
        default=None, description="Text that the output of `power` must have once the machine has booted.", examples=["n007 login:"]
    )
    within: Duration = Field(default="10m", validate_default=True, description="Time limit of the boot.", examples=["10m"])
    behind_cut: bool = Field(
        default=False,
        description="True if all packets of the machine pass `host` as its router, as those of a virtual machine in a network of "
        "that host's own do, so that it is cut off too. A machine on a bridge, or with a way of its own, is not: then the drill "
        "says that it booted, and not that it needs no factory.",
        examples=[True],
    )

    @model_validator(mode="after")
    def _tells_something(self) -> DrilledMachine:
        if not self.answers and not self.console:
            raise problem("nothing tells if the machine has booted", "add answers, an address, or console, a text of its output")
        return self


class Drill(Section):
    """Section `drill` of `factory.yaml`: hosts of production, and what must work on them without the factory."""

    platform: RelativePath = Field(
        description="Cluster spec of production, by which its hosts are reached.", examples=["clusters/h200.yaml"]
    )
    hosts: Annotated[tuple[DnsLabel, ...], Listed, Field(min_length=1, max_length=20)] = Field(
        description="Hosts of that spec that are cut off.", examples=[["login01"]]
    )
    commands: Annotated[tuple[Text, ...], Listed, Field(max_length=50)] = Field(
        default=(),
        description="Lines for a login shell that must work then: they load modules and run programs. A drill has these, "
        "boot scripts or a machine.",
        examples=[["module load gcc/14 && gcc --version"]],
    )
    user: UserName = Field(default="nobody", description="User of those hosts who runs the commands.", examples=["nobody"])
    boot: Annotated[tuple[Url, ...], Listed, Field(max_length=20)] = Field(
        default=(),
        description="Boot scripts whose kernels and images must answer then.",
        examples=[["http://boot.example.org/images/boot/default.ipxe"]],
    )
    machine: DrilledMachine | None = Field(default=None, description="A machine that must boot then; default: none is booted.")
    published: Annotated[tuple[AbsolutePath, ...], Listed, Field(max_length=20)] = Field(
        default=(),
        description="Folders of those hosts whose files must be the same after a rebuild.",
        examples=[["/srv/bringup/stacks"]],
    )
    timeout: Duration = Field(default="60s", validate_default=True, description="Time limit of one command.", examples=["60s"])

    @model_validator(mode="after")
    def _tries_something(self) -> Drill:
        if not self.commands and not self.boot and not self.machine:
            raise problem("the drill cuts hosts off and tries nothing on them", "add commands that must work then, or boot scripts")
        if self.machine and self.machine.host and self.machine.host not in self.hosts:
            raise problem(f"machine.host {self.machine.host} is none of the hosts that are cut off", "add it to hosts")
        return self


class FactorySpec(PipelineSpec):
    """The content of `factory.yaml`: a disposable Kubernetes for builds, which can be rebuilt from this file at any time."""

    kind: Literal["Factory"] = Field(description="What the file describes.", examples=["Factory"])
    hosts: Hosts = Field(description="Groups of machines; three to five are enough.")
    ssh: SshSettings = Field(default=SshSettings(), description="SSH to the machines.")
    proxy: Proxy | None = Field(default=None, description="HTTP proxies of the machines; default: none.")
    os: OsSettings = Field(default=OsSettings(), description="The operating system that the machines run.")
    rke2: Rke2Settings = Field(default=Rke2Settings(), description="RKE2.")
    storage: Storage = Field(default=Storage(), description="Storage class for build volumes.")
    share: SharedFolder | None = Field(
        default=None, description="Folder that all nodes share, mounted as claim `share` in each project; default: none."
    )
    check_image: Image = Field(
        default="docker.io/library/busybox:1.37.0",
        description="Image with busybox for the checks, with tag or digest.",
        examples=["registry.example.org:5000/library/busybox:1.37.0"],
    )
    registry: RegistrySection = Field(default=RegistrySection(), description="The registry.")
    argo: ArgoSection = Field(default=ArgoSection(), description="Argo Workflows.")
    projects: Annotated[Mapping[DnsLabel, FactoryProject], Field(min_length=1, max_length=20)] = Field(
        default={"builds": FactoryProject()},
        description="Projects by name, which is the name of their namespace.",
        examples=[{"software": {}}],
    )
    pipelines: Annotated[tuple[PipelineFile, ...], Listed, Field(max_length=50)] = Field(
        default=(), description="Released pipelines; default: none."
    )
    rebuild: Rebuild = Field(default=Rebuild(), description="How the factory is rebuilt.")
    drill: Drill | None = Field(
        default=None, description="What `bringup factory drill` tries on production while it is cut off; default: no drill."
    )

    @model_validator(mode="after")
    def _servers(self) -> FactorySpec:
        servers = sum(len(group.names()) for group in self.hosts.values() if group.role == "server")
        if servers not in (1, 3, 5):
            raise problem(f"{servers} servers cannot hold an etcd majority well", "give 1, 3 or 5 hosts the role server")
        if servers > 1 and self.rke2.registration_address is None:
            raise problem("several servers need one address in front of them", "add rke2.registration_address")
        if any(group.gpu for group in self.hosts.values()):
            raise problem("a factory has no accelerators", "remove gpu: true; accelerators belong to cluster.yaml")
        return self

    @property
    def has_pipelines(self) -> bool:
        """Return True if the factory releases pipelines."""
        return bool(self.pipelines)

    @property
    def has_share(self) -> bool:
        """Return True if the nodes of the factory share a folder."""
        return self.share is not None

    @property
    def approvals(self) -> tuple[ApprovalPoint, ...]:
        """Return the approvals of a run: none, because everything in a factory can be built again."""
        return ()

    @property
    def secrets(self) -> Mapping[str, SecretRef]:
        """Return further secrets by reference: none beside those of SSH and RKE2."""
        return {}

    @property
    def developers(self) -> dict[str, dict[str, list[str]]]:
        """Return who submits, in the form of the check of rights: `projects` maps each to its groups, `users` some to people."""
        groups = {"projects": {name: list(project.groups) for name, project in self.projects.items()}}
        users = {name: list(project.users) for name, project in self.projects.items() if project.users}
        return {**groups, "users": users} if users else groups

    @property
    def cluster(self) -> ClusterSpec:
        """Return the Kubernetes below the factory as a cluster spec without GPUs: machines, operating system, RKE2 and storage."""
        return ClusterSpec(
            api_version="bringup/v1",
            kind="Cluster",
            name=self.name,
            owner=self.owner,
            revision=self.revision,
            hosts=self.hosts,
            ssh=self.ssh,
            proxy=self.proxy,
            os=self.os,
            rke2=self.rke2.model_copy(update={"registries": {**self.registry.access, **self.rke2.registries}}),
            secrets=self.registry.secrets,
            base_services=BaseServices(storage=self.storage, cert_manager=False, monitoring_crds=False),
            check_image=self.check_image,
            stages=("os_prep", "rke2", "base_services"),
        )


def load_factory(source: Path | str) -> FactorySpec:
    """Load `factory.yaml`. Raises `SpecErrors` with all its errors."""
    name, document = read(source)
    spec = validate_document(FactorySpec, name, document)
    findings = [replace(error, line=line_of(error.path, document)) for error in _between_sections(spec)]
    if findings:
        raise SpecErrors(name, cut(findings))
    return spec


def _between_sections(spec: FactorySpec) -> Iterator[SpecError]:
    """Yield the errors between sections: those that a cluster spec of these machines has, and those of Argo's limits."""
    for error in structure.check(spec.cluster, set()):
        yield replace(error, path=error.path.removeprefix("base_services."))
    if spec.storage.provisioner == "none":
        fix = "write local_path, or existing with the name of a storage class"
        yield SpecError("storage.provisioner", "the registry needs a volume, and nothing would make it", fix, "none")
    if spec.argo.project_parallelism > spec.argo.parallelism:
        problem_text = f"one project may run {spec.argo.project_parallelism} Workflows, and all together {spec.argo.parallelism}"
        fix = "raise argo.parallelism, or lower argo.project_parallelism"
        yield SpecError("argo.project_parallelism", problem_text, fix, str(spec.argo.project_parallelism))
    if (size := len(canonical(spec.developers))) > MOST_DEVELOPER_BYTES:
        problem_text = f"the names of projects, users and groups have {size} bytes together, and may have {MOST_DEVELOPER_BYTES}"
        yield SpecError("projects", problem_text, "name groups in place of users, or give projects shorter names")
    for name in spec.projects:
        if name in RESERVED or SYSTEM_SPACES.fullmatch(name):
            # objects and volumes in it would count as the factory's own, which a rebuild loses unseen
            reason = f"{name} is a namespace of the factory itself, of Kubernetes or of RKE2, or is named like theirs"
            yield SpecError(f"projects.{name}", reason, "choose another name for the project")
    for index, entry in enumerate(spec.pipelines):
        if entry.project not in spec.projects:
            known = ", ".join(spec.projects)
            yield SpecError(f"pipelines[{index}].project", "there is no such project", f"write one of {known}", entry.project)
        if entry.template and not entry.schedule:
            fix = "add schedule, or remove template"
            yield SpecError(f"pipelines[{index}].template", "a template is named and nothing starts it", fix, entry.template)
