"""Whether Argo CD brought what was delivered: each release's Application, and the root of its stage (gpu_stack §6.2, §6.3).

Reconciled since the change → no error → compared with the pinned revision → synced → healthy. A root besides: at the delivered
commit, and with an Application for every release. Argo CD's own health counts for nothing before all of that.
"""

from collections.abc import Callable, Iterable, Sequence

from steps.contract.charts import Application, FailedResource, Release, ReleaseState, RootApplication, RootState, Trouble
from steps.contract.verdict import FailureClass, Status, Verdict, failed, inconclusive
from steps.gates import application_health, causes

SKEW = 1.0
"""Seconds by which two API servers' clocks may differ (os_prep holds them within half a second)."""
CHILD = "Application"
RETRYING = "Retrying attempt #"
"""In the message of a sync that failed and will be tried again."""

Judge = Callable[[str, ReleaseState, Release, str], Verdict | None]
"""What keeps one release from passing, by gate id, what is seen, what is wanted, and the delivered commit."""


def dated(gate: str, changed: float, what: str) -> Verdict | None:
    """Without the time of the last change nothing shows that all the rest is about it."""
    if changed:
        return None
    return inconclusive(
        gate,
        seen=f"{what} does not tell when it was last changed",
        expected="managedFields or a creation time to compare with",
        next_step="read the object's metadata: something strips it",
        failure_class=FailureClass.APPLY,
    )


# ---- one release ---------------------------------------------------------------------------------------------------------------


def of_release(gate: str, state: ReleaseState, want: Release, commit: str = "") -> Verdict | None:
    """What keeps a release's Application from passing; None when nothing does."""
    app = state.application
    if app is None:
        return _absent(gate, f"{want.home}/{want.name}", f"{want.name} {want.version}")
    return (
        _pinned(gate, app, want)
        or _reconciled(gate, app, want.name)
        or _no_error(gate, app, want.name, app.failures)
        or _synced(gate, state, app, want, commit)
        or dated(gate, app.changed, f"Application {want.name}")
    )


def _absent(gate: str, name: str, expected: str) -> Verdict:
    return failed(
        gate,
        FailureClass.APPLY,
        seen=f"no Application {name}",
        expected=expected,
        next_step="apply this stage again: somebody removed it",
    )


def _pinned(gate: str, app: Application, want: Release) -> Verdict | None:
    """Whether it brings this chart, in this version and with these values, in our project to our cluster."""
    pins = [
        ("chart version", app.version, want.version),
        ("values", app.revision, want.revision),
        *((what, seen, wanted) for what, seen, wanted in _places(app, want) if wanted),
    ]
    return _pointed(gate, want.name, pins)


def _pointed(gate: str, name: str, pins: Iterable[tuple[str, str, str]]) -> Verdict | None:
    """What is seen that is not what is wanted, by its name."""
    wrong = [(what, seen, wanted) for what, seen, wanted in pins if seen != wanted]
    if not wrong:
        return None
    return failed(
        gate,
        FailureClass.COMPARISON,
        seen=f"Application {name} points to " + ", ".join(f"{what} {seen or 'none'}" for what, seen, _ in wrong),
        expected=", ".join(f"{what} {wanted or 'none'}" for what, _, wanted in wrong),
        next_step="find who else writes this Application",
    )


def _places(app: Application, want: Release) -> tuple[tuple[str, str, str], ...]:
    """What the chart is, where it is from, and where it goes: seen and wanted."""
    return (
        ("chart name", app.chart, want.chart),
        ("chart repository", app.chart_repo, want.repo),
        ("project", app.project, want.project),
        ("cluster", app.server, want.server),
        ("namespace", app.namespace, want.namespace if want.server else ""),
    )


def _reconciled(gate: str, app: Application, name: str) -> Verdict | None:
    if app.reconciled + SKEW >= app.changed and app.reconciled > 0:
        return None
    return inconclusive(
        gate,
        seen=f"Argo CD has not looked at Application {name} since its last change",
        expected="status.reconciledAt after the change",
        next_step="check that Argo CD's application controller runs",
        failure_class=FailureClass.DEPENDENCY,
    )


def _no_error(gate: str, app: Application, name: str, failures: Iterable[FailedResource]) -> Verdict | None:
    """Conditions, and what failed in the last sync; an operation that failed by nothing but others' failures is not told here."""
    if "sync window" in app.message:
        return inconclusive(
            gate,
            seen=f"Application {name} waits: {app.message}",
            expected="an open sync window",
            next_step="wait for the window, or sync by hand",
            failure_class=FailureClass.APPLY,
        )
    texts, told = [(one.type, one.message) for one in app.conditions], tuple(failures)
    if _has_failed(app) and (told or not app.failures):
        texts += [(_source(one), f"{one.kind} {one.name}: {one.message}") for one in told]
        texts.append(("operation", app.message))
    cause = causes.classify(causes.ARGO_CD, texts)
    if cause is None:
        return _unknown(gate, app, name)
    return failed(
        gate,
        cause.failure_class,
        seen=f"Application {name}: {cause.text or 'error without a message'}",
        expected="no error",
        next_step=cause.next_step + (f"; then {_by_hand(name)}" if _given_up(app) else ""),
    )


def _unknown(gate: str, app: Application, name: str) -> Verdict | None:
    """A condition that no rule knows is not known to be harmless."""
    odd = next((one for one in app.conditions if one.type not in causes.HARMLESS), None)
    if odd is None:
        return None
    return inconclusive(
        gate,
        seen=f"Application {name} has condition {odd.type}: {odd.message or 'without a message'}",
        expected="no condition but " + ", ".join(sorted(causes.HARMLESS)),
        next_step=f"argocd app get {name}: see what this condition means",
        failure_class=FailureClass.COMPARISON,
    )


def _given_up(app: Application) -> bool:
    """Whether the last sync failed for good: what failed is not synced again at the same revision, self-heal or not."""
    return app.phase in ("Failed", "Error") or any(one.type == "SyncError" for one in app.conditions)


def _by_hand(name: str) -> str:
    return f"argocd app sync {name}: Argo CD does not try this revision again"


def _has_failed(app: Application) -> bool:
    """Whether the last sync failed: for minutes Argo CD calls a sync that it will try again Running."""
    return app.phase in ("Failed", "Error") or (app.phase == "Running" and (bool(app.failures) or RETRYING in app.message))


def _source(one: FailedResource) -> str:
    """Where a resource's message is from: a hook, an object that was refused, or one that was applied and did not get healthy."""
    if one.hook_phase:
        return "hook"
    return "resource" if one.status == "SyncFailed" else "unhealthy"


def _synced(gate: str, state: ReleaseState, app: Application, want: Release, commit: str) -> Verdict | None:
    """The chart's version must be what was synced. The commit of its values need not: Argo CD starts no sync where a new commit
    changes nothing, but it must be what the live state was last compared with."""
    if commit and want.revision and app.revisions and commit not in app.revisions:
        return _moved(gate, want.name, want.revision, app.revisions, commit)
    lists = (app.synced_revisions, app.revisions)
    same = all(want.version in one and len(one) > bool(want.revision) for one in lists)  # a Git source has a commit of its own
    spared, counts = application_health.by_kind(want), bool(want.by_quorum)
    if _is_good(app, spared) and same:
        return None
    seen = f"Application {want.name}: {_said(app)}, synced revisions {', '.join(app.synced_revisions) or 'none'}"
    seen += application_health.why(app, spared)
    seen += next((f"; pod {one.pod}: {one.reason} {one.message}".rstrip() for one in state.trouble if _is_runtime(one)), "")
    return inconclusive(
        gate,
        seen=seen,
        expected=f"Synced, Succeeded and {application_health.expected(counts)} at {want.version}",
        next_step=application_health.next_step(app, want.name, counts),
        failure_class=_class_of(state, app),
    )


def _is_good(app: Application, spared: application_health.Spared) -> bool:
    return app.sync == "Synced" and app.phase == "Succeeded" and application_health.is_good(app, spared)


def _said(app: Application) -> str:
    return f"sync {app.sync or 'none'}, phase {app.phase or 'none'}, health {app.health or 'none'}"


def _class_of(state: ReleaseState, app: Application) -> FailureClass:
    if app.phase == "Succeeded" and app.sync in ("OutOfSync", "Unknown"):
        return FailureClass.COMPARISON
    if any(map(_is_runtime, state.trouble)):
        return FailureClass.RUNTIME
    return FailureClass.HEALTH if app.sync == "Synced" else FailureClass.APPLY


def _is_runtime(one: Trouble) -> bool:
    return one.reason in causes.RUNTIME_REASONS


def _moved(gate: str, name: str, revision: str, seen: Sequence[str], commit: str) -> Verdict:
    return failed(
        gate,
        FailureClass.COMPARISON,
        seen=f"Application {name} was compared with {', '.join(seen)}",
        expected=f"the commit that was delivered as {revision}: {commit}",
        next_step=f"somebody moved {revision} in the repository: put it back, or deliver under a new revision",
        final=True,
    )


# ---- the root of a stage -------------------------------------------------------------------------------------------------------


def of_root(
    gate: str, seen: RootState, want: RootApplication, releases: Iterable[tuple[ReleaseState, Release]], judge: Judge
) -> Verdict | None:
    """What keeps a stage's root and its releases from passing. What a child says comes before what the root says of it."""
    app, pairs = seen.application, tuple(releases)
    if app is None:
        return _absent(gate, f"{want.home}/{want.name}", f"the root of this stage, {want.path} at {want.revision}")
    if (found := _is_delivered(gate, app, seen.commit, want)) is not None:
        return found
    present = ((state, release) for state, release in pairs if state.application is not None)
    judged = {release.name: judge(gate, state, release, seen.commit) for state, release in present}
    troubled = {name: verdict for name, verdict in judged.items() if verdict is not None}
    failures = [one for one in app.failures if not (one.kind == CHILD and one.name in troubled)]
    said = list(troubled.values())
    said += filter(None, [_no_error(gate, app, want.name, failures) or _complete(gate, app, seen.commit, want, pairs)])
    return next((verdict for verdict in said if verdict.status is Status.FAIL), said[0] if said else None)


def _is_delivered(gate: str, app: Application, commit: str, want: RootApplication) -> Verdict | None:
    """Whether the root is ours, was looked at, can be compared, and was compared with what was delivered."""
    if not commit:
        return inconclusive(
            gate,
            seen=f"no run of this store has delivered {want.revision} of {want.repo} with this plan's tree",
            expected="runs/RUN/delivery.json with its commit",
            next_step="run stage base_services, which publishes it",
            failure_class=FailureClass.DEPENDENCY,
        )
    if (found := _pointed(gate, want.name, _root_pins(app, want))) is not None:
        return found
    if (found := _reconciled(gate, app, want.name)) is not None:
        return found
    if app.conditions and (found := _no_error(gate, app, want.name, ())) is not None:
        return found
    if app.revisions and app.revisions != (commit,):
        return _moved(gate, want.name, want.revision, app.revisions, commit)
    return None


def _root_pins(app: Application, want: RootApplication) -> list[tuple[str, str, str]]:
    """What it makes its children from, and with whose rights it does so where: another project might allow it anything."""
    pins = [("repository", app.repo, want.repo), ("path", app.path.strip("/"), want.path.strip("/"))]
    pins += [("revision", app.revision, want.revision)]
    places = (("project", app.project, want.project), ("cluster", app.server, want.server))
    pins += [(what, seen, wanted) for what, seen, wanted in places if wanted]
    return [*pins, ("namespace", app.namespace, want.home)] if want.server else pins


def _complete(
    gate: str, app: Application, commit: str, want: RootApplication, pairs: Sequence[tuple[ReleaseState, Release]]
) -> Verdict | None:
    """Whether the root is synced and healthy at the commit, and brings every release."""
    spared = application_health.by_child(release for _, release in pairs)
    counts = any(release.by_quorum for _, release in pairs)
    if not (_is_good(app, spared) and app.revisions == (commit,) and app.synced_revisions):
        return inconclusive(
            gate,
            seen=f"root Application {want.name}: {_said(app)}, compared with {', '.join(app.revisions) or 'nothing yet'}"
            + application_health.why(app, spared),
            expected=f"Synced, Succeeded and {application_health.expected(counts)} at {commit}",
            next_step=application_health.next_step(app, want.name, counts),
            failure_class=_class_of(ReleaseState(name=want.name), app),
        )
    lacking = [release.name for state, release in pairs if state.application is None or release.name not in app.children]
    if lacking:
        return failed(
            gate,
            FailureClass.COMPARISON,
            seen=f"root Application {want.name} lacks {', '.join(lacking)} (it has {', '.join(app.children) or 'no Application'})",
            expected="an Application for every release of this stage",
            next_step=f"see {want.path}/kustomization.yaml and the site's overlay at {want.revision}",
        )
    return dated(gate, app.changed, f"Application {want.name}")
