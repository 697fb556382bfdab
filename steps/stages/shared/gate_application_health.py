"""Judges the health of an Argo CD Application when a quorum allows some nodes to be missing.

Argo CD reports one health for the whole Application. `Progressing` is accepted only if every resource that is not healthy is one
that counts nodes.
"""

from collections.abc import Callable, Iterable

from steps.contract.objects.charts import Application, Release, UnhealthyResource

HEALTHY, PROGRESSING = "Healthy", "Progressing"
CHILD = "argoproj.io/Application"
SETTING = "controller.resource.health.persist"
"""Setting of Argo CD that stores the health of each resource; off by default since 3.0 (Argo CD's upgrade notes 2.14 to 3.0)."""

Spared = Callable[[UnhealthyResource], bool]
"""Predicate: may this resource be `Progressing` because nodes within the quorum are missing?"""


def by_kind(want: Release) -> Spared:
    """Return the predicate for one release: resources of the kinds that count nodes may be `Progressing`."""
    return lambda resource: resource.kind in want.by_quorum


def by_child(releases: Iterable[Release]) -> Spared:
    """Return the predicate for a root Application: children of releases that count nodes may be `Progressing`.

    Each child is judged by itself as well.
    """
    names = {release.name for release in releases if release.by_quorum}
    return lambda resource: resource.kind == CHILD and resource.name in names


def is_good(app: Application, spared: Spared) -> bool:
    """Return True if the Application is healthy, or if every unhealthy resource may be `Progressing` because of missing nodes."""
    if app.health == PROGRESSING:
        return bool(app.unhealthy) and not _guilty(app, spared)
    return app.health == HEALTHY


def expected_health(counts: bool) -> str:
    """Return the words for the health that is accepted; `counts`: the release counts nodes, so `Progressing` may be accepted."""
    return f"{HEALTHY} or {PROGRESSING} for nodes that the quorum spares" if counts else HEALTHY


def unhealthy_clause(app: Application, spared: Spared) -> str:
    """Return the resources that are not healthy as a clause for a verdict's `seen`; empty if there is nothing to add."""
    if app.unhealthy is None:
        return "; Argo CD does not tell the health of its resources" if app.health == PROGRESSING else ""
    return "".join(
        f"; {resource.kind} {resource.name} is {resource.health or 'without health'}" for resource in _guilty(app, spared)[:3]
    )


def next_step(app: Application, name: str, counts: bool) -> str:
    """Return the next step for an Application whose health is not accepted."""
    if counts and app.health == PROGRESSING and app.unhealthy is None:
        return f'set {SETTING}: "true" in ConfigMap argocd-cmd-params-cm and restart the application controller'
    return f"argocd app get {name}"


def _guilty(app: Application, spared: Spared) -> list[UnhealthyResource]:
    return [resource for resource in app.unhealthy or () if resource.health != PROGRESSING or not spared(resource)]
