"""Resolve a spec with the catalog into planned releases, each with complete metadata, its Helm values, and their origin.

Values are merged from these layers, lowest first: the component's values file, overlays from general to specific, the spec's
overrides. References are filled before the overrides are merged, so values that a user writes are taken literally.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workflows.catalog import criteria, templating
from workflows.catalog.chart_schemas import chart_schema, kind_schemas
from workflows.catalog.loader import Catalog
from workflows.catalog.model import Component, Overlay, OverlayPart, PlannedRelease, ValuesLayer
from workflows.catalog.templating import scope
from workflows.spec import ClusterSpec, Issue, SpecError, SpecErrors, compat
from workflows.spec.accelerators import numbers
from workflows.spec.compat.value_shapes import knows
from workflows.spec.fields import is_floating
from workflows.spec.parsing.document import value_at
from workflows.spec.parsing.loading import cut
from workflows.spec.sections.governance import Override

_NEVER_EMPTY = ("source", "version", "namespace", "rollout", "health", "rollback")
_NO_OVERRIDE = Override()


def resolve(spec: ClusterSpec, catalog: Catalog) -> tuple[PlannedRelease, ...]:
    """Return the releases that a spec plans, ordered by stage, and within a stage after the releases they need.

    Raises:
        SpecErrors: a release lacks source, version, namespace, rollout, health or rollback; a version floats; an override
            names no planned component; or a value refers to nothing.
    """
    releases, errors = _attempt(spec, catalog)
    if errors:
        raise SpecErrors(f"releases of {spec.name}", cut(errors))
    return releases


def _attempt(spec: ClusterSpec, catalog: Catalog) -> tuple[tuple[PlannedRelease, ...], list[SpecError]]:
    """Return the releases that can be resolved, in order, and the errors of all others."""
    facts = criteria.facts(spec)
    work = _Work(spec, catalog, facts, tuple(_applied(catalog, facts)), scope(spec))
    planned = tuple(name for name in catalog.order() if work.plans(name))
    idle = (name for name in spec.overrides if name not in planned)
    releases, errors = [], [_idle_override(name, planned, catalog) for name in idle]
    for name in planned:
        try:
            release = work.release(name, planned)
        except templating.BadReference as bad:
            errors.append(SpecError(f"catalog.{name}.values", str(bad), "set it in the spec, or correct the catalog"))
            continue
        errors.extend(_gaps(release))
        releases.append(release)
    stages = spec.enabled_stages()
    return tuple(sorted(releases, key=lambda release: stages.index(release.stage))), errors


def _idle_override(name: str, planned: Sequence[str], catalog: Catalog) -> SpecError:
    """Return the error for an override of a component that is not planned, with the sections or the name that would plan it."""
    component, choices = catalog.components.get(name), f"choose from {', '.join(planned)}"
    if component is not None:
        wanted = " and ".join(f"{fact} {' or '.join(values)}" for fact, values in component.when.items())
        needs = f"stage {component.stage}{f' with {wanted}' if wanted else ''}"
        return SpecError(f"overrides.{name}", f"this spec plans no {name}, which belongs to {needs}", choices)
    return SpecError(f"overrides.{name}", "this spec plans no such component", choices)


def _gaps(release: PlannedRelease) -> Iterator[SpecError]:
    path = f"catalog.{release.id}"
    for field in _NEVER_EMPTY:
        if not getattr(release, field):
            yield SpecError(f"{path}.{field}", f"the release has no {field}", f"give {field} in the catalog or the spec")
    if release.version and is_floating(release.version):
        problem = "a floating version means different things at different times (P13)"
        yield SpecError(f"{path}.version", problem, "pin one exact version", release.version)


def _applied(catalog: Catalog, facts: criteria.Facts) -> list[tuple[str, Overlay]]:
    """Return the overlays whose criteria match, with their names, in the order of application.

    Bases come before what refines them, then overlays with fewer criteria, then by name.
    """
    chosen = []
    for name, overlay in catalog.overlays.items():
        lineage = [overlay]
        while lineage[-1].base is not None:
            lineage.append(catalog.overlays[lineage[-1].base])
        if all(criteria.matches(part.criteria, facts) for part in lineage):
            chosen.append((len(lineage), sum(len(part.criteria) for part in lineage), name))
    return [(name, catalog.overlays[name]) for *_, name in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class _Work:
    """The inputs from which all releases of one spec are resolved: spec, catalog, facts, matching overlays, scope of references."""

    spec: ClusterSpec
    catalog: Catalog
    facts: criteria.Facts
    applied: tuple[tuple[str, Overlay], ...]
    scope: Mapping[str, Any]

    def parts(self, name: str) -> list[tuple[str, OverlayPart]]:
        """Return the changes that matching overlays make to a component, each with the overlay's name, lowest layer first."""
        return [(origin, overlay.components[name]) for origin, overlay in self.applied if name in overlay.components]

    def plans(self, name: str) -> bool:
        """Return True if a component is planned: its stage runs, and its criteria match or an overlay enables it.

        The last overlay with `enabled` overrules the criteria, in both directions.
        """
        component = self.catalog.components[name]
        planned = criteria.matches(component.when, self.facts)
        for _, part in self.parts(name):
            planned = planned if part.enabled is None else part.enabled
        return planned and component.stage in self.spec.enabled_stages()

    def release(self, name: str, planned: tuple[str, ...]) -> PlannedRelease:
        component = self.catalog.components[name]
        override = self.spec.overrides.get(name, _NO_OVERRIDE)
        version = self.coordinate(name, "version", override.version)
        inner = {**self.scope, "release": {"version": version, "namespace": self.namespace(component)}}
        values, layers = self.values(name, override, inner)
        chart, repo = self.address(component.chart, self.coordinate(name, "repo", override.repo), override)
        digest, *others = self.digests(name, override, version) or ("",)
        manifest = (component.manifest or "").replace("{version}", version)
        return PlannedRelease(
            id=name,
            component=name,
            stage=component.stage,
            source=manifest or (f"{repo} {chart}" if repo else chart if chart.startswith("oci://") else ""),
            chart=chart,
            repo=repo,
            manifest=manifest,
            version=version,
            digest=digest,
            other_digests=tuple(others),
            upgrade_from=reachable_from(component.lines, version),
            app_version=(component.app_version or "") if version == component.version else "",
            cluster_kinds=component.cluster_kinds,
            other_namespaces=component.other_namespaces,
            ignore_differences=component.ignore_differences,
            namespace=self.namespace(component),
            privileged=component.privileged,
            release_name=component.release_name or name.replace("_", "-"),
            values=values,
            objects=tuple(self.objects(component, inner)),
            rollout=component.rollout or "",
            health=component.health or "",
            rollback=component.rollback or "",
            gates=component.gates,
            needs=tuple(needed for needed in component.needs if needed in planned),
            crds=component.crds,
            provides=tuple(_provided(component, values)),
            kubernetes=component.kubernetes,
            timeout_seconds=int(component.timeout.total_seconds()),
            provenance=layers,
        )

    def namespace(self, component: Component) -> str:
        """Return the target namespace: the spec's, if the component names a field for it, else the catalog's."""
        return _optional(component.from_spec.get("namespace"), self.scope) or component.namespace or ""

    def coordinate(self, name: str, which: str, override: str | None) -> str:
        """Return a component's version or repo (`which`): the override's, else the spec's, the last overlay's, or the catalog's."""
        component = self.catalog.components[name]
        from_spec = _optional(component.from_spec.get("version" if which == "version" else "repo"), self.scope)
        overlaid = [getattr(part, which) for _, part in self.parts(name) if getattr(part, which)]
        return override or from_spec or (overlaid[-1] if overlaid else "") or getattr(component, which) or ""

    def address(self, chart: str, repo: str, override: Override) -> tuple[str, str]:
        """Return chart and repo as a HelmChart has them: an OCI chart has its whole address in `chart` and an empty `repo`."""
        if chart and self.spec.airgap is not None and override.repo is None:
            repo = self.spec.airgap.charts
        return (f"{repo.rstrip('/')}/{chart}", "") if chart and repo.startswith("oci://") else (chart, repo)

    def digests(self, name: str, override: Override, version: str) -> tuple[str, ...]:
        """Return the known digests of a chart version, in this order: the override's, the air-gap mirror's, the catalog's.

        The catalog's digest counts only if `version` is the catalog's own version.
        """
        mirrored = self.spec.airgap.digests.get(name) if self.spec.airgap else None
        component = self.catalog.components[name]
        own = component.digest if component.version == version else None
        return tuple(dict.fromkeys(digest for digest in (override.digest, mirrored, own) if digest))

    def values(self, name: str, override: Override, inner: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[ValuesLayer, ...]]:
        """Return the merged Helm values, and the layers that they came from, lowest first."""
        component = self.catalog.components[name]
        stack = [(f"values/{component.values}", self.catalog.values[component.values])] if component.values else []
        stack += [(f"overlay {origin}", part.values) for origin, part in self.parts(name)]
        merged: dict[str, Any] = {}
        layers = []
        for origin, part in stack:
            filled = templating.fill(part, inner, self.facts) or {}
            merged = templating.merge(merged, filled)
            layers.append(ValuesLayer(origin, tuple(templating.leaves(filled))))
        if override.values:
            merged = templating.merge(merged, override.values)
            layers.append(ValuesLayer(f"spec overrides.{name}", tuple(templating.leaves(override.values))))
        return merged, tuple(layers)

    def objects(self, component: Component, inner: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the Kubernetes objects that are applied after a component's release, with references filled."""
        for part in component.objects:
            if criteria.matches(part.when, self.facts):
                yield from templating.fill(self.catalog.objects[part.file]["objects"], inner, self.facts)


def _optional(path: str | None, values: Mapping[str, Any]) -> str:
    return (value_at(values, path) or "") if path else ""


def _provided(component: Component, values: Mapping[str, Any]) -> Iterator[str]:
    for provision in component.provides:
        value = value_at(values, provision.where) if provision.where else None
        if provision.default if value is None else bool(value):
            yield provision.capability


def reachable_from(lines: Sequence[str], version: str) -> tuple[str, ...]:
    """Return the release lines from which an upgrade to `version` is allowed: the line of `version` and the one before.

    Empty if the component lists no lines, so that any upgrade is allowed. A version whose line is not listed is reached from that
    line only.
    """
    if not lines:
        return ()
    own = ".".join(str(number) for number in numbers(version)[:2])
    before = lines[lines.index(own) - 1 : lines.index(own)] if own in lines and lines.index(own) else ()
    return (*before, own)


def may_upgrade(installed: str, reachable: Sequence[str]) -> bool:
    """Return True if the installed version belongs to one of the release lines `reachable`, or if that is empty (no rule)."""
    return not reachable or any(numbers(installed)[:2] == numbers(line)[:2] for line in reachable)


def check(spec: ClusterSpec, catalog: Catalog) -> tuple[Issue, ...]:
    """Return all errors and warnings of the compatibility rules for a spec and its releases, errors first.

    Raises:
        SpecErrors: releases cannot be resolved; the exception also has the errors that the rules find.
    """
    releases, errors = _attempt(spec, catalog)
    issues = compat.check(spec, map(_planned, releases))
    if errors:
        written = {issue.path for issue in issues if issue.severity == "error"}
        # an override's own error says it already
        errors = [error for error in errors if error.path.replace("catalog.", "overrides.", 1) not in written]
        errors += [issue.as_error() for issue in issues if issue.severity == "error"]
        raise SpecErrors(f"releases of {spec.name}", cut(errors))
    return issues


def further_errors(errors: SpecErrors, catalog: Catalog) -> tuple[Issue, ...]:
    """Return the errors that compatibility rules find in the valid sections of a spec that could not be loaded."""
    spec = errors.sound
    if not isinstance(spec, ClusterSpec):
        return ()
    # what is planned may depend on a broken section; keys of overrides can still be compared with their charts
    releases: tuple[compat.ReleaseFacts, ...] = ()
    rules = tuple(name for name in compat.RULES if name not in _OF_OVERRIDES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # pydantic warns of a broken section that it writes out
            if "overrides" not in errors.broken:
                releases, rules = tuple(map(_planned, _attempt(spec, catalog)[0])), tuple(compat.RULES)
    except (*compat.USES_BROKEN, UserWarning):
        pass
    issues = compat.check_sound(spec, releases, rules)
    if not releases:
        issues += compat.check_sound(spec, _overridden(spec, catalog), _OF_OVERRIDES)
    return tuple(issue for issue in issues if issue.severity == "error")


_OF_OVERRIDES = ("P13", "P33")
"""Rules that need no more than the overrides: their versions and tags are exact, and their values fit the schemas of the charts."""


def _overridden(spec: ClusterSpec, catalog: Catalog) -> Iterator[compat.ReleaseFacts]:
    """Yield a release for each component that a broken spec overrides, with the values of the override alone."""
    for name, override in spec.overrides.items():
        if component := catalog.components.get(name):
            version, schema = override.version or component.version or "", chart_schema(name)
            yield compat.ReleaseFacts(
                id=name,
                version=version,
                from_manifest=bool(component.manifest),
                values=override.values,
                schema=schema.values if schema else {},
                schema_source=schema.source if schema else "",
                is_pinned=schema is None or version in schema.pins,
            )


def require(spec: ClusterSpec, catalog: Catalog) -> tuple[Issue, ...]:
    """Return the warnings of the compatibility rules for a spec.

    Raises:
        SpecErrors: a rule found an error, or the releases cannot be resolved; the exception holds all errors.
    """
    issues = check(spec, catalog)
    errors = [issue.as_error() for issue in issues if issue.severity == "error"]
    if errors:
        raise SpecErrors(spec.name, errors)
    return issues


def unverified_values(release: PlannedRelease) -> tuple[str, ...]:
    """Return the dotted keys of values that no schema of the chart knows, so that nothing has checked their names.

    They are keys of the spec's overrides; of a chart whose values are not public, those of the catalog too.
    """
    prefix, schema = f"spec overrides.{release.id}", chart_schema(release.component)
    every = schema is not None and schema.is_partial
    keys = dict.fromkeys(key for layer in release.provenance if every or layer.origin == prefix for key in layer.keys)
    return tuple(key for key in keys if not knows(schema.values if schema else {}, key))


def _planned(release: PlannedRelease) -> compat.ReleaseFacts:
    supported, schema = release.kubernetes, chart_schema(release.component)
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
        schema=schema.values if schema else {},
        schema_source=schema.source if schema else "",
        is_pinned=schema is None or release.version in schema.pins,
        kinds={kind: entry["spec"] for kind, entry in kind_schemas().items()},
    )
