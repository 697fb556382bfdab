"""The section `delivery`: charts are installed by RKE2's helm-controller, or by Argo CD from a Git repository that the pipeline
writes.
"""

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from steps.contract import delivery
from workflows.spec import fields
from workflows.spec.fields import Argument, DnsLabel, GitRef, GitUrl, SecretRef, Section, problem

ProjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$")]
"""Name of an AppProject, short enough for the second project `NAME-roots`."""

_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
"""Pattern of a key of a ConfigMap."""

GitFolder = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$", max_length=200)
]
"""A folder below the root of a repository, without a leading slash or leading dots."""


class ArgoCdDelivery(Section):
    """The Git repository that Argo CD delivers from, and the Argo CD of the target cluster."""

    repo: GitUrl = Field(
        description="Git repository of the applications, by https or SSH; the pipeline commits and pushes to it.",
        examples=["https://git.example.org/platform.git"],
    )
    path: GitFolder = Field(default="apps", description="Folder below the repository's root.", examples=["apps"])
    branch: GitRef = Field(default="main", description="Branch that the pipeline commits to.", examples=["main"])
    revision: GitRef = Field(
        description="Tag that the pipeline creates, or an existing commit (40 hex digits). "
        "HEAD, the name in branch, refs/… and a shortened commit are refused (P13).",
        examples=["v1.4.0"],
    )
    environment: DnsLabel | None = Field(
        default=None, description="Name of this cluster in the repository; default: the cluster's.", examples=["staging"]
    )
    project: ProjectName = Field(description="AppProject that the pipeline creates; any name but default.", examples=["platform"])
    namespace: DnsLabel = Field(default="argocd", description="Namespace of Argo CD.", examples=["argocd"])
    version: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$")] = Field(
        default="3.4", description="Argo CD version, in quotes.", examples=["3.4"]
    )
    install: bool = Field(
        default=True,
        description="true: RKE2's helm-controller installs the chart that the catalog pins. false: the Argo CD of the site is "
        "verified only.",
        examples=[True],
    )
    credentials: SecretRef | None = Field(
        default=None,
        description="Credentials of the repository: USER:PASSWORD or a token for https, a private key for SSH; default: none.",
    )
    ca: SecretRef | None = Field(
        default=None,
        description="CA certificates (PEM) of the repository's server, if no public CA signed its certificate. The pipeline and "
        "Argo CD trust only these for the server. Values of the Argo CD chart must not name other ones.",
        examples=[{"file": "./git_ca.pem"}],
    )
    known_hosts: Argument | None = Field(
        default=None,
        description="Path of a known_hosts file with the keys of the repository's server, relative to the spec; required for SSH.",
        examples=["./git_known_hosts"],
    )

    @property
    def is_commit(self) -> bool:
        """True if the revision is a commit: nothing is pushed then, and the commit is only compared with what would be."""
        return delivery.is_commit(self.revision)

    @model_validator(mode="after")
    def _plain_address(self) -> "ArgoCdDelivery":
        fields.require_plain("repo", self.repo)
        return self

    @model_validator(mode="after")
    def _own_project(self) -> "ArgoCdDelivery":
        if self.project == "default":
            raise problem(
                "the project default lets an application deploy anywhere", "name a project of your own: project: platform"
            )
        return self

    @model_validator(mode="after")
    def _git_names(self) -> "ArgoCdDelivery":
        fields.require_name("branch", self.branch, "main")
        fields.require_name("revision", self.revision, "v1.4.0")
        return self

    @model_validator(mode="after")
    def _credentials_fit(self) -> "ArgoCdDelivery":
        is_set = {name: getattr(self, name) is not None for name in ("credentials", "ca", "known_hosts")}
        fields.require_fitting("repo", self.repo, **is_set)
        if self.ca is not None and not _KEY.fullmatch(delivery.server(self.repo)):
            raise problem(
                "ca needs a server with a host name: Argo CD keeps certificates in a ConfigMap, whose keys take no IPv6 address",
                "write repo: https://HOST/PATH with the server's name",
            )
        if self.known_hosts is None and fields.over_ssh(self.repo):
            raise problem(
                "a repository reached by SSH needs known_hosts: neither pods nor Argo CD trust a server whose key they do not know",
                "ssh-keyscan HOST > git_known_hosts, compare its fingerprints with those its operator gives, "
                "and write known_hosts: ./git_known_hosts",
            )
        return self


class Delivery(Section):
    """Owner of the chart releases: RKE2's helm-controller or Argo CD. Each release has exactly one owner."""

    mode: Literal["helm_controller", "argo_cd"] = Field(
        default="helm_controller",
        description="Owner of chart releases: RKE2's helm-controller, or Argo CD.",
        examples=["helm_controller"],
    )
    argo_cd: ArgoCdDelivery | None = Field(default=None, description="Settings of Argo CD, required with mode: argo_cd.")

    @model_validator(mode="after")
    def _inputs_fit_mode(self) -> "Delivery":
        if self.mode == "argo_cd" and self.argo_cd is None:
            raise problem("mode argo_cd needs its repository", "add argo_cd: {repo: URL, revision: TAG, project: NAME}")
        if self.mode == "helm_controller" and self.argo_cd is not None:
            raise problem("argo_cd is given, but the mode is helm_controller", "write mode: argo_cd, or remove argo_cd")
        return self
