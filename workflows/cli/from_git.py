"""A build of what a Git branch says now: its newest commit is laid into a folder, and superseded builds are ended."""

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steps.clients import git, git_access, git_checkout
from steps.clients.git_errors import Keys
from steps.contract.cancelled import Cancelled
from steps.contract.exit import ExitCode
from steps.contract.revision import Source
from steps.errors import BadTask
from workflows import image
from workflows.cli import image_build_commands, image_specs, kubeconfigs, output, pipelines, starting, superseding
from workflows.engines.argo import going_on

if TYPE_CHECKING:
    from steps.clients.git_access import GitAccess
    from workflows.plan.model import Plan

KEYS = Keys("schedule.source", "repository", "read it")
"""How the spec names the repository, for advice."""


class NotThere(ValueError):
    """The repository does not hold what the schedule is of."""

    exit_code = ExitCode.USAGE
    hint = "correct schedule.source, and install the schedule anew: bringup image build SPEC --engine argo"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """What is built: the spec at `path` of the newest commit of a branch, which must be called `name` where one is told."""

    repository: str
    branch: str
    path: str
    name: str = ""

    @property
    def said(self) -> str:
        """As it may be shown."""
        return f"{git_access.without_credentials(self.repository)}, branch {self.branch}"


def build(wanted: Branch, secrets: Path | None, folder: Path, place: starting.Place) -> int:
    """Read the branch into `folder`, which is empty, and start the build of its spec. Raises NotThere, StepError, SpecErrors."""
    commit = _checked_out(wanted, secrets, folder)
    spec = folder / wanted.path
    if not spec.is_file():
        raise NotThere(f"{wanted.said}: commit {commit} has no file {wanted.path}")
    path, loaded = pipelines.IMAGE.read(str(spec))
    if wanted.name not in ("", loaded.name):
        raise NotThere(f"{wanted.said}: {wanted.path} of commit {commit} describes image {loaded.name}, not {wanted.name}")
    found = image_specs.check(path, loaded, image_build_commands.lacking(loaded, place))
    pipeline, wish = pipelines.of_image(path, loaded, found), pipelines.Wish(source=_source(wanted, commit), settled=True)
    plan = pipeline.plan(path, loaded, wish)
    if same := _superseded(place, plan):
        output.lines([f"run {same} builds exactly this: {wanted.said} is at {commit}"])
        return ExitCode.OK
    return starting.start(str(path), place, wish, dataclasses.replace(pipeline, plan=lambda *_: plan))


def _source(wanted: Branch, commit: str) -> Source:
    return Source(commit=commit, path=wanted.path, dirty=False)


def _superseded(place: starting.Place, plan: "Plan") -> str:
    """End runs that build an older state; the name of one that does exactly this, which then goes on as all do."""
    home = kubeconfigs.home(place.kubeconfig, place.context, place.namespace)
    found = going_on.runs(home, plan.name, image.KIND)
    if same := going_on.doing(found, plan.digest):
        return same
    said = Cancelled(who=f"the schedule of {plan.name}", how=superseding.NEWER, when=time.time())
    superseding.end(home, found, said, stored=False)  # its account makes no pods
    return ""


def _checked_out(wanted: Branch, secrets: Path | None, folder: Path) -> str:
    """Lay the newest commit of the branch into the folder; its id."""
    with git.opened(_access(wanted, secrets)) as repository:
        commit = repository.tip(wanted.branch)
        if not commit:
            raise NotThere(f"{git_access.without_credentials(wanted.repository)} has no branch {wanted.branch}")
        git_checkout.write(repository.entries(commit), folder)
    return commit


def _access(wanted: Branch, secrets: Path | None) -> "GitAccess":
    """With the secret files that are there."""
    names = {name: name for name in ("credentials", "known_hosts", "ca") if secrets and (secrets / name).exists()}
    if secrets is not None and not names:
        raise BadTask(
            f"folder {secrets} has none of credentials, known_hosts and ca", hint="leave out --secrets, or give it one of them"
        )
    return git_access.of_files(secrets or Path(), wanted.repository, **names, keys=KEYS)
