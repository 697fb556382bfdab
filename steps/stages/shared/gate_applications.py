"""Judges Argo CD Applications: those of single releases, and the root Application of a stage.

Checks in order: reconciled since the change, no error, compared with the pinned revision, synced, healthy. A root must also be at
the delivered commit and have an Application for every release. Health counts only after all other checks, because Argo CD reports
`Healthy` for kinds without a health check (see `steps/docs/facts/argo.md`, Application status).
"""

from collections.abc import Callable, Iterable, Sequence

from steps.contract.charts import Application, FailedResource, Release, ReleaseState, RootApplication, RootState, Trouble
from steps.contract.verdict import FailureClass, Status, Verdict, failed, inconclusive
from steps.stages.shared import causes, gate_application_health

SKEW = 1.0
"""Seconds by which the clocks of two API servers may differ; stage os_prep keeps hosts within half a second."""
CHILD = "Application"
RETRYING = "Retrying attempt #"
"""Text in the message of a sync that failed and will be tried again."""

Judge = Callable[[str, ReleaseState, Release, str], Verdict | None]
"""Function that returns the problem of one release; it gets gate id, state, expectation, and the delivered commit."""


def check_date(gate: str, changed: float, what: str) -> Verdict | None:
    """Return an inconclusive verdict if the time of the object's last change is unknown.

    Without that time, nothing shows that the status is about the newest spec.
    """
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
    """Return the problem of a release's Application; None if it passes."""
    app = state.application
    if app is None:
        return _absent(gate, f"{want.home}/{want.name}", f"{want.name} {want.version}")
    return (
        _pinned(gate, app, want)
        or _reconciled(gate, app, want.name)
        or _no_error(gate, app, want.name, app.failures)
        or _synced(gate, state, app, want, commit)
        or check_date(gate, app.changed, f"Application {want.name}")
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
    """Check that the Application installs this chart, version and values, in the right project, cluster and namespace."""
    pins = [
        ("chart version", app.version, want.version),
        ("values", app.revision, want.revision),
        *((what, seen, wanted) for what, seen, wanted in _places(app, want) if wanted),
    ]
    return _pointed(gate, want.name, pins)


def _pointed(gate: str, name: str, pins: Iterable[tuple[str, str, str]]) -> Verdict | None:
    """Return a failed verdict that lists every pin whose value differs; None if all agree."""
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
    """Return (name, seen, wanted) for chart, repository, project, cluster and namespace."""
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
    """Return the cause of an error in conditions, operation or resources; None if there is none.

    If only child Applications failed, the failed operation of the root is not reported here: the children tell the cause.
    """
    # a closed sync window is a policy of the site and opens by itself, so this is no failure
    if "sync window" in app.message:
        return inconclusive(
            gate,
            seen=f"Application {name} waits: {app.message}",
            expected="an open sync window",
            next_step="wait for the window, or sync by hand",
            failure_class=FailureClass.APPLY,
        )
    texts, failed_resources = [(one.type, one.message) for one in app.conditions], tuple(failures)
    # a root that failed only because of its children says nothing of its own
    if _has_failed(app) and (failed_resources or not app.failures):
        texts += [(_source(one), f"{one.kind} {one.name}: {one.message}") for one in failed_resources]
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
    """Return inconclusive for a condition that no rule knows: it cannot be assumed to be harmless."""
    odd = next((condition for condition in app.conditions if condition.type not in causes.HARMLESS), None)
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
    """Return True if the last sync failed for good.

    Argo CD does not sync the same revision again after a failure, even with self-heal.
    """
    return app.phase in ("Failed", "Error") or any(condition.type == "SyncError" for condition in app.conditions)


def _by_hand(name: str) -> str:
    return f"argocd app sync {name}: Argo CD does not try this revision again"


def _has_failed(app: Application) -> bool:
    """Return True if the last sync failed. While Argo CD retries, it reports phase Running for minutes."""
    return app.phase in ("Failed", "Error") or (app.phase == "Running" and (bool(app.failures) or RETRYING in app.message))


def _source(resource: FailedResource) -> str:
    """Return the source of a resource's message for `causes`: hook, refused object, or object that did not become healthy."""
    if resource.hook_phase:
        return "hook"
    return "resource" if resource.status == "SyncFailed" else "unhealthy"


def _synced(gate: str, state: ReleaseState, app: Application, want: Release, commit: str) -> Verdict | None:
    """Return a verdict if the release is not synced, healthy and at the pinned version; None if it is.

    The synced revision must contain the chart's version. The commit of its values may be older: Argo CD starts no sync if a new
    commit changes nothing. The last comparison must be with the delivered commit.
    """
    if commit and want.revision and app.revisions and commit not in app.revisions:
        return _moved(gate, want.name, want.revision, app.revisions, commit)
    lists = (app.synced_revisions, app.revisions)
    same = all(want.version in one and len(one) > bool(want.revision) for one in lists)  # a Git source has a commit of its own
    spared, counts = gate_application_health.by_kind(want), bool(want.by_quorum)
    if _is_good(app, spared) and same:
        return None
    seen = f"Application {want.name}: {_said(app)}, synced revisions {', '.join(app.synced_revisions) or 'none'}"
    seen += gate_application_health.unhealthy_clause(app, spared)
    seen += next((f"; pod {one.pod}: {one.reason} {one.message}".rstrip() for one in state.trouble if _is_runtime(one)), "")
    return inconclusive(
        gate,
        seen=seen,
        expected=f"Synced, Succeeded and {gate_application_health.expected_health(counts)} at {want.version}",
        next_step=gate_application_health.next_step(app, want.name, counts),
        failure_class=_class_of(state, app),
    )


def _is_good(app: Application, spared: gate_application_health.Spared) -> bool:
    return app.sync == "Synced" and app.phase == "Succeeded" and gate_application_health.is_good(app, spared)


def _said(app: Application) -> str:
    return f"sync {app.sync or 'none'}, phase {app.phase or 'none'}, health {app.health or 'none'}"


def _class_of(state: ReleaseState, app: Application) -> FailureClass:
    if app.phase == "Succeeded" and app.sync in ("OutOfSync", "Unknown"):
        return FailureClass.COMPARISON
    if any(map(_is_runtime, state.trouble)):
        return FailureClass.RUNTIME
    return FailureClass.HEALTH if app.sync == "Synced" else FailureClass.APPLY


def _is_runtime(trouble: Trouble) -> bool:
    return trouble.reason in causes.RUNTIME_REASONS


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
    """Return the problem of a stage's root Application and its releases; None if all pass. Child Applications come first."""
    app, pairs = seen.application, tuple(releases)
    if app is None:
        return _absent(gate, f"{want.home}/{want.name}", f"the root of this stage, {want.path} at {want.revision}")
    if (problem := _is_delivered(gate, app, seen.commit, want)) is not None:
        return problem
    present = ((state, release) for state, release in pairs if state.application is not None)
    judged = {release.name: judge(gate, state, release, seen.commit) for state, release in present}
    troubled = {name: verdict for name, verdict in judged.items() if verdict is not None}
    failures = [failure for failure in app.failures if not (failure.kind == CHILD and failure.name in troubled)]
    verdicts = list(troubled.values())
    verdicts += filter(None, [_no_error(gate, app, want.name, failures) or _complete(gate, app, seen.commit, want, pairs)])
    return next((verdict for verdict in verdicts if verdict.status is Status.FAIL), verdicts[0] if verdicts else None)


def _is_delivered(gate: str, app: Application, commit: str, want: RootApplication) -> Verdict | None:
    """Return a verdict if the root is not ours, not reconciled, not comparable, or at another commit than the delivered one."""
    if not commit:
        return inconclusive(
            gate,
            seen=f"no run of this store has delivered {want.revision} of {want.repo} with this plan's tree",
            expected="runs/RUN/delivery.json with its commit",
            next_step="run stage base_services, which publishes it",
            failure_class=FailureClass.DEPENDENCY,
        )
    if (problem := _pointed(gate, want.name, _root_pins(app, want))) is not None:
        return problem
    if (problem := _reconciled(gate, app, want.name)) is not None:
        return problem
    # an error explains a comparison that did not happen, so it is told before the commit
    if app.conditions and (problem := _no_error(gate, app, want.name, ())) is not None:
        return problem
    if app.revisions and app.revisions != (commit,):
        return _moved(gate, want.name, want.revision, app.revisions, commit)
    return None


def _root_pins(app: Application, want: RootApplication) -> list[tuple[str, str, str]]:
    """Return (name, seen, wanted) for source, project and destination: in another project a root could get more rights."""
    pins = [("repository", app.repo, want.repo), ("path", app.path.strip("/"), want.path.strip("/"))]
    pins += [("revision", app.revision, want.revision)]
    places = (("project", app.project, want.project), ("cluster", app.server, want.server))
    pins += [(what, seen, wanted) for what, seen, wanted in places if wanted]
    return [*pins, ("namespace", app.namespace, want.home)] if want.server else pins


def _complete(
    gate: str, app: Application, commit: str, want: RootApplication, pairs: Sequence[tuple[ReleaseState, Release]]
) -> Verdict | None:
    """Return a verdict if the root is not synced and healthy at the commit, or lacks a release; None if it is complete."""
    spared = gate_application_health.by_child(release for _, release in pairs)
    counts = any(release.by_quorum for _, release in pairs)
    if not (_is_good(app, spared) and app.revisions == (commit,) and app.synced_revisions):
        return inconclusive(
            gate,
            seen=f"root Application {want.name}: {_said(app)}, compared with {', '.join(app.revisions) or 'nothing yet'}"
            + gate_application_health.unhealthy_clause(app, spared),
            expected=f"Synced, Succeeded and {gate_application_health.expected_health(counts)} at {commit}",
            next_step=gate_application_health.next_step(app, want.name, counts),
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
    return check_date(gate, app.changed, f"Application {want.name}")
