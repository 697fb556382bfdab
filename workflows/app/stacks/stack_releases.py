"""Use cases of published stacks: list versions, verify every byte, roll back, check detachment."""

import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from steps.clients.releases import release_signatures, usage, verification
from steps.clients.releases.release_rollback import RollbackResult
from steps.clients.releases.release_signatures import UNKNOWN
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract.detachment import Factory
from steps.contract.plain_text import count
from steps.errors import StepError
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.publication import package_checks, stack_detachment, stack_kind, stack_publication
from steps.softwarestack.publication.package_checks import PackageChecks
from workflows.app import release_trees
from workflows.app.stacks import stack_trees

UNCHECKED = UNKNOWN
"""State of a signature that was not checked, because no key is trusted."""


class StackVersion(Struct, frozen=True, kw_only=True):
    """A published version of a stack, as a list shows it.

    `digest` is its manifest's, `packages` the number of its packages, `size` the bytes of these and its module files. `whole`:
    all files and the lists of all packages are there, as far as names and sizes tell. `switched` is the last switch to it (UTC
    seconds, 0: never) by the run or command `by`.
    """

    stack: str
    version: str
    digest: str
    packages: int
    size: int
    whole: bool
    current: bool
    switched: float
    by: str
    origin: str
    revision: str
    builder: str
    signature: str
    tests: dict[str, str]


class StackVerification(Struct, frozen=True, kw_only=True):
    """A published root as read again: (place, reason) of each problem, its versions, and packages that no version names."""

    location: str
    stacks: int
    problems: list[tuple[str, str]]
    versions: list[dict[str, str]]
    packages: int
    unneeded: list[str]


class StackDetachment(Struct, frozen=True, kw_only=True):
    """A published root checked for ways into the factory: (place, reason) of each problem, and what was read."""

    location: str
    factory: Factory
    problems: list[tuple[str, str]]
    summary: str


class StackList(Struct, frozen=True, kw_only=True):
    """The versions of all chosen stacks, the newest of each first, and (place, reason) of each pointer that leads nowhere."""

    versions: list[StackVersion]
    pointers: list[tuple[str, str]]


def listed(tree: str, stack: str) -> StackList:
    """Return the versions of each chosen stack, and the pointers by which users find none of them."""
    with stack_trees.opened(tree, stack) as opened_tree:
        looks = list(opened_tree.looks())
        checks = PackageChecks(Path(opened_tree.place.root), package_checks.LISTS)
        rows = [row for look in looks for row in _rows(look, opened_tree.place.signers, checks)]
    wrong = [(problem.place, problem.why) for look in looks for problem in verification.pointer_problems(look)]
    return StackList(versions=rows, pointers=wrong)


def verify(tree: str, stack: str, signers: tuple[str, ...]) -> StackVerification:
    """Read every file of a root's versions and packages again. Without `signers`, the spec's trusted keys are taken."""
    with stack_trees.opened(tree, stack) as opened_tree:
        looks, signers = opened_tree.looks(digests=True), signers or opened_tree.place.signers
        root, where = Path(opened_tree.place.root), opened_tree.transport.where
    checks = PackageChecks(root, package_checks.BYTES)
    wrong = [(problem.place, problem.why) for look in looks for problem in stack_kind.problems(look, checks.problems, signers)]
    wrong += [(f"{PACKAGES}/{name}", "is no package") for name in package_checks.stray_names(root)]
    kind = stack_kind.stack_kind()
    listed = [
        {
            "stack": look.product,
            "version": version,
            "origin": manifest.origin if (manifest := stack_kind.manifest_of(look, version)) else "",
            "signature": release_signatures.state(kind, look, version, signers),
        }
        for look in looks
        for version in look.versions
    ]
    manifests = (stack_kind.manifest_of(look, version) for look in looks for version in look.versions)
    packages = {package.folder for manifest in manifests if manifest for package in manifest.built}
    return StackVerification(
        location=where,
        stacks=len(looks),
        problems=list(dict.fromkeys(wrong)),
        versions=listed,
        packages=len(packages),
        unneeded=_unneeded(root),
    )


def roll_back(
    tree: str, stack: str, version: str, actor: str, signers: tuple[str, ...], sign_key: Path | None = None
) -> tuple[str, RollbackResult]:
    """Make an earlier version of the only or chosen stack current; return the stack's name and the outcome.

    Without `signers`, the spec's keys are trusted. `sign_key` signs which version is current, else the spec's key, if it is on this
    machine. Raises NoTree, and the errors of `release_rollback.roll_back`.
    """
    with stack_trees.opened(tree, stack) as opened_tree, stack_trees.signing_key(tree, sign_key) as key:
        name, keys = opened_tree.only(), signers or opened_tree.place.signers
        root = Path(opened_tree.place.root)
        return name, stack_publication.roll_back(opened_tree.transport, name, version, actor, keys, key, root=root)


def check_detachment(tree: str, stack: str, folders: Iterable[str], hosts: Iterable[str]) -> StackDetachment:
    """Look in a published root for whatever leads out of it or into the factory: this machine's store, these folders and hosts."""
    factory = release_trees.factory_of(folders, hosts)
    with stack_trees.opened(tree, stack) as opened_tree:
        looks, where, root = opened_tree.looks(), opened_tree.transport.where, Path(opened_tree.place.root)
    links = [link for look in looks for link in stack_detachment.external_links(root, look, factory)]
    rows = [(link.place, f"leads to {link.leads_to}: {link.why}") for link in links]
    rows = [*release_trees.inside_factory(where, "", factory), *rows]
    versions = sum(len(look.versions) for look in looks)
    summary = f"nothing in {count(versions, 'version')} names {release_trees.looked_for(factory)}"
    return StackDetachment(location=where, factory=factory, problems=list(dict.fromkeys(rows)), summary=summary)


def _rows(look: ReleaseTree, signers: tuple[str, ...], checks: PackageChecks) -> Iterable[StackVersion]:
    for row in usage.version_rows(stack_kind.stack_kind(), look, signers, now=time.time()):
        manifest = stack_kind.manifest_of(look, row.version)
        packages = manifest.packages if manifest is not None else ()
        yield StackVersion(
            stack=row.product,
            version=row.version,
            digest=row.digest,
            packages=len(manifest.built) if manifest is not None else 0,
            size=manifest.size if manifest is not None else row.size,
            whole=row.whole and not any(map(checks.problems, packages)),
            current=row.current,
            switched=row.switched,
            by=row.by,
            origin=manifest.origin if manifest is not None else "",
            revision=manifest.revision if manifest is not None else "",
            builder=f"{manifest.backend} {manifest.release}" if manifest is not None else "",
            signature=row.signature,
            tests=dict(manifest.outcomes) if manifest is not None else {},
        )


def _unneeded(root: Path) -> list[str]:
    try:
        named = package_checks.named_folders(root)
    except StepError:  # an unreadable manifest is among the problems already
        return []
    return [name for name in package_checks.package_names(root) if name not in named]
