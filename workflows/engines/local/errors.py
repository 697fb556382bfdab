"""Exceptions of the local engine; each has the exit code that the command line ends with (64 usage, 75 temporary)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from workflows.render.grammar.findings import LintFinding  # with the parser of expressions, which `status` does without


class EngineError(Exception):
    """Exception: the engine cannot run or continue; the text is a sentence for a person."""

    exit_code: ClassVar[int] = 1


class ManifestRefusedError(EngineError):
    """Exception: the manifest uses something that the local engine and Argo do not both support."""

    exit_code: ClassVar[int] = 64

    def __init__(self, findings: Sequence[LintFinding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in findings))


class RunDirectoryError(EngineError):
    """Exception: the run directory cannot be used, since it is not writable, already holds a run, or holds none."""

    exit_code: ClassVar[int] = 64


class JournalForeignError(EngineError):
    """Exception: the journal is damaged or was not written by this version of the engine."""

    exit_code: ClassVar[int] = 64


class RunBusyError(EngineError):
    """Exception: another engine drives this run."""

    exit_code: ClassVar[int] = 75


class StorageError(EngineError):
    """Exception: a write failed (disk full, quota, I/O error). Earlier records are intact, so `resume` can continue from them."""

    exit_code: ClassVar[int] = 75


class PlatformError(EngineError):
    """Exception: the kernel lacks a feature that the engine needs to control its processes (pidfd, Linux 5.3)."""

    exit_code: ClassVar[int] = 64
