"""Whether what Argo CD does not call healthy is nodes that the quorum spares, and nothing else.

Its health of the whole does not say of what it is: Progressing is forgiven only where every resource that is not healthy is.
"""

from collections.abc import Callable, Iterable

from steps.contract.charts import Application, Release, UnhealthyResource

HEALTHY, PROGRESSING = "Healthy", "Progressing"
CHILD = "argoproj.io/Application"
SETTING = "controller.resource.health.persist"
"""Without it Argo CD 3 keeps no health of resources (gpu_stack §6.2)."""

Spared = Callable[[UnhealthyResource], bool]
"""Whether a resource may be Progressing for nodes that are short."""


def by_kind(want: Release) -> Spared:
    """Of a release: kinds that count nodes."""
    return lambda one: one.kind in want.by_quorum


def by_child(releases: Iterable[Release]) -> Spared:
    """Of a root: Applications of releases that count nodes, which are judged by themselves."""
    names = {release.name for release in releases if release.by_quorum}
    return lambda one: one.kind == CHILD and one.name in names


def is_good(app: Application, spared: Spared) -> bool:
    """Whether it is healthy, or short of nothing but nodes."""
    if app.health == PROGRESSING:
        return bool(app.unhealthy) and not _guilty(app, spared)
    return app.health == HEALTHY


def expected(counts: bool) -> str:
    """The health that is wanted, in words."""
    return f"{HEALTHY} or {PROGRESSING} for nodes that the quorum spares" if counts else HEALTHY


def why(app: Application, spared: Spared) -> str:
    """What else is not healthy, to be put behind what was seen; empty where nothing is to be said."""
    if app.unhealthy is None:
        return "; Argo CD does not tell the health of its resources" if app.health == PROGRESSING else ""
    return "".join(f"; {one.kind} {one.name} is {one.health or 'without health'}" for one in _guilty(app, spared)[:3])


def next_step(app: Application, name: str, counts: bool) -> str:
    """What to do about it."""
    if counts and app.health == PROGRESSING and app.unhealthy is None:
        return f'set {SETTING}: "true" in ConfigMap argocd-cmd-params-cm and restart the application controller'
    return f"argocd app get {name}"


def _guilty(app: Application, spared: Spared) -> list[UnhealthyResource]:
    return [one for one in app.unhealthy or () if one.health != PROGRESSING or not spared(one)]
