"""Statements about a published stack: how it was built, and which tests it passed. Pure: all data is of the run that made it."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from steps.clients.releases.release_kind import TreeProblem
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import attestation
from steps.contract.attestation import BuildDefinition, ResourceDescriptor, RunIdentity, SlsaProvenance, TestSuiteResult
from steps.contract.canonical import digest, digest_bytes
from steps.softwarestack.contract.package_files import LISTING
from steps.softwarestack.contract.stack_input import PACKAGES, StackInput
from steps.softwarestack.contract.stack_release import MANIFEST, StackManifest
from steps.softwarestack.contract.stack_tests import StackTestOutcome, StackTestResult

BUILD_TYPE: Final = "urn:bringup:stack-build:v1"
"""Type of the build in provenance; `steps/docs/facts/provenance.md` says what its parameters mean."""
_IMAGE: Final = re.compile(r"(?P<name>[^@\s]+)@sha256:(?P<digest>[0-9a-f]{64})")


def statements(
    manifest: StackManifest, encoded: bytes, stack: StackInput, results: Iterable[StackTestResult], run: RunIdentity
) -> dict[str, bytes]:
    """Return file → bytes of the statements about a version, whose manifest has the bytes `encoded`."""
    about = subjects(manifest, digest_bytes(encoded))
    return attestation.statements(about, _provenance(stack, run), _tests(stack, results))


def subjects(manifest: StackManifest, manifest_digest: str) -> dict[str, str]:
    """Return name → digest of what statements about a version are about: its manifest, and the list of each package's files."""
    packages = {f"{PACKAGES}/{package.folder}/{LISTING}": package.content for package in manifest.packages}
    return {MANIFEST: manifest_digest, **packages}


def problems(tree: ReleaseTree, version: str, manifest: StackManifest) -> Iterator[TreeProblem]:
    """Yield the statements of a version that are missing or about something else.

    Versions that were published before there were statements have none: their manifests do not claim any.
    """
    expected = subjects(manifest, tree.manifest_digest(version))
    for file in attestation.PREDICATES:
        place = tree.version_path(version, file)
        if manifest.attested or place in tree.entries:
            yield from (TreeProblem(place=place, why=why) for why in attestation.problems(file, tree.contents.get(place), expected))


def _provenance(stack: StackInput, run: RunIdentity) -> SlsaProvenance:
    definition = BuildDefinition(
        build_type=BUILD_TYPE,
        external_parameters=attestation.stated(name=stack.name, root=stack.root, revision=run.revision, lock=stack.lock),
        internal_parameters=attestation.stated(key=stack.key, naming=stack.naming, target=stack.target or " ".join(stack.targets)),
        resolved_dependencies=attestation.distinct(_dependencies(stack)),
    )
    return SlsaProvenance(build_definition=definition, run_details=run.details({stack.backend: stack.release}))


def _dependencies(stack: StackInput) -> Iterator[ResourceDescriptor]:
    """Yield lock, commits of the spec, builder image, and the recipes and sources of all packages that were built."""
    if stack.lock:
        yield attestation.artifact("lock", stack.lock)
    yield from attestation.commits("spec", stack.origin)
    if stack.builder:
        image = _IMAGE.fullmatch(stack.builder)
        hashed = {"sha256": image["digest"]} if image else {}
        yield ResourceDescriptor(name="builder", uri=f"docker://{stack.builder}", digest=hashed)
    if stack.spack is not None:
        yield attestation.artifact("spack/spack.lock", stack.spack.lock)
        yield attestation.artifact("spack/settings", stack.spack.settings)
        yield from (attestation.artifact(f"recipes/{recipe.path}", recipe.sha256) for recipe in stack.spack.recipes)
    for package in stack.packages:
        if not package.external:
            if package.sha256:
                yield attestation.artifact(f"easyconfigs/{package.easyconfig}", package.sha256)
            yield from (attestation.artifact(f"sources/{file.name}", file.sha256) for file in package.sources)
            yield from (attestation.artifact(f"patches/{file.name}", file.sha256) for file in package.patches)


def _tests(stack: StackInput, results: Iterable[StackTestResult]) -> TestSuiteResult:
    passing, failing = list[str](), list[str]()
    for result in results:
        if result.outcome is StackTestOutcome.NOT_TESTED:  # it neither passed nor failed, and the predicate has no third list
            continue
        (passing if result.outcome is StackTestOutcome.PASS else failing).append(result.name)
    configuration = [attestation.artifact("tests", digest(msgspec.to_builtins(stack.tests)), "application/json")]
    configuration += [attestation.artifact(file.path, file.sha256) for file in stack.reframe]
    return attestation.suite_result(passing, failing, configuration)
