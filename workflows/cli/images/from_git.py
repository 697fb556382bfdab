"""The build of a Git branch's newest commit: check it out, check and install it, and supersede other builds."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steps.clients import last_word as last_words
from steps.clients.git import checkout
from steps.contract import last_word, paths
from steps.contract.exit import ExitCode
from steps.contract.revision import Source
from steps.errors import StepError, Temporary
from workflows import image
from workflows.cli import output
from workflows.cli.argo import running as argo_running
from workflows.cli.argo.options import ARGO
from workflows.cli.images import from_git_checkout, specs, superseding
from workflows.cli.images.from_git_bounds import Bounds
from workflows.cli.images.from_git_checkout import Branch, NotThere
from workflows.cli.specs import compiling, pipelines
from workflows.engines.argo import argo_version
from workflows.engines.argo.home import Home, NoWorkflow
from workflows.engines.argo.workflow_objects import OwnerReference
from workflows.spec import SpecErrors


class NotBuilt(Exception):
    """Error for a commit that cannot be built; the message names repository, branch, commit, and paths in the repository."""

    def __init__(self, said: str, problem: Exception, folder: Path) -> None:
        super().__init__(f"{said}: {_inside(str(problem), folder)}")
        self.exit_code = int(getattr(problem, "exit_code", ExitCode.USAGE))
        self.hint = _inside(getattr(problem, "hint", ""), folder)


class Moved(Temporary):
    """Error for a branch that got a newer commit during the checks."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The place of the build: home, the images of its pods, and the schedule's Workflow that starts it, if any."""

    home: Home
    image: str = ""
    builder: str = ""
    starter: str = ""


def build(wanted: Branch, bounds: Bounds, target: Target, folder: Path) -> int:
    """Read the branch into `folder`, which is empty, and start the build of its spec. Raises NotThere, NotBuilt, StepError.

    A schedule's pod also leaves the error as its last word, because the Workflow's own message tells of retries alone.
    """
    try:
        return _build(wanted, bounds, target, folder)
    except Exception as problem:
        if target.starter:
            last_words.leave(Path(paths.ENVIRONMENT[paths.variable("out")]), last_word.failed(str(problem)))
        raise


def _build(wanted: Branch, bounds: Bounds, target: Target, folder: Path) -> int:
    home, owner = target.home, _owner(target)
    commit, entries = from_git_checkout.newest(wanted)
    with _told_of(f"{wanted.said}, commit {commit}", folder):
        checkout.write(entries, folder)
        asked = _asked(wanted, commit, bounds, folder)
        settings = compiling.installation(home.namespace, target.image, os.environ, target.builder)
        # the version was checked when the schedule was installed; the pod's account may not read it
        oldest = ".".join(map(str, argo_version.OLDEST))
        ready = argo_running.prepared(home, asked, settings, oldest, settled=True, owner=owner)
    # a newer commit would supersede this build at once
    if from_git_checkout.tip(wanted) != commit:
        raise Moved(f"{wanted.said}: there is a newer commit than {commit} by now", hint="try again")
    if same := superseding.by_schedule(home, asked.plan.name, image.KIND, asked.plan.digest, owner):
        output.lines([f"run {same} builds exactly this: {wanted.said} is at {commit}"])
        return ExitCode.OK
    return argo_running.leave(ready)


def _asked(wanted: Branch, commit: str, bounds: Bounds, folder: Path) -> argo_running.Asked:
    """Return the commit's spec and plan. Raises OutOfBounds if the plan goes beyond the bounds."""
    if not (folder / wanted.path).is_file():
        raise NotThere(f"there is no file {wanted.path}")
    path, loaded = pipelines.IMAGE.read(str(folder / wanted.path))
    if wanted.name not in ("", loaded.name):
        raise NotThere(f"{wanted.path} describes image {loaded.name}, not {wanted.name}")
    resolved = specs.check(path, loaded, specs.lacking(loaded, ARGO))
    source = Source(commit=commit, path=wanted.path, dirty=False)
    plan = pipelines.of_image(path, loaded, resolved).plan(path, loaded, pipelines.Wish(source=source))
    bounds.check(plan, path, folder)
    return argo_running.Asked(loaded=loaded, plan=plan, build=image.build, folder=path.parent, source=source)


def _owner(target: Target) -> OwnerReference | None:
    """Return the Workflow that starts this build; None for a person, or if it is gone."""
    if not target.starter:
        return None
    try:
        return target.home.workflow(target.starter).as_owner
    except NoWorkflow:
        return None


@contextmanager
def _told_of(where: str, folder: Path) -> Iterator[None]:
    """Raise errors about files in the folder as NotBuilt, with the commit that the folder holds."""
    try:
        yield
    except (StepError, SpecErrors, ValueError) as problem:
        if type(problem) is ValueError:
            raise  # a bug, no error of the commit
        raise NotBuilt(where, problem, folder) from problem


def _inside(text: str, folder: Path) -> str:
    """Return a sentence with the paths of the repository in place of those of its temporary folder."""
    return text.replace(f"{folder}/", "").replace(str(folder), "the repository")
