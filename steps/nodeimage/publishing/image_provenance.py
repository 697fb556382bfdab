"""Statements about a published node image: how it was built, and which tests it passed. Pure, from data of the run alone."""

from collections.abc import Iterator
from typing import Final

from steps.clients.releases.release_kind import TreeProblem
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import attestation
from steps.contract.attestation import BuildDefinition, ResourceDescriptor, RunIdentity, SlsaProvenance, TestSuiteResult
from steps.contract.canonical import digest_bytes
from steps.nodeimage.contract.boot_tree import Tested
from steps.nodeimage.contract.image_manifest import MANIFEST, Manifest
from steps.nodeimage.contract.image_tests import ImageTestOutcome
from steps.nodeimage.publishing import image_versions

BUILD_TYPE: Final = "urn:bringup:image-build:v1"
"""Type of the build in provenance; `steps/docs/facts/provenance.md` says what its parameters mean."""
_RECIPE: Final = "recipe"


def statements(manifest: Manifest, encoded: bytes, tested: Tested, run: RunIdentity) -> dict[str, bytes]:
    """Return file → bytes of the statements about a version, whose manifest has the bytes `encoded`."""
    return attestation.statements(subjects(manifest, encoded), _provenance(manifest, run), _tests(manifest, tested))


def subjects(manifest: Manifest, encoded: bytes) -> dict[str, str]:
    """Return name → digest of what statements about a version are about: its manifest and the files of the image."""
    return {MANIFEST: digest_bytes(encoded), **{part.name: part.digest for part in manifest.parts}}


def problems(tree: ReleaseTree, version: str) -> Iterator[TreeProblem]:
    """Yield the statements of a version that are missing or about something else.

    Versions that were published before there were statements have none: their `tests.json` does not claim any.
    """
    manifest, data = image_versions.manifest_of(tree, version), tree.manifest(version)
    if manifest is None or data is None:
        return
    attested = image_versions.published_test_results(tree, version).attested
    for file, expected in dict.fromkeys(attestation.PREDICATES, subjects(manifest, data)).items():
        place = tree.version_path(version, file)
        if attested or place in tree.entries:
            sentences = attestation.problems(file, tree.contents.get(place), expected)
            yield from (TreeProblem(place=place, why=why) for why in sentences)


def _provenance(manifest: Manifest, run: RunIdentity) -> SlsaProvenance:
    definition = BuildDefinition(
        build_type=BUILD_TYPE,
        external_parameters=attestation.stated(name=manifest.name, recipe=manifest.recipe, revision=run.revision),
        internal_parameters=attestation.stated(key=manifest.key),
        resolved_dependencies=attestation.distinct(_dependencies(manifest)),
    )
    return SlsaProvenance(build_definition=definition, run_details=run.details(manifest.tools))


def _dependencies(manifest: Manifest) -> Iterator[ResourceDescriptor]:
    yield from attestation.commits("spec", manifest.origin)
    for package in manifest.packages:
        yield attestation.artifact(f"packages/{package.name}_{package.version}_{package.architecture}", package.sha256)


def _tests(manifest: Manifest, tested: Tested) -> TestSuiteResult:
    outcomes = {f"{task}: {name}": outcome for task, ended in tested.outcomes.items() for name, outcome in ended.items()}
    passing = [name for name, outcome in outcomes.items() if outcome is ImageTestOutcome.PASS]
    configuration = [attestation.artifact(_RECIPE, manifest.recipe)]
    return attestation.suite_result(passing, outcomes.keys() - set(passing), configuration)
