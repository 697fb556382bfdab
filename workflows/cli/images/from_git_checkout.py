"""The newest commit of a branch, as far as a build needs it: the folder of the spec and what lies below."""

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
"""How the spec names the repository, for advice."""


MOST_BYTES = 512 << 20
"""Of one commit as a server packs it: its pod's folder has room for twice that (`render.from_git.ROOM`)."""


class NotThere(ValueError):
    """The repository does not hold what the schedule is of."""

    exit_code = ExitCode.USAGE
    hint = "correct schedule.source, and install the schedule anew: bringup image build SPEC --engine argo"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """What is built: the spec at `path` of the newest commit of a branch, which must be called `name` where one is told. What opens
    the repository lies in folder `secrets`."""

    repository: str
    branch: str
    path: str
    name: str = ""
    secrets: Path | None = None

    @property
    def said(self) -> str:
        """As it may be shown."""
        return f"{access.without_credentials(self.repository)}, branch {self.branch}"


def newest(wanted: Branch) -> tuple[str, list[Entry]]:
    """The id of the branch's newest commit, and what it holds of the spec's folder. Raises NotThere, StepError."""
    below = str(PurePosixPath(wanted.path).parent)
    with repositories.opened(_access(wanted), MOST_BYTES) as repository:
        commit = repository.tip(wanted.branch)
        if not commit:
            raise NotThere(f"{access.without_credentials(wanted.repository)} has no branch {wanted.branch}")
        return commit, checkout.bounded(repository.entries(commit, "" if below == "." else below))


def tip(wanted: Branch) -> str:
    """The id of the branch's newest commit now; empty where it is gone."""
    with repositories.opened(_access(wanted)) as repository:
        return repository.refs().get(f"refs/heads/{wanted.branch}", "")


def _access(wanted: Branch) -> "GitAccess":
    """With the secret files that are there."""
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
