"""Errors of the embedded engine; each has the exit code that the command line ends with (64 usage, 75 temporary)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from workflows.render.grammar.findings import Finding


class EngineError(Exception):
    """Anything that keeps the engine from running or going on; the text is a sentence for a person."""

    exit_code: ClassVar[int] = 1


class ManifestRefusedError(EngineError):
    """The manifest uses something outside of the executed grammar."""

    exit_code: ClassVar[int] = 64

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in findings))


class RunDirectoryError(EngineError):
    """The run directory cannot be used: not writable, already holds a run, or holds none."""

    exit_code: ClassVar[int] = 64


class JournalForeignError(EngineError):
    """The journal was not written by this engine, or is damaged."""

    exit_code: ClassVar[int] = 64


class RunBusyError(EngineError):
    """Another engine drives this run."""

    exit_code: ClassVar[int] = 75


class StorageError(EngineError):
    """A write failed (disk full, quota, I/O error); what was recorded before is intact and `resume` goes on from there."""

    exit_code: ClassVar[int] = 75


class PlatformError(EngineError):
    """The kernel lacks what the engine needs to hold its processes (pidfd, Linux 5.3)."""

    exit_code: ClassVar[int] = 64
