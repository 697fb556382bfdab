"""Attestations about a release: in-toto statements with SLSA provenance and with test results, and checks of their subjects. Pure.

Field names and types are those of the published specifications (`steps/docs/facts/provenance.md`). The package
in-toto-attestation has them as classes of protobuf, which promise no equal bytes for equal data; canonical JSON does.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PROVENANCE: Final = "https://slsa.dev/provenance/v1"
TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"
PROVENANCE_FILE: Final = "provenance.json"
"""File of a version with the statement how it was built."""
TEST_RESULT_FILE: Final = "test-result.json"
"""File of a version with the statement which tests it passed."""
PREDICATES: Final = {PROVENANCE_FILE: PROVENANCE, TEST_RESULT_FILE: TEST_RESULT}
"""File → type of the predicate in it."""
_SHA256: Final = "sha256"
_COMMIT: Final = re.compile(r"\b[0-9a-f]{40}\b")
P = TypeVar("P")


class AttestationError(ValueError):
    """Error: a file is no statement that can be read; the message says why."""


class ResourceDescriptor(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A file or other artifact: its name within the statement, its address, and its digests, algorithm → hexadecimal digits."""

    name: str = ""
    uri: str = ""
    digest: dict[str, str] = {}
    media_type: str = ""
    annotations: dict[str, bool] = {}


class BuildDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Input of a build: parameters from outside and of the platform, and the artifacts that it used."""

    build_type: str
    external_parameters: dict[str, str]
    internal_parameters: dict[str, str] = {}
    resolved_dependencies: tuple[ResourceDescriptor, ...] = ()


class BuildPlatform(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The platform that made a build: its URI, and the versions of its components."""

    id: str
    version: dict[str, str] = {}


class BuildMetadata(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One execution of a build: its run, and when it began and ended (RFC 3339, UTC)."""

    invocation_id: str = ""
    started_on: str = ""
    finished_on: str = ""


class RunDetails(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Platform and execution of a build."""

    builder: BuildPlatform
    metadata: BuildMetadata = BuildMetadata()


class SlsaProvenance(Struct, frozen=True, kw_only=True, rename="camel"):
    """Predicate SLSA provenance v1: what was built, by what, and when."""

    build_definition: BuildDefinition
    run_details: RunDetails


class SuiteResult(StrEnum):
    """Result of all tests together."""

    PASSED = "PASSED"
    WARNED = "WARNED"
    FAILED = "FAILED"


class TestSuiteResult(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Predicate test-result v0.1: the result of a run of tests, its configuration, and the names of the tests."""

    __test__ = False

    result: SuiteResult
    configuration: tuple[ResourceDescriptor, ...]
    passed_tests: tuple[str, ...] = ()
    failed_tests: tuple[str, ...] = ()


class InTotoStatement(Struct, Generic[P], frozen=True, kw_only=True, rename="camel"):
    """An in-toto statement v1: artifacts, and what a predicate of the named type says about them."""

    type: str = msgspec.field(name="_type")
    subject: tuple[ResourceDescriptor, ...]
    predicate_type: str
    predicate: P


class RunIdentity(Struct, frozen=True, kw_only=True):
    """The run that built a release: its id, its engine, the version of bringup, and its begin and end (UTC seconds, 0: unknown).

    `revision` is the user's of the spec.
    """

    run: str
    engine: str
    version: str
    started: float = 0.0
    finished: float = 0.0
    revision: str = ""

    def details(self, tools: Mapping[str, str]) -> RunDetails:
        """Return the run as a predicate has it; `tools` are versions of further programs that decided the result."""
        metadata = BuildMetadata(invocation_id=self.run, started_on=_timestamp(self.started), finished_on=_timestamp(self.finished))
        platform = BuildPlatform(id=f"urn:bringup:engine:{self.engine}:v1", version={"bringup": self.version, **tools})
        return RunDetails(builder=platform, metadata=metadata)


def artifact(name: str, digest: str, media_type: str = "") -> ResourceDescriptor:
    """Return the descriptor of an artifact with a digest `sha256:…` (or the hexadecimal digits alone)."""
    return ResourceDescriptor(name=name, digest={_SHA256: digest.removeprefix("sha256:")}, media_type=media_type)


def commits(name: str, origin: str) -> tuple[ResourceDescriptor, ...]:
    """Return the Git commits in the origin of a product, such as `3f2a… with changes, on bringup 0.1.0`."""
    changed = {"withChanges": True} if " with changes" in origin else {}
    return tuple(
        ResourceDescriptor(name=name, digest={"gitCommit": commit}, annotations=changed) for commit in _COMMIT.findall(origin)
    )


def stated(**parameters: str) -> dict[str, str]:
    """Return the parameters of a build that have a value."""
    return {name: value for name, value in parameters.items() if value}


def statements(subjects: Mapping[str, str], provenance: SlsaProvenance, tests: TestSuiteResult) -> dict[str, bytes]:
    """Return file → bytes of the statements about the artifacts of a version, name → digest `sha256:…`."""
    return {PROVENANCE_FILE: encode(subjects, provenance), TEST_RESULT_FILE: encode(subjects, tests)}


def attested_digest(data: bytes, subject: str) -> str:
    """Return the digest of a subject in the bytes of provenance; empty if there is none, or if they cannot be read."""
    try:
        return subjects_of(PROVENANCE_FILE, data).get(subject, "")
    except AttestationError:
        return ""


def distinct(descriptors: Iterable[ResourceDescriptor]) -> tuple[ResourceDescriptor, ...]:
    """Return descriptors without those that are there twice, in order; packages share sources."""
    return tuple({canonical(descriptor): descriptor for descriptor in descriptors}.values())


def encode(subjects: Mapping[str, str], predicate: SlsaProvenance | TestSuiteResult) -> bytes:
    """Return the bytes of a statement about artifacts, name → digest `sha256:…`; equal data gives equal bytes."""
    kind = PROVENANCE if isinstance(predicate, SlsaProvenance) else TEST_RESULT
    subject = tuple(artifact(name, digest) for name, digest in sorted(subjects.items()))
    return canonical(InTotoStatement(type=STATEMENT, subject=subject, predicate_type=kind, predicate=predicate)) + b"\n"


def suite_result(passing: Iterable[str], failing: Iterable[str], configuration: Iterable[ResourceDescriptor]) -> TestSuiteResult:
    """Return the predicate about tests by name. It is PASSED only if there were tests and none failed."""
    good, bad = tuple(sorted(passing)), tuple(sorted(failing))
    result = SuiteResult.PASSED if good and not bad else SuiteResult.FAILED
    return TestSuiteResult(result=result, configuration=tuple(configuration), passed_tests=good, failed_tests=bad)


def subjects_of(file: str, data: bytes) -> dict[str, str]:
    """Return name → digest `sha256:…` of the subjects in the bytes of a statement. Raises AttestationError.

    `file` is the name of the file, which decides the predicate. Unknown fields are ignored, as in-toto asks.
    """
    kind: type[InTotoStatement[SlsaProvenance]] | type[InTotoStatement[TestSuiteResult]]
    kind = InTotoStatement[SlsaProvenance] if file == PROVENANCE_FILE else InTotoStatement[TestSuiteResult]
    try:
        statement = msgspec.json.decode(data, type=kind)
    except UNREADABLE_JSON as error:
        raise AttestationError(f"cannot be read as an in-toto statement: {error}") from error
    if statement.type != STATEMENT or statement.predicate_type != PREDICATES[file]:
        message = f"is a {statement.type[:80]} about {statement.predicate_type[:80]}, expected {STATEMENT} about {PREDICATES[file]}"
        raise AttestationError(message)
    if len({subject.name for subject in statement.subject}) < len(statement.subject):
        raise AttestationError("names a subject twice")
    return {subject.name: f"sha256:{subject.digest.get(_SHA256, '')}" for subject in statement.subject}


def problems(file: str, data: bytes | None, expected: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with a statement: it must be there, and be about exactly these artifacts, name → digest `sha256:…`."""
    if data is None:
        yield "is missing, or larger than what is read"
        return
    try:
        subjects = subjects_of(file, data)
    except AttestationError as error:
        yield str(error)
        return
    for name, digest in sorted(expected.items()):
        if subjects.get(name) != digest:
            yield f"is about {name} with {subjects.get(name, 'no digest')[:80]}, the version has {digest}"
    if others := sorted(subjects.keys() - expected.keys()):
        yield f"is about {others[0][:80]!r}, which the version has not"


def _timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if seconds else ""
