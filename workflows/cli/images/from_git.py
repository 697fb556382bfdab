"""A build of what a Git branch says now: its newest commit is laid out, checked and installed; then it supersedes others."""

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
from workflows.engines.argo import installation
from workflows.engines.argo.home import Home, NoWorkflow
from workflows.engines.argo.objects import Owner
from workflows.spec import SpecErrors


class NotBuilt(Exception):
    """What a commit holds cannot be built; the message names repository, branch and commit, and paths in there."""

    def __init__(self, said: str, problem: Exception, folder: Path) -> None:
        super().__init__(f"{said}: {_inside(str(problem), folder)}")
        self.exit_code = int(getattr(problem, "exit_code", ExitCode.USAGE))
        self.hint = _inside(getattr(problem, "hint", ""), folder)


class Moved(Temporary):
    """The branch has a newer commit than the one that was to be built."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where it is built: home, the images of its pods, and the Workflow that starts it, if that is one of a schedule."""

    home: Home
    image: str = ""
    builder: str = ""
    starter: str = ""


def build(wanted: Branch, bounds: Bounds, target: Target, folder: Path) -> int:
    """Read the branch into `folder`, which is empty, and start the build of its spec. Raises NotThere, NotBuilt, StepError.

    A pod of a schedule says why it could not as its last word too: the Workflow's own message tells of its retries alone.
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
        # whoever installed the schedule saw the controller's version, which a pod of the schedule may not
        oldest = ".".join(map(str, installation.OLDEST))
        ready = argo_running.prepared(home, asked, settings, oldest, settled=True, owner=owner)
    if from_git_checkout.tip(wanted) != commit:
        raise Moved(f"{wanted.said}: there is a newer commit than {commit} by now", hint="try again")
    if same := superseding.by_schedule(home, asked.plan.name, image.KIND, asked.plan.digest, owner):
        output.lines([f"run {same} builds exactly this: {wanted.said} is at {commit}"])
        return ExitCode.OK
    return argo_running.leave(ready)


def _asked(wanted: Branch, commit: str, bounds: Bounds, folder: Path) -> argo_running.Asked:
    """The spec of the commit and its plan, which keeps within the bounds."""
    if not (folder / wanted.path).is_file():
        raise NotThere(f"there is no file {wanted.path}")
    path, loaded = pipelines.IMAGE.read(str(folder / wanted.path))
    if wanted.name not in ("", loaded.name):
        raise NotThere(f"{wanted.path} describes image {loaded.name}, not {wanted.name}")
    found = specs.check(path, loaded, specs.lacking(loaded, ARGO))
    source = Source(commit=commit, path=wanted.path, dirty=False)
    plan = pipelines.of_image(path, loaded, found).plan(path, loaded, pipelines.Wish(source=source))
    bounds.check(plan, path, folder)
    return argo_running.Asked(loaded=loaded, plan=plan, build=image.build, folder=path.parent, source=source)


def _owner(target: Target) -> Owner | None:
    """The Workflow that starts this; None where a person does, or where it is gone."""
    if not target.starter:
        return None
    try:
        return target.home.workflow(target.starter).as_owner
    except NoWorkflow:
        return None


@contextmanager
def _told_of(said: str, folder: Path) -> Iterator[None]:
    """Errors of ours about what lies in the folder, told of the commit that it holds."""
    try:
        yield
    except (StepError, SpecErrors, ValueError) as problem:
        if type(problem) is ValueError:
            raise  # none of ours
        raise NotBuilt(said, problem, folder) from problem


def _inside(text: str, folder: Path) -> str:
    """A sentence with paths in the repository, and not in the folder into which it was laid."""
    return text.replace(f"{folder}/", "").replace(str(folder), "the repository")
