"""Build the newest commit of a Git branch on Argo: check it out, check its spec, install its plan, and end older builds.

Node images and software stacks are built so (`BranchProduct`). A person who may push to the branch decides what is built, but has
no rights in the cluster. So a commit may use only the Secrets, approvers and files that the schedule was installed with; the
schedule passes these limits as arguments to its pod.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from steps.clients import termination_message
from steps.clients.git import checkout, git_access, repositories
from steps.clients.git.errors import Keys
from steps.clients.git.git_objects import GitEntry
from steps.clients.private_folder import private_folder
from steps.contract import paths
from steps.contract.exit import ExitCode
from steps.contract.runs import last_word
from steps.contract.runs.revision import SpecSource
from steps.errors import BadTask, StepError, Temporary
from workflows.app.runs import argo_start, superseded_builds
from workflows.app.runs.screen import Screen
from workflows.app.specs import manifests
from workflows.engines.argo import prerequisites
from workflows.engines.argo.home import Home, NoWorkflow
from workflows.engines.argo.workflow_objects import OwnerReference
from workflows.plan.model import Plan
from workflows.render import from_git
from workflows.render.bundle import Build
from workflows.spec import SpecErrors

KEYS = Keys("schedule.source", "repository", "read it")
"""Keys of the spec that name the repository, for hints in errors."""

MOST_BYTES = 512 << 20
"""Size limit in bytes of one commit's pack from the Git server; the pod's volume holds twice that (`render.from_git.ROOM`)."""


class NotThere(ValueError):
    """Error for a repository without the branch or spec that the schedule names."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.hint = f"correct schedule.source, and install the schedule anew: bringup {kind} build SPEC --engine argo"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A spec in a Git repository: file `path` in the newest commit of a branch.

    `name`, if given, is the name that its image or stack has. `secrets` is a folder with the repository's credentials: files
    `credentials`, `known_hosts` and `ca`, as far as they exist.
    """

    repository: str
    branch: str
    path: str
    name: str = ""
    secrets: Path | None = None

    @property
    def said(self) -> str:
        """Return repository and branch as text for messages, without credentials."""
        return f"{git_access.without_credentials(self.repository)}, branch {self.branch}"


@dataclass(frozen=True, kw_only=True)
class BranchPlan:
    """The plan of a commit's build; `unchanged`, if not empty, says why no run is needed."""

    plan: Plan
    unchanged: str = ""


@dataclass(frozen=True, kw_only=True)
class BranchProduct:
    """The functions by which one kind of product is built from a branch.

    `kind` is its pipeline, and the name of its group of commands. `read` loads the spec in a file. `plan` gets its path, the spec
    and the commit, and plans a build in pods; it raises errors for a spec that cannot be built there, or that exceeds limits of its
    own.
    """

    kind: str
    build: Build
    read: Callable[[str], tuple[Path, Any]]
    plan: Callable[[Path, Any, SpecSource], BranchPlan]


def newest(branch: Branch, kind: str) -> tuple[str, list[GitEntry]]:
    """Return the id of the branch's newest commit, and the Git entries of the spec's folder in it. Raises NotThere, StepError.

    `kind` is the pipeline, for hints.
    """
    below = str(PurePosixPath(branch.path).parent)
    with repositories.open_repository(_access(branch), MOST_BYTES) as repository:
        commit = repository.tip(branch.branch)
        if not commit:
            raise NotThere(f"{git_access.without_credentials(branch.repository)} has no branch {branch.branch}", kind)
        return commit, checkout.bounded_entries(repository.entries(commit, "" if below == "." else below))


def tip(branch: Branch) -> str:
    """Return the id of the branch's newest commit now; empty if the branch is gone."""
    with repositories.open_repository(_access(branch)) as repository:
        return repository.refs().get(f"refs/heads/{branch.branch}", "")


def _access(branch: Branch) -> git_access.GitAccess:
    """Return how to reach the repository, with the secret files that exist.

    Raises BadTask for a folder `secrets` without any of them, and for credentials that http would reveal.
    """
    folder = branch.secrets
    names = {name: name for name in ("credentials", "known_hosts", "ca") if folder and (folder / name).exists()}
    if folder is not None and not names:
        raise BadTask(
            f"folder {folder} has none of credentials, known_hosts and ca", hint="leave out --secrets, or give it one of them"
        )
    if "credentials" in names and branch.repository.startswith("http://"):
        raise BadTask(
            f"credentials for {git_access.without_credentials(branch.repository)} would travel in the clear",
            hint="reach it by https or SSH, or leave them out",
        )
    return git_access.of_files(folder or Path(), branch.repository, **names, keys=KEYS)


class OutOfBounds(ValueError):
    """Error for a commit that asks for more than the schedule was installed with."""

    exit_code = ExitCode.USAGE

    def __init__(self, sentence: str, kind: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint or f"whoever may, installs the schedule anew with this spec: bringup {kind} build SPEC --engine argo"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The limits that a schedule was installed with, as `render.from_git` writes them.

    `secrets` are the keys of Secrets that a spec may name, as `from_git.secrets_of` has them. `approvers`, if not empty, are those
    that its approval must have.
    """

    secrets: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()

    def check(self, plan: Plan, spec: Path, folder: Path, kind: str) -> None:
        """Raise OutOfBounds if a plan exceeds the limits, or if its spec names files outside `folder`, the checkout with `spec`.

        `kind` is the pipeline, for hints.
        """
        if local_files := [file.name for file in plan.secrets if not file.secret and file.name not in plan.public]:
            raise OutOfBounds(
                f"the spec has {', '.join(local_files)} from a file or a variable, and a schedule has Secrets of the cluster alone",
                kind,
                "write {secret: {name: NAME, key: KEY}}",
            )
        for file in plan.secrets:
            is_outside = not (spec.parent / file.path).resolve().is_relative_to(folder.resolve())
            if file.path and (file.path.startswith("~") or is_outside):
                raise OutOfBounds(
                    f"the spec names {file.path}, which does not lie in its folder of the repository",
                    kind,
                    "put it beside the spec, in Git",
                )
        if unknown_keys := sorted(set(from_git.secrets_of(plan)) - set(self.secrets)):
            keys = ", ".join(unknown_keys)
            raise OutOfBounds(f"the spec names {keys} of the cluster's Secrets, which the schedule may not use", kind)
        if self.approvers and from_git.approvers_of(plan) != self.approvers:
            names = ", ".join(approver.split()[0] for approver in self.approvers)
            sentence = f"the schedule was installed with an approval by {names}, and the spec has none or others"
            raise OutOfBounds(sentence, kind)


class NotBuilt(Exception):
    """Error for a commit that cannot be built. The message names repository, branch and commit, and paths as in the repository."""

    def __init__(self, where: str, problem: Exception, folder: Path) -> None:
        super().__init__(f"{where}: {_inside(str(problem), folder)}")
        self.exit_code = int(getattr(problem, "exit_code", ExitCode.USAGE))
        self.hint = _inside(getattr(problem, "hint", ""), folder)


class Moved(Temporary):
    """Temporary error: the branch got a newer commit while this one was being checked."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Settings of a build on Argo: home cluster, images of its pods, and the schedule's Workflow that starts it (empty: none)."""

    home: Home
    image: str = ""
    builder: str = ""
    starter: str = ""


def build(screen: Screen, product: BranchProduct, branch: Branch, bounds: Bounds, target: Target) -> int:
    """Check the branch out into a temporary folder and start the build of its spec. Raises NotThere, NotBuilt, StepError.

    If a schedule starts the build, the error is also left as the pod's termination message, because the schedule's Workflow itself
    reports only that its retries failed.
    """
    with private_folder(sockets=False) as parent:
        folder = parent.resolve() / "checkout"
        folder.mkdir()
        try:
            return _build(screen, product, branch, bounds, target, folder)
        except Exception as problem:
            if target.starter:
                termination_message.leave(Path(paths.ENVIRONMENT[paths.variable("out")]), last_word.render_failure(str(problem)))
            raise


def _build(screen: Screen, product: BranchProduct, branch: Branch, bounds: Bounds, target: Target, folder: Path) -> int:
    home, owner = target.home, _owner(target)
    commit, entries = newest(branch, product.kind)
    with _named_in_errors(f"{branch.said}, commit {commit}", folder):
        checkout.write(entries, folder)
        start, unchanged = _start_input(product, branch, commit, bounds, folder)
        settings = manifests.installation(home.namespace, target.image, os.environ, target.builder or start.plan.builder)
        # the version was checked when the schedule was installed; the pod's account may not read it
        oldest = ".".join(map(str, prerequisites.OLDEST))
        ready = None if unchanged else argo_start.prepared(screen, home, start, settings, oldest, settled=True, owner=owner)
    # a newer commit would supersede this build at once
    if tip(branch) != commit:
        raise Moved(f"{branch.said}: there is a newer commit than {commit} by now", hint="try again")
    # also if nothing is built: an older build would publish what the branch no longer has
    same = superseded_builds.end_by_schedule(screen, home, start.plan.name, product.kind, start.plan.digest, owner)
    if ready is None or same:
        screen.lines([f"run {same} builds exactly this: {branch.said} is at {commit}" if same else unchanged])
        return ExitCode.OK
    return argo_start.leave(screen, ready)


def _start_input(
    product: BranchProduct, branch: Branch, commit: str, bounds: Bounds, folder: Path
) -> tuple[argo_start.StartInput, str]:
    """Return spec and plan of the commit that lies in `folder`, and why no run is needed (empty if one is).

    Raises NotThere, and OutOfBounds if the plan exceeds the limits.
    """
    kind = product.kind
    if not (folder / branch.path).is_file():
        raise NotThere(f"there is no file {branch.path}", kind)
    path, loaded = product.read(str(folder / branch.path))
    if branch.name not in ("", loaded.name):
        raise NotThere(f"{branch.path} describes {kind} {loaded.name}, not {branch.name}", kind)
    source = SpecSource(commit=commit, path=branch.path, dirty=False)
    planned = product.plan(path, loaded, source)
    bounds.check(planned.plan, path, folder, kind)
    start = argo_start.StartInput(loaded=loaded, plan=planned.plan, build=product.build, folder=path.parent, source=source)
    return start, planned.unchanged


def _owner(target: Target) -> OwnerReference | None:
    """Return an owner reference to the schedule's Workflow that starts this build; None for a person's, or a deleted Workflow."""
    if not target.starter:
        return None
    try:
        return target.home.workflow(target.starter).as_owner
    except NoWorkflow:
        return None


@contextmanager
def _named_in_errors(where: str, folder: Path) -> Iterator[None]:
    """Raise errors about files in `folder` as NotBuilt, with `where`: the repository, branch and commit that the folder holds."""
    try:
        yield
    except (StepError, SpecErrors, ValueError) as problem:
        if type(problem) is ValueError:
            raise  # a bug, no error of the commit
        raise NotBuilt(where, problem, folder) from problem


def _inside(text: str, folder: Path) -> str:
    """Return a text with paths relative to the repository in place of those in `folder`, its temporary checkout."""
    return text.replace(f"{folder}/", "").replace(str(folder), "the repository")
