"""Who installs charts: RKE2's helm-controller, or Argo CD from a Git repository that the pipeline writes."""

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from steps.contract import delivery
from workflows.spec import git_address
from workflows.spec.fields import Argument, DnsLabel, SecretRef, Section, problem
from workflows.spec.git_address import GitRef, GitUrl

ProjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?$")]
"""An AppProject's name: short enough for the second project `NAME-roots`."""

_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
"""What a key of a ConfigMap may be."""

GitFolder = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$", max_length=200)
]
"""A folder below the root of a repository: no leading slash, no dots in front."""


class ArgoCd(Section):
    """The Git repository that Argo CD delivers from, and the Argo CD in the target cluster."""

    repo: GitUrl = Field(
        description="Git repository of the applications, by https or SSH; the pipeline commits and pushes to it.",
        examples=["https://git.example.org/platform.git"],
    )
    path: GitFolder = Field(default="apps", description="Folder below the repository's root.", examples=["apps"])
    branch: GitRef = Field(default="main", description="Branch that the pipeline commits to.", examples=["main"])
    revision: GitRef = Field(
        description="Tag that the pipeline makes, or a commit (40 hex digits) that is there. "
        "HEAD, the name in branch, refs/… and a shortened commit are refused (P13).",
        examples=["v1.4.0"],
    )
    environment: DnsLabel | None = Field(
        default=None, description="Name of this cluster in the repository; default: the cluster's.", examples=["staging"]
    )
    project: ProjectName = Field(description="AppProject that the pipeline makes; not default.", examples=["platform"])
    namespace: DnsLabel = Field(default="argocd", description="Namespace of Argo CD.", examples=["argocd"])
    version: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$")] = Field(
        default="3.4", description="Argo CD version, in quotes.", examples=["3.4"]
    )
    install: bool = Field(
        default=True,
        description="true: the catalog's pinned chart is installed by RKE2's helm-controller; false: the site's own is verified.",
        examples=[True],
    )
    credentials: SecretRef | None = Field(
        default=None,
        description="Where the repository's credentials lie: USER:PASSWORD or a token for https, a private key for SSH.",
    )
    ca: SecretRef | None = Field(
        default=None,
        description="CA certificates (PEM) of the repository's server, where its certificate is not signed by a public one; "
        "the pipeline and Argo CD trust these and no others there. Given through Argo CD's own chart, they must be the same.",
        examples=[{"file": "./git_ca.pem"}],
    )
    known_hosts: Argument | None = Field(
        default=None,
        description="Path of a known_hosts file with the keys of the repository's server, relative to the spec; required for SSH.",
        examples=["./git_known_hosts"],
    )

    @property
    def is_commit(self) -> bool:
        """Whether the revision is a commit: then nothing is pushed, what is there is only compared."""
        return delivery.is_commit(self.revision)

    @property
    def over_ssh(self) -> bool:
        """Whether the repository is reached by SSH."""
        return git_address.over_ssh(self.repo)

    @model_validator(mode="after")
    def _plain_address(self) -> "ArgoCd":
        git_address.require_plain("repo", self.repo)
        return self

    @model_validator(mode="after")
    def _own_project(self) -> "ArgoCd":
        if self.project == "default":
            raise problem(
                "the project default lets an application deploy anywhere", "name a project of your own: project: platform"
            )
        return self

    @model_validator(mode="after")
    def _git_names(self) -> "ArgoCd":
        git_address.require_name("branch", self.branch, "main")
        git_address.require_name("revision", self.revision, "v1.4.0")
        return self

    @model_validator(mode="after")
    def _credentials_fit(self) -> "ArgoCd":
        held = {name: getattr(self, name) is not None for name in ("credentials", "ca", "known_hosts")}
        git_address.require_fitting("repo", self.repo, **held)
        if self.ca is not None and not _KEY.fullmatch(delivery.server(self.repo)):
            raise problem(
                "ca needs a server that has a name: Argo CD keeps certificates in a ConfigMap, whose keys take no IPv6 address",
                "write repo: https://HOST/PATH with the server's name",
            )
        if self.known_hosts is None and self.over_ssh:
            raise problem(
                "a repository reached by SSH needs known_hosts: neither pods nor Argo CD trust a server that they were not told of",
                "ssh-keyscan HOST > git_known_hosts, compare its fingerprints with those its operator gives, "
                "and write known_hosts: ./git_known_hosts",
            )
        return self


class Delivery(Section):
    """Who installs charts: one owner per release (design §6)."""

    mode: Literal["helm_controller", "argo_cd"] = Field(
        default="helm_controller", description="RKE2's helm-controller, or Argo CD.", examples=["helm_controller"]
    )
    argo_cd: ArgoCd | None = Field(default=None, description="Argo CD's inputs (argo_cd).")

    @model_validator(mode="after")
    def _inputs_fit_mode(self) -> "Delivery":
        if self.mode == "argo_cd" and self.argo_cd is None:
            raise problem("mode argo_cd needs its repository", "add argo_cd: {repo: URL, revision: TAG, project: NAME}")
        if self.mode == "helm_controller" and self.argo_cd is not None:
            raise problem("argo_cd is given, but the mode is helm_controller", "write mode: argo_cd, or remove argo_cd")
        return self
