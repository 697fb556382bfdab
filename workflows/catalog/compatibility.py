"""Run of the compatibility rules over a spec and its planned releases."""

from __future__ import annotations

from workflows.catalog.loader import Catalog
from workflows.catalog.model import PlannedRelease
from workflows.catalog.resolve import resolve
from workflows.spec import ClusterSpec, Issue, SpecErrors, compat


def check(spec: ClusterSpec, catalog: Catalog) -> tuple[Issue, ...]:
    """Return every issue of a spec, errors first.

    Raises:
        SpecErrors: the releases cannot be resolved.
    """
    return compat.check(spec, map(_planned, resolve(spec, catalog)))


def require(spec: ClusterSpec, catalog: Catalog) -> tuple[Issue, ...]:
    """Return the warnings of a spec.

    Raises:
        SpecErrors: at least one rule found an error; all errors are in it.
    """
    issues = check(spec, catalog)
    errors = [issue.as_error() for issue in issues if issue.severity == "error"]
    if errors:
        raise SpecErrors(spec.name, errors)
    return issues


def _planned(release: PlannedRelease) -> compat.ReleaseFacts:
    supported = release.kubernetes
    return compat.ReleaseFacts(
        id=release.id,
        version=release.version,
        app_version=release.app_version,
        digest=release.digest,
        other_digests=release.other_digests,
        from_manifest=bool(release.manifest),
        least=supported.least if supported else "",
        most=(supported.most or "") if supported else "",
        strict=supported.strict if supported else True,
        provides=release.provides,
        values=release.values,
        objects=release.objects,
    )
