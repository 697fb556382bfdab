"""Results of the linter about a manifest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, order=True)
class LintFinding:
    """A sentence about the field at `path` of a manifest, made by the linter.

    The severity `refused` keeps the manifest from running; a finding that is `noted` goes into the journal.
    """

    path: str
    sentence: str
    hint: str = ""
    severity: Literal["refused", "noted"] = "refused"

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" + (f" ({self.hint})" if self.hint else "")


def refused(findings: Iterable[LintFinding]) -> tuple[LintFinding, ...]:
    """Return only those findings that keep the manifest from running."""
    return tuple(finding for finding in findings if finding.severity == "refused")
