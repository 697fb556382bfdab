"""Checks of a factory spec together with its pipeline files and key files."""

from collections.abc import Iterator
from pathlib import Path

from workflows import catalog
from workflows.app.factories import registry_certificate, registry_push
from workflows.spec import Issue, key_files, load_factory
from workflows.spec.pipelines.pipeline_files import load_pipelines


def issues(path: Path) -> Iterator[Issue]:
    """Yield the findings about a factory spec, its pipeline files and its key files. Raises SpecErrors with all errors."""
    spec = load_factory(path)
    load_pipelines(spec, path.parent)
    yield from catalog.check(spec.cluster, catalog.load())
    yield from key_files.missing_files(spec.cluster, path.parent)
    yield from registry_push.missing_archives(spec, path.parent)
    yield from registry_certificate.refusals(spec, path.parent)
