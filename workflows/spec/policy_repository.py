"""Where RKE2's SELinux policy comes from, where RKE2's own repository cannot be reached, or is not wanted."""

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.fields import Section, problem

RepositoryUrl = Annotated[str, StringConstraints(pattern=r"^((https?://[^\s@{}]+)|(file:///[^\s@{}]+))$", max_length=300)]
"""A URL that dnf reads, without credentials in it."""


class PolicyRepository(Section):
    """The dnf repository of RKE2's SELinux policy (package rke2-selinux). Its file, /etc/yum.repos.d/rancher-rke2.repo, is written
    where selinux is enforcing, unless that package is installed already or another file is there whose name begins so."""

    write: bool = Field(
        default=True,
        description="Whether it is written; false where repositories of the site bring the package. A file that an earlier run "
        "wrote stays.",
        examples=[False],
    )
    baseurl: RepositoryUrl | None = Field(
        default=None,
        description="Its base URL, as of a mirror; default: RKE2's own for the major version of the distribution, below "
        "https://rpm.rancher.io.",
        examples=["https://mirror.example.org/rke2/stable/common/centos/9/noarch"],
    )
    gpgkey: RepositoryUrl | None = Field(
        default=None,
        description="Its public key, which a machine without internet needs from elsewhere too; default: "
        "https://rpm.rancher.io/public.key.",
        examples=["https://mirror.example.org/rke2/public.key"],
    )
    repo_gpgcheck: bool = Field(
        default=True,
        description="Whether its metadata must be signed too; false for a mirror that makes metadata of its own. Packages must be "
        "signed in either case.",
        examples=[False],
    )

    @model_validator(mode="after")
    def _what_is_not_written_says_nothing(self) -> "PolicyRepository":
        if not self.write and (self.baseurl or self.gpgkey or not self.repo_gpgcheck):
            raise problem("write is false, and the file would say something", "leave out write, or all others")
        return self
