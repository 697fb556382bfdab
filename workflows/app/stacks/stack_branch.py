"""The use case of `bringup stack from-git`: build the newest commit of a Git branch on this machine, or on Argo (`stack_product`).

Who may push to the branch decides what is built and published. So a commit may name only those files of this machine, or Secrets of
the home cluster, and that published folder, which the command allows.
"""

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from steps.clients.git import checkout
from steps.contract.canonical import digest_bytes
from steps.contract.exit import ExitCode
from steps.contract.revision import SpecSource
from workflows import stack
from workflows.app import branch_build
from workflows.app.branch_build import Branch, BranchPlan, BranchProduct, OutOfBounds
from workflows.app.run_options import StartOptions, Wish
from workflows.app.stacks import stack_builds, stack_pipeline
from workflows.app.stacks.stack_builds import PreparedStack
from workflows.engines.folders import StateFolder
from workflows.render import from_git
from workflows.softwarestack.stack_build_plan import publish_claim
from workflows.softwarestack.stack_spec import StackSpec
from workflows.spec import SecretRef

BRANCHES = "branches"
"""Folder of this machine's runs with the checkout of each branch."""
_HASH = 16


class BranchRefused(ValueError):
    """Error for a branch without the spec that the command names, or with one that asks for more than the command allows."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Limits of a commit: the folder that it may publish to (empty: any), and this machine's files that it may use."""

    root: str = ""
    files: tuple[str, ...] = ()

    def check(self, spec: StackSpec, folder: Path, checkout_folder: Path) -> None:
        """Raise BranchRefused if a spec in `folder` of a checkout publishes elsewhere, or names other files."""
        if self.root and spec.publish.root != self.root:
            raise BranchRefused(
                f"the spec publishes to {spec.publish.root}, and --root allows {self.root}", "correct publish.root in Git"
            )
        for reference in _references(spec):
            if reference.file and not self._may_use(reference.file, folder, checkout_folder):
                hint = f"put it into the repository, or allow it: --may-use {reference.file}"
                raise BranchRefused(f"the spec names the file {reference.file}, which the command does not allow", hint)

    def _may_use(self, name: str, folder: Path, checkout_folder: Path) -> bool:
        return name in self.files or (folder / name).resolve().is_relative_to(checkout_folder.resolve())


def prepare(branch: Branch, allowed: Allowed, options: StartOptions, wish: Wish, at_once: int) -> tuple[str, PreparedStack]:
    """Check out the newest commit of a branch, and return the path of its spec and its checked build.

    The checkout of an earlier commit is removed. Raises BranchRefused, StepError, and the errors of `stack_builds.prepare`.
    """
    try:
        commit, entries = branch_build.newest(branch, stack.KIND)
    except branch_build.NotThere as error:
        raise BranchRefused(str(error), "correct --branch") from None
    place = StateFolder.of_environment().root / BRANCHES
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = digest_bytes(f"{branch.repository}\n{branch.branch}\n{branch.path}".encode()).removeprefix("sha256:")[:_HASH]
    target = place / f"{key}-{commit}"
    if not target.is_dir():
        made = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=place))
        checkout.write(entries, made)
        made.rename(target)
    for other in (*place.glob(f"{key}-*"), *place.glob(f".{key}-*")):
        if other != target:
            shutil.rmtree(other)
    spec = target / branch.path
    if not spec.is_file():
        raise BranchRefused(f"{branch.said} has no file {branch.path}", "name the path of stack.yaml in the repository")
    _, loaded = stack_pipeline.read(str(spec))
    if branch.name not in ("", loaded.name):
        raise BranchRefused(f"{branch.path} describes stack {loaded.name}, not {branch.name}", "correct --name")
    allowed.check(loaded, spec.parent, target)
    source = SpecSource(commit=commit, path=branch.path, dirty=False)
    return str(spec), stack_builds.prepare(str(spec), options, replace(wish, source=source), at_once)


@dataclass(frozen=True, kw_only=True)
class PodLimits:
    """Limits of a commit that pods build: published folder, its claim as `CLAIM` or `CLAIM/FOLDER`, builder image; empty: any."""

    root: str = ""
    claim: str = ""
    builder: str = ""

    def check(self, spec: StackSpec) -> None:
        """Raise OutOfBounds if a spec publishes elsewhere, or builds in another image, than the schedule was installed with."""
        claim = publish_claim(spec)
        asked_for = {
            "publish.root": (spec.publish.root, self.root),
            "publish.claim": (from_git.claim_text(claim) if claim else "", self.claim),
            "builder": (spec.builder, self.builder),
        }
        for key, (value, limit) in asked_for.items():
            if limit and value != limit:
                raise OutOfBounds(
                    f"the spec has {key} {value or '(none)'}, and the schedule was installed with {limit}", stack.KIND
                )


def stack_product(limits: PodLimits) -> BranchProduct:
    """Return software stacks as a product of `branch_build`, by which Argo builds the newest commit of a Git branch."""

    def plan(path: Path, loaded: StackSpec, source: SpecSource) -> BranchPlan:
        limits.check(loaded)
        prepared = stack_builds.prepare_for_pods(path, loaded, source)
        return BranchPlan(plan=prepared.pipeline.plan(path, loaded, prepared.wish), unchanged=prepared.unchanged)

    return BranchProduct(kind=stack.KIND, build=stack.build, read=stack_pipeline.read, plan=plan)


def _references(spec: StackSpec) -> list[SecretRef]:
    """Return the references to all secrets of a spec, with those by which its approval is announced."""
    references = list(spec.secrets.values())
    for point in spec.approvals:
        if point.announce is not None:
            references += [each for each in (point.announce.webhook, point.announce.ca) if each is not None]
    return references
