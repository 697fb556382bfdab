"""Publication and rollback of a software stack, and the observation by which a publication's gate judges.

The order is: packages that the root lacks, then the version with its module files, then the pointer, then retention. A process that
is killed leaves the version that was current before; what it copied is removed by the next publication.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from steps.clients.clock import Clock
from steps.clients.releases import preflight, publication, release_rollback, release_signatures, verification
from steps.clients.releases.local_transport import naming
from steps.clients.releases.publication import PublishOutcome, PublishRequest, Say
from steps.clients.releases.release_kind import StagedRelease, files_found
from steps.clients.releases.release_rollback import RollbackResult
from steps.clients.releases.release_tree import MOST_BYTES, ReleaseTree
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract import attestation
from steps.contract.attestation import RunIdentity
from steps.contract.canonical import canonical
from steps.contract.detachment import ExternalLink
from steps.contract.release_layout import ReleaseTarget
from steps.errors import BadTask, Refused, StepError
from steps.softwarestack.contract import stack_difference, stack_release
from steps.softwarestack.contract.stack_input import PACKAGES, StackInput
from steps.softwarestack.contract.stack_release import PackageContent, PublishedStack, StackManifest, StackManifestError
from steps.softwarestack.contract.stack_tests import StackTestResult
from steps.softwarestack.publication import package_checks, package_listing, stack_kind, stack_provenance
from steps.softwarestack.publication.package_checks import PackageChecks
from steps.softwarestack.publication.package_store import PackageStore

_LOCAL: Final = "packages are copied to a folder of this machine only: mount the published folder here, at the same path"


class TestedStack(Struct, frozen=True, kw_only=True):
    """Content of a version's `tests.json`: the run that published it, the origin of the spec, and the results of its tests."""

    run: str = ""
    origin: str = ""
    results: tuple[StackTestResult, ...] = ()

    @property
    def encoded(self) -> bytes:
        """Bytes of the file `tests.json`."""
        return canonical(self) + b"\n"


class StackMaking(Struct, frozen=True, kw_only=True):
    """Making of a stack: the stack as its builder read it, and the run."""

    stack: StackInput
    run: RunIdentity


class StackRelease(StagedRelease, frozen=True, kw_only=True):
    """An assembled and tested stack that is to be published, with its manifest as it is published.

    `checks` are those of packages in the published root, which the `kind` asks.
    """

    stack: StackManifest
    target: ReleaseTarget
    checks: PackageChecks

    def refuse(self, tree: ReleaseTree) -> None:
        """Raise Refused if the root has a product of another kind by this name."""
        for version in tree.versions:
            if tree.manifest(version) is not None and stack_kind.manifest_of(tree, version) is None:
                place = tree.version_path(version)
                raise Refused(f"{place} is no version of a stack", hint="publish to another root, or give the stack another name")

    def is_same(self, manifest: bytes) -> bool:
        """Return True if a manifest's bytes describe this stack; origin, revision and tests may differ."""
        try:
            return stack_release.decode_manifest(manifest).is_same(self.stack)
        except StackManifestError:
            return False

    def is_suitable(self, tree: ReleaseTree, version: str) -> bool:
        """Return True if a version of this stack was tested by all tests that it must pass now, and has statements about it."""
        manifest = stack_kind.manifest_of(tree, version)
        if manifest is None or manifest.key != self.stack.key or not manifest.attested:
            return False
        return manifest.outcomes.keys() >= self.stack.outcomes.keys()


def stage(tree: Path, target: ReleaseTarget, tested: TestedStack, made: StackMaking) -> StackRelease:
    """Return the assembled tree in a folder, ready to be published to a target; its manifest gets origin and outcomes of tests.

    Statements say how it was `made`, and how each test ended; they make no new version either.

    Raises BadTask if the folder holds no stack, one built for another published root, or one that is too large for readers.
    """
    try:
        manifest = stack_release.decode_manifest((tree / stack_release.MANIFEST).read_bytes())
    except (OSError, StackManifestError) as error:
        raise BadTask(f"{tree} holds no stack: {error}", hint="assemble it again: bringup stack build") from error
    if os.path.normpath(manifest.root) != os.path.normpath(target.root):
        message = f"the stack was built for {manifest.root}, which is in its files, and cannot be used in {target.root}"
        raise BadTask(message, hint="build it for the folder that it is published to")
    outcomes = {result.name: result.outcome.value for result in tested.results}
    published = replace(manifest, origin=tested.origin, revision=made.run.revision, outcomes=outcomes, attested=True)
    encoded = stack_release.encode_manifest(published)
    statements = stack_provenance.statements(published, encoded, made.stack, tested.results, made.run)
    for name, data in {stack_release.MANIFEST: encoded, **statements}.items():
        if len(data) > MOST_BYTES:  # nobody could check it once it is published
            raise BadTask(f"{name} would have {len(data)} bytes, readers take {MOST_BYTES}", hint="split the stack into several")
    checks = PackageChecks(Path(target.root))
    return StackRelease(
        kind=stack_kind.stack_kind(checks.problems),
        product=manifest.name,
        folder=tree,
        manifest=encoded,
        files=manifest.files,
        metadata={stack_release.TESTS: tested.encoded, **statements},
        links=published.links,
        stack=published,
        target=target,
        checks=checks,
    )


def publish(request: PublishRequest, clock: Clock, say: Say) -> PublishedStack:
    """Publish a stack to a folder of this machine, and return what is there afterwards.

    Raises Refused for a target on another machine, and other StepErrors.
    """
    if request.target.host:
        raise Refused(f"{request.target.host}:{request.target.root} is on another machine", hint=_LOCAL)
    with stack_kind.connect(request.target, request.secrets) as transport:
        return publish_through(transport, request, clock, say)


def publish_through(transport: TreeTransport, request: PublishRequest, clock: Clock, say: Say) -> PublishedStack:
    """Publish a stack through an open transport to a folder of this machine, and return what is there afterwards."""
    release, root = request.release, Path(request.target.root)
    assert isinstance(release, StackRelease)
    packages, store = release.stack.packages, PackageStore(transport, root, clock)
    tree = publication.refuse_early(transport, request)
    if release.is_current(tree) and not any(map(release.checks.problems, packages)):
        outcome = publication.publish(transport, request, say)
        return replace(_observed(request, outcome, release.checks), removed_packages=_collect(store, request.by, say))
    _refuse_leading_out(release, root)
    with store.reserve(release.product, packages, request.by) as token:
        copied = store.copy(release.folder, packages, token, say)
        fresh = replace(release, kind=stack_kind.stack_kind(PackageChecks(root).problems))
        request = replace(request, release=fresh)
        outcome = publication.publish(transport, request, say)
        removed = _collect(store, request.by, say)
    leftovers = store.staged(token)
    observed = _observed(request, outcome, PackageChecks(root))
    return replace(
        observed,
        copied=len([package for package in copied if package.folder != release.stack.view]),
        removed_packages=removed,
        incoming=(*observed.incoming, *leftovers),
        unchanged=outcome.unchanged and not copied,
    )


def _refuse_leading_out(release: StackRelease, root: Path) -> None:
    """Raise Refused, before anything is copied, if a link or module file of an assembled tree leads out of the published root."""
    stack, links = release.stack, list[ExternalLink]()
    for package in stack.packages:
        files = package_listing.list_names(release.folder / PACKAGES / package.folder)
        links += package_checks.links_out(package, files, str(root))
    preflight.refuse_links(links)
    for file in stack.files:
        with naming(file.name, str(release.folder)):
            text = (release.folder / file.name).read_bytes().decode(errors="replace")
        if why := stack_kind.module_problem(text, stack.name, stack):
            raise Refused(f"module file {file.name} {why}", hint="see the module settings of its recipe, and build it again")


def roll_back(
    transport: TreeTransport,
    stack: str,
    version: str,
    actor: str,
    signers: tuple[str, ...] = (),
    key: Path | None = None,
    *,
    root: Path | None = None,
) -> RollbackResult:
    """Make a version current, without one that which was current before (see `release_rollback.roll_back`).

    `root` is the published root on this machine, whose packages must be those of the version; None: packages are not looked at.
    """
    check = PackageChecks(root).problems if root is not None else stack_kind.unchecked
    return release_rollback.roll_back(stack_kind.stack_kind(check), transport, stack, version, actor, signers, key)


def _collect(store: PackageStore, actor: str, say: Say) -> tuple[str, ...]:
    """Remove the packages that retention left without a version; a failure leaves them to the next publication.

    Nothing is written if there is none: a run that changes nothing takes no lock.
    """
    removed: tuple[str, ...] = ()
    try:
        planned = store.collect(actor, dry_run=True)
        removed = store.collect(actor).removed if planned.removed or planned.leftovers else ()
    except StepError as error:
        say(f"packages that no version names stay: {error}")
    return removed


def _observed(request: PublishRequest, outcome: PublishOutcome, checks: PackageChecks) -> PublishedStack:
    """Return the observation of a publication for its gate, from the root as it was read back."""
    tree, kind, version = outcome.tree, request.release.kind, outcome.tree.current
    manifest, root = stack_kind.manifest_of(tree, version), Path(request.target.root)
    packages = manifest.packages if manifest is not None else ()
    provenance = tree.contents.get(tree.version_path(version, attestation.PROVENANCE_FILE), b"")
    changes = stack_difference.compare_manifests(stack_kind.manifest_of(tree, outcome.before), manifest)
    return PublishedStack(
        version=version,
        name=manifest.name if manifest is not None else "",
        key=manifest.key if manifest is not None else "",
        manifest=tree.manifest_digest(version),
        before=outcome.before,
        unchanged=outcome.unchanged,
        present=files_found(tree, version),
        listed=kind.files_of(tree, version),
        packages=len(manifest.built) if manifest is not None else 0,
        size=manifest.size if manifest is not None else 0,
        missing_packages=tuple(package.folder for package in packages if not checks.is_there(package)),
        wrong_packages=(*_wrong_packages(checks, packages), *_wrong_links(tree, version, manifest)),
        wrong_modules=tuple(_wrong_modules(tree, version, manifest)),
        packages_added=changes.added,
        packages_removed=changes.removed,
        packages_changed=changes.changed,
        outside=(*(link.sentence for link in preflight.external_links(kind, tree)), *_links_out(root, manifest)),
        signature=release_signatures.state(kind, tree, version, request.target.signers),
        provenance=attestation.attested_digest(provenance, stack_release.MANIFEST),
        wrong_statements=tuple(_wrong_statements(tree, version, manifest)),
        versions=tree.versions,
        removed=outcome.removed,
        incoming=tree.unfinished,
        tests=dict(manifest.outcomes) if manifest is not None else {},
    )


def _wrong_packages(checks: PackageChecks, packages: Iterable[PackageContent]) -> Iterator[str]:
    """Yield a sentence about each package that is there and differs from what the manifest says."""
    for package in packages:
        if checks.is_there(package) and (problems := checks.problems(package)):
            yield f"{problems[0].place} {problems[0].why}"


def _wrong_links(tree: ReleaseTree, version: str, manifest: StackManifest | None) -> Iterator[str]:
    """Yield a sentence about each link of the version, such as the one to its view, that is missing or leads elsewhere."""
    for problem in verification.wrong_links(manifest.links if manifest is not None else {}, tree, version):
        yield f"{problem.place} {problem.why}"


def _wrong_modules(tree: ReleaseTree, version: str, manifest: StackManifest | None) -> Iterator[str]:
    if manifest is not None:
        yield from (f"{problem.place} {problem.why}" for problem in stack_kind.module_problems(tree, version, manifest))


def _wrong_statements(tree: ReleaseTree, version: str, manifest: StackManifest | None) -> Iterator[str]:
    if manifest is not None:
        yield from (f"{problem.place} {problem.why}" for problem in stack_provenance.problems(tree, version, manifest))


def _links_out(root: Path, manifest: StackManifest | None) -> Iterator[str]:
    """Yield a sentence about each link that leads out of the packages of a version."""
    for package in manifest.packages if manifest is not None else ():
        files = package_checks.listed_files(root, package)
        yield from (link.sentence for link in package_checks.links_out(package, files, str(root)))
