"""The use case of `bringup stack from-git`: build the newest commit of a Git branch on this machine, or on Argo (`stack_product`).

Who may push to the branch decides what is built and published. So a commit may name only the published folder, the build cache, and
the files of this machine or Secrets of the home cluster that the command allows. Each of these files and Secrets has one role: as a
password, the key that signs would go to a registry of the commit's choice.
"""

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from steps.clients.git import checkout
from steps.contract.canonical import digest_bytes
from steps.contract.exit import ExitCode
from steps.contract.runs import approval
from steps.contract.runs.revision import SpecSource
from workflows import stack, user_paths
from workflows.app import branch_build
from workflows.app.branch_build import Branch, BranchPlan, BranchProduct, OutOfBounds
from workflows.app.run_options import StartOptions, Wish
from workflows.app.stacks import stack_builds, stack_pipeline
from workflows.app.stacks.stack_builds import PreparedStack
from workflows.engines.folders import StateFolder
from workflows.render import from_git
from workflows.softwarestack.build_cache_spec import CACHE_CA, CACHE_PASSWORD
from workflows.softwarestack.stack_build_plan import publish_claim, secret_references
from workflows.softwarestack.stack_spec import PUBLISHED, StackSpec
from workflows.spec import SecretRef

BRANCHES = "branches"
"""Folder of this machine's runs with the checkout of each branch."""
_HASH = 16
_CERTIFICATES = {CACHE_PASSWORD: CACHE_CA, approval.webhook_file(PUBLISHED): approval.ca_file(PUBLISHED)}
"""Secrets that go to a server, each with the CA certificates by which that server is trusted."""
_NAME_CACHE = "name the only one that may have it: --cache oci://REGISTRY/REPOSITORY"


class BranchRefused(ValueError):
    """Error for a branch without the spec that the command names, or with one that asks for more than the command allows."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Limits of a commit: folder that it may publish to, build cache (empty: any), and files of this machine as `ROLE=FILE`.

    The role is the name of the file in the secrets folder, such as `stack_sign_key`.
    """

    root: str = ""
    cache: str = ""
    files: tuple[str, ...] = ()

    def check(self, spec: StackSpec, folder: Path, checkout_folder: Path) -> None:
        """Raise BranchRefused if a spec in `folder` of a checkout publishes or caches elsewhere, or names other secrets."""
        if self.root and spec.publish.root != self.root:
            raise BranchRefused(
                f"the spec publishes to {spec.publish.root}, and --root allows {self.root}", "correct publish.root in Git"
            )
        if self.cache and spec.cache != self.cache:
            sentence = f"the spec has cache {spec.cache or '(none)'}, and --cache allows {self.cache}"
            raise BranchRefused(sentence, "correct cache in Git")
        references = secret_references(spec)
        local = {name for name, reference in references.items() if _is_inside(reference, folder, checkout_folder)}
        for name, reference in references.items():
            if name not in local:
                self._check_source(name, reference)
        for name in references.keys() - local:
            self._check_server(name, _CERTIFICATES.get(name, "") in local)

    def _check_source(self, name: str, reference: SecretRef) -> None:
        """Raise BranchRefused for a secret `name` from a variable, or from a file that is not allowed in this role."""
        if reference.env:
            sentence = f"the spec takes {name} from the environment variable {reference.env}, and a commit may name none"
            raise BranchRefused(sentence, f"write {{file: PATH}} in Git, and allow it: --may-use {name}=PATH")
        if reference.file and f"{name}={reference.file}" not in self.files:
            sentence = f"the spec names the file {reference.file}, which the command does not allow as {name}"
            raise BranchRefused(sentence, f"put it into the repository, or allow it: --may-use {name}={reference.file}")

    def _check_server(self, name: str, has_own_certificates: bool) -> None:
        """Raise BranchRefused if a commit could send this machine's secret `name` to a server of its choice."""
        if name == CACHE_PASSWORD and not self.cache:
            raise BranchRefused("a commit could send the password of the build cache to any registry", _NAME_CACHE)
        # with its own CA and `proxy` in the spec, a commit could play the server
        if has_own_certificates:
            sentence = f"{name} is a secret of this machine, and the certificates of its server, {_CERTIFICATES[name]}, lie in Git"
            raise BranchRefused(sentence, f"name a file outside the repository, and allow it: --may-use {_CERTIFICATES[name]}=FILE")


def _is_inside(reference: SecretRef, folder: Path, checkout_folder: Path) -> bool:
    """Return True if a reference of a spec in `folder` names a file of the checkout."""
    if not reference.file:
        return False
    return (folder / user_paths.expand_home(reference.file)).resolve().is_relative_to(checkout_folder.resolve())


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
    """Limits of a commit that pods build: published folder, its claim as `CLAIM` or `CLAIM/FOLDER`, builder image, build cache.

    An empty limit allows any. Without a limit of the build cache, a commit may give no password for it.
    """

    root: str = ""
    claim: str = ""
    builder: str = ""
    cache: str = ""

    def check(self, spec: StackSpec) -> None:
        """Raise OutOfBounds if a spec publishes, caches or builds elsewhere than in what the schedule was installed with."""
        claim = publish_claim(spec)
        asked_for = {
            "publish.root": (spec.publish.root, self.root),
            "publish.claim": (from_git.claim_text(claim) if claim else "", self.claim),
            "builder": (spec.builder, self.builder),
            "cache": (spec.cache or "", self.cache),
        }
        for key, (value, limit) in asked_for.items():
            if limit and value != limit:
                raise OutOfBounds(
                    f"the spec has {key} {value or '(none)'}, and the schedule was installed with {limit}", stack.KIND
                )
        if CACHE_PASSWORD in spec.secrets and not self.cache:
            raise OutOfBounds("a commit could send the password of the build cache to any registry", stack.KIND, _NAME_CACHE)


def stack_product(limits: PodLimits) -> BranchProduct:
    """Return software stacks as a product of `branch_build`, by which Argo builds the newest commit of a Git branch."""

    def plan(path: Path, loaded: StackSpec, source: SpecSource) -> BranchPlan:
        limits.check(loaded)
        prepared = stack_builds.prepare_for_pods(path, loaded, source)
        return BranchPlan(plan=prepared.pipeline.plan(path, loaded, prepared.wish), unchanged=prepared.unchanged)

    return BranchProduct(kind=stack.KIND, build=stack.build, read=stack_pipeline.read, plan=plan)
