"""Results of building packages, as data: outcome, cause of a failure, times, and where the log lies."""

from enum import StrEnum
from typing import Final

from msgspec import Struct


class BuildFailure(StrEnum):
    """Cause of a failed package build, as far as its output says it."""

    FETCH = "fetch"
    """A source could not be fetched."""
    CHECKSUM = "checksum"
    """A source has another digest than the lock."""
    INPUT = "input"
    """The lock, its environment or a package repository names something that is not there."""
    DEPENDENCY = "dependency"
    """A package or module that the build needs is not there."""
    COMPILE = "compile"
    TEST = "test"
    SANITY = "sanity"
    """The installed package lacks files or does not run."""
    DISK_FULL = "disk_full"
    LOCK_TIMEOUT = "lock_timeout"
    MEMORY = "memory"
    PERMISSION = "permission"
    TAMPERED = "tampered"
    """A cache entry has other bytes than it says, or a signature that does not fit."""
    UNSIGNED = "unsigned"
    """A cache entry has no signature by a trusted key."""
    REGISTRY = "registry"
    """The registry with the build cache does not answer, or refuses what it is sent."""
    TIME = "time"
    """The build did not end within its time limit."""
    UNKNOWN = "unknown"


RETRIED: Final = frozenset({BuildFailure.FETCH, BuildFailure.LOCK_TIMEOUT})
"""Failures that another attempt may not have."""


class BuildOutcome(StrEnum):
    """Outcome of a package in a task: built now, in the cache already, failed, or not started since a dependency is missing."""

    BUILT = "built"
    CACHED = "cached"
    FAILED = "failed"
    NOT_STARTED = "not_started"


class PackageBuilt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one package's build.

    `phase` is the step of the build that failed (EasyBuild: `configure`, `build`, …). `seconds` is the whole task's time for the
    package, `tool_seconds` that of the build tool, `overhead_seconds` that of installing dependencies, packing and storing. `lines`
    are the decisive lines of the log, `reproduce` is the command that repeats the build by hand. `archive` is the digest of the
    archive in the cache, `log` the key of the log in the store, `needs` the hash of the dependency that is missing.
    """

    hash: str
    title: str
    outcome: BuildOutcome
    failure: BuildFailure | None = None
    retry: bool = False
    """Another attempt may succeed, by what the build tool said."""
    phase: str = ""
    seconds: float = 0.0
    tool_seconds: float = 0.0
    overhead_seconds: float = 0.0
    lines: tuple[str, ...] = ()
    reproduce: str = ""
    archive: str = ""
    size: int = 0
    """Bytes of the archive."""
    log: str = ""
    needs: str = ""

    @property
    def is_available(self) -> bool:
        """Return True if the cache has the package now."""
        return self.outcome in (BuildOutcome.BUILT, BuildOutcome.CACHED)
