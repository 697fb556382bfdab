"""The schedule of a node image or a stack: cron lines, and the Git branch whose newest commit is built at these times."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from workflows.spec import fields
from workflows.spec.fields import GitRef, GitUrl, SecretKey, SecretRef, Section, problem
from workflows.spec.pipelines.pipeline_specs import RelativePath
from workflows.spec.sections.governance import ApprovalRequest
from workflows.spec.sections.schedule import Schedule

SpecPath = Annotated[RelativePath, StringConstraints(pattern=r"^[^-\x00-\x1f\x7f{}][^\x00-\x1f\x7f{}]*$")]
"""A path that becomes an argument of a pod, so it is neither an option nor an Argo template."""


class GitSource(Section):
    """The Git branch whose newest commit is built: the spec, its lock, and the other files that it names.

    Whoever may push to the branch decides what pods build as root. A build sees only the Secrets that the installed spec names, and
    never skips the approval of that spec.
    """

    repository: GitUrl = Field(
        description="Git repository, by https or SSH, without a password in it.", examples=["https://git.example.org/site.git"]
    )
    branch: GitRef = Field(default="main", description="Branch of which the newest commit is built.", examples=["main"])
    path: SpecPath = Field(description="Path of this spec in the repository.", examples=["images/compute.yaml"])
    credentials: SecretKey | None = Field(
        default=None,
        description="What opens the repository: USER:PASSWORD or a token for https, a private key for SSH; default: it is open.",
    )
    known_hosts: SecretKey | None = Field(
        default=None, description="A known_hosts file with the keys of the repository's server; required for SSH."
    )
    ca: SecretKey | None = Field(
        default=None,
        description="CA certificates (PEM) of the repository's server, where its certificate is not signed by a public one.",
    )

    @property
    def secrets(self) -> dict[str, SecretKey]:
        """References to the repository's credentials that are given, by field name (credentials, known_hosts, ca)."""
        keys = {"credentials": self.credentials, "known_hosts": self.known_hosts, "ca": self.ca}
        return {name: key for name, key in keys.items() if key is not None}

    @model_validator(mode="after")
    def _address(self) -> "GitSource":
        fields.require_plain("repository", self.repository)
        fields.require_name("branch", self.branch, "main")
        return self

    @model_validator(mode="after")
    def _secrets_fit(self) -> "GitSource":
        is_set = {name: getattr(self, name) is not None for name in ("credentials", "ca", "known_hosts")}
        fields.require_fitting("repository", self.repository, **is_set)
        if fields.over_ssh(self.repository) and (self.known_hosts is None or self.credentials is None):
            raise problem(
                "a repository reached by SSH needs credentials and known_hosts: no pod trusts a server that it was not told of",
                "add both, as in known_hosts: {name: git, key: known_hosts}",
            )
        return self


class GitSchedule(Schedule):
    """Schedule of builds: a CronWorkflow in the home cluster whose pod starts a build of the repository's newest commit.

    Without a source, builds would repeat the lock of the day when the schedule was installed.
    """

    source: GitSource = Field(description="What is built then: the newest commit of a branch.")


def require_home_secrets(references: Mapping[str, SecretRef], approval: ApprovalRequest | None) -> None:
    """Raise a spec error if a scheduled spec or its approval names a file or a variable, which the pods of a schedule lack."""
    announce = approval.announce if approval else None
    announcement = {"approval.announce.webhook": announce.webhook, "approval.announce.ca": announce.ca} if announce else {}
    secrets = {**references, **announcement}
    if local := sorted(name for name, reference in secrets.items() if reference is not None and reference.secret is None):
        raise problem(
            f"a schedule has only the secrets of the home cluster, and {', '.join(local)} is of one machine",
            "write {secret: {name: NAME, key: KEY}}",
        )
