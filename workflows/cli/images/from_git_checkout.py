"""The newest commit of a branch, as far as a build needs it: the folder of the spec and everything below."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from steps.clients.git import access, checkout, repositories
from steps.clients.git.errors import Keys
from steps.clients.git.trees import Entry
from steps.contract.exit import ExitCode
from steps.errors import BadTask

if TYPE_CHECKING:
    from steps.clients.git.access import GitAccess

KEYS = Keys("schedule.source", "repository", "read it")
"""Keys of the spec that name the repository, for hints in errors."""


MOST_BYTES = 512 << 20
"""Size limit of one commit in the server's pack; the pod's folder has room for twice that (`render.from_git.ROOM`)."""


class NotThere(ValueError):
    """Error for a repository without the branch or spec that the schedule names."""

    exit_code = ExitCode.USAGE
    hint = "correct schedule.source, and install the schedule anew: bringup image build SPEC --engine argo"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """The spec to build: at `path` in the newest commit of a branch, with this `name` if one is given.

    Folder `secrets` holds the repository's credentials.
    """

    repository: str
    branch: str
    path: str
    name: str = ""
    secrets: Path | None = None

    @property
    def said(self) -> str:
        """Return repository and branch as text, without credentials."""
        return f"{access.without_credentials(self.repository)}, branch {self.branch}"


def newest(wanted: Branch) -> tuple[str, list[Entry]]:
    """Return the id of the branch's newest commit and its entries of the spec's folder. Raises NotThere, StepError."""
    below = str(PurePosixPath(wanted.path).parent)
    with repositories.opened(_access(wanted), MOST_BYTES) as repository:
        commit = repository.tip(wanted.branch)
        if not commit:
            raise NotThere(f"{access.without_credentials(wanted.repository)} has no branch {wanted.branch}")
        return commit, checkout.bounded(repository.entries(commit, "" if below == "." else below))


def tip(wanted: Branch) -> str:
    """Return the id of the branch's newest commit now; empty if the branch is gone."""
    with repositories.opened(_access(wanted)) as repository:
        return repository.refs().get(f"refs/heads/{wanted.branch}", "")


def _access(wanted: Branch) -> "GitAccess":
    """Return the access to the repository with the secret files that exist."""
    folder = wanted.secrets
    names = {name: name for name in ("credentials", "known_hosts", "ca") if folder and (folder / name).exists()}
    if folder is not None and not names:
        raise BadTask(
            f"folder {folder} has none of credentials, known_hosts and ca", hint="leave out --secrets, or give it one of them"
        )
    if "credentials" in names and wanted.repository.startswith("http://"):
        raise BadTask(
            f"credentials for {access.without_credentials(wanted.repository)} would travel in the clear",
            hint="reach it by https or SSH, or leave them out",
        )
    return access.of_files(folder or Path(), wanted.repository, **names, keys=KEYS)
