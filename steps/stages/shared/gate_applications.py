"""Judges Argo CD Applications: those of single releases, and the root Application of a stage.

Checks in order: reconciled since the change, no error, compared with the pinned revision, synced, healthy. A root must also be at
the delivered commit and have an Application for every release. Health counts only after all other checks, because Argo CD reports
`Healthy` for kinds without a health check (see `steps/docs/facts/argo.md`, Application status).
"""

from collections.abc import Callable, Iterable, Sequence

from steps.contract.objects.charts import Application, FailedResource, Release, ReleaseState, RootApplication, RootState, Trouble
from steps.contract.verdict import FailureClass, Status
from steps.stages.shared import causes, gate_application_health
from steps.stages.shared.finding import Finding, fail, unknown

SKEW = 1.0
"""Seconds by which the clocks of two API servers may differ; stage os_prep keeps hosts within half a second."""
CHILD = "Application"
RETRYING = "Retrying attempt #"
"""Text in the message of a sync that failed and will be tried again."""

Judge = Callable[[ReleaseState, Release, str], Finding | None]
"""Function that returns the problem of one release; it gets state, expectation, and the delivered commit."""


def check_date(changed: float, what: str) -> Finding | None:
    """Return an inconclusive finding if the time of the object's last change is unknown.

    Without that time, nothing shows that the status is about the newest spec.
    """
    if changed:
        return None
    expected, step = "managedFields or a creation time to compare with", "read the object's metadata: something strips it"
    return unknown(FailureClass.APPLY, f"{what} does not tell when it was last changed", expected, step)


# ---- one release ---------------------------------------------------------------------------------------------------------------


def of_release(state: ReleaseState, want: Release, commit: str = "") -> Finding | None:
    """Return the first problem of a release's Argo CD Application; None if it is reconciled, synced and healthy as planned."""
    app = state.application
    if app is None:
        return _absent(f"{want.home}/{want.name}", f"{want.name} {want.version}")
    return (
        _pinned(app, want)
        or _reconciled(app, want.name)
        or _no_error(app, want.name, app.failures)
        or _synced(state, app, want, commit)
        or _of_helm(state, want)
        or check_date(app.changed, f"Application {want.name}")
    )


def _absent(name: str, expected: str) -> Finding:
    return fail(FailureClass.APPLY, f"no Application {name}", expected, "apply this stage again: somebody removed it")


def _pinned(app: Application, want: Release) -> Finding | None:
    """Check that the Application installs this chart, version and values, in the right project, cluster and namespace."""
    places = (
        ("chart name", app.chart, want.chart),
        ("chart repository", app.chart_repo, want.repo),
        ("project", app.project, want.project),
        ("cluster", app.server, want.server),
        ("namespace", app.namespace, want.namespace if want.server else ""),
    )
    pins = (("chart version", app.version, want.version), ("values", app.revision, want.revision))
    return _pointed(want.name, [*pins, *(place for place in places if place[2])])


def _pointed(name: str, pins: Iterable[tuple[str, str, str]]) -> Finding | None:
    """Return a failure that lists every pin (name, seen, wanted) whose value differs; None if all agree."""
    wrong = [(what, seen, wanted) for what, seen, wanted in pins if seen != wanted]
    if not wrong:
        return None
    seen_pins = ", ".join(f"{what} {seen or 'none'}" for what, seen, _ in wrong)
    expected = ", ".join(f"{what} {wanted or 'none'}" for what, _, wanted in wrong)
    step = "find who else writes this Application"
    return fail(FailureClass.COMPARISON, f"Application {name} points to {seen_pins}", expected, step)


def _of_helm(state: ReleaseState, want: Release) -> Finding | None:
    """Return a failure if Helm has taken over objects of the Application, which shows an install or upgrade by hand."""
    if not state.by_helm:
        return None
    seen = f"{', '.join(state.by_helm[:3])} of Application {want.name} also belongs to a Helm release {want.name}"
    step = f"helm -n {want.namespace} history {want.name}: find who installs it by hand; Argo CD is its only owner"
    return fail(FailureClass.COMPARISON, seen, "no Helm release beside Argo CD's Application", step)


def _reconciled(app: Application, name: str) -> Finding | None:
    if app.paused:
        seen, step = f"Application {name} is paused", "remove the annotation argocd.argoproj.io/skip-reconcile"
        return unknown(FailureClass.DEPENDENCY, seen, "Argo CD to reconcile it", step)
    if app.reconciled + SKEW >= app.changed and app.reconciled > 0:
        return None
    seen = f"Argo CD has not looked at Application {name} since its last change"
    step = "check that Argo CD's application controller runs"
    return unknown(FailureClass.DEPENDENCY, seen, "status.reconciledAt after the change", step)


def _no_error(app: Application, name: str, failures: Iterable[FailedResource]) -> Finding | None:
    """Return the failure that an error in conditions, operation or resources stands for; None if there is no error.

    If only child Applications failed, the failed operation of the root is not reported here: the children tell the cause.
    """
    # a closed sync window is a policy of the site and opens by itself, so this is no failure
    if "sync window" in app.message:
        seen, step = f"Application {name} waits: {app.message}", "wait for the window, or sync by hand"
        return unknown(FailureClass.APPLY, seen, "an open sync window", step)
    texts, failed_resources = [(condition.type, condition.message) for condition in app.conditions], tuple(failures)
    if _has_failed(app) and (failed_resources or not app.failures):
        texts += [(_source(failed), f"{failed.kind} {failed.name}: {failed.message}") for failed in failed_resources]
        texts.append(("operation", app.message))
    cause = causes.classify(causes.ARGO_CD, texts)
    if cause is None:
        return _unknown_condition(app, name)
    # Argo CD does not sync the same revision again after a failure, even with self-heal
    gave_up = app.phase in ("Failed", "Error") or any(condition.type == "SyncError" for condition in app.conditions)
    by_hand = f"; then argocd app sync {name}: Argo CD does not try this revision again" if gave_up else ""
    seen = f"Application {name}: {cause.text or 'error without a message'}"
    return fail(cause.failure_class, seen, "no error", cause.next_step + by_hand)


def _unknown_condition(app: Application, name: str) -> Finding | None:
    """Return an inconclusive finding for a condition that no rule knows, because it may be harmful; None if there is none."""
    odd = next((condition for condition in app.conditions if condition.type not in causes.HARMLESS), None)
    if odd is None:
        return None
    seen = f"Application {name} has condition {odd.type}: {odd.message or 'without a message'}"
    expected = "no condition but " + ", ".join(sorted(causes.HARMLESS))
    return unknown(FailureClass.COMPARISON, seen, expected, f"argocd app get {name}: see what this condition means")


def _has_failed(app: Application) -> bool:
    """Return True if the last sync failed. While Argo CD retries, it reports phase Running for minutes."""
    return app.phase in ("Failed", "Error") or (app.phase == "Running" and (bool(app.failures) or RETRYING in app.message))


def _source(resource: FailedResource) -> str:
    """Return the source of a failed resource's message, as `causes` names it: hook, refused or unhealthy object."""
    if resource.hook_phase:
        return "hook"
    return "resource" if resource.status == "SyncFailed" else "unhealthy"


def _synced(state: ReleaseState, app: Application, want: Release, commit: str) -> Finding | None:
    """Return a finding unless the release is synced, healthy and at the pinned version.

    The synced revision must contain the chart's version. The commit of its values may be older: Argo CD starts no sync if a new
    commit changes nothing. The last comparison must be with the delivered commit.
    """
    if commit and want.revision and app.revisions and commit not in app.revisions:
        return _moved(want.name, want.revision, app.revisions, commit)
    lists = (app.synced_revisions, app.revisions)
    # a Git source has a commit of its own, which is the only revision of a chart in Git
    version = (want.version,) if want.version else ()
    same = all(set(version) <= set(revisions) and len(revisions) > bool(version and want.revision) for revisions in lists)
    spared, counts = gate_application_health.by_kind(want), bool(want.by_quorum)
    if _is_good(app, spared) and same:
        return None
    seen = f"Application {want.name}: {_state(app)}, synced revisions {', '.join(app.synced_revisions) or 'none'}"
    seen += gate_application_health.unhealthy_clause(app, spared)
    seen += next((f"; pod {row.pod}: {row.reason} {row.message}".rstrip() for row in state.trouble if _is_runtime(row)), "")
    expected = f"Synced, Succeeded and {gate_application_health.expected_health(counts)} at {want.version or want.revision}"
    return unknown(_class_of(state, app), seen, expected, gate_application_health.next_step(app, want.name, counts))


def _is_good(app: Application, spared: gate_application_health.Spared) -> bool:
    return app.sync == "Synced" and app.phase == "Succeeded" and gate_application_health.is_good(app, spared)


def _state(app: Application) -> str:
    return f"sync {app.sync or 'none'}, phase {app.phase or 'none'}, health {app.health or 'none'}"


def _class_of(state: ReleaseState, app: Application) -> FailureClass:
    if app.phase == "Succeeded" and app.sync in ("OutOfSync", "Unknown"):
        return FailureClass.COMPARISON
    if any(map(_is_runtime, state.trouble)):
        return FailureClass.RUNTIME
    return FailureClass.HEALTH if app.sync == "Synced" else FailureClass.APPLY


def _is_runtime(trouble: Trouble) -> bool:
    return trouble.reason in causes.RUNTIME_REASONS


def _moved(name: str, revision: str, seen: Sequence[str], commit: str) -> Finding:
    compared = f"Application {name} was compared with {', '.join(seen)}"
    step = f"somebody moved {revision} in the repository: put it back, or deliver under a new revision"
    return fail(FailureClass.COMPARISON, compared, f"the commit that was delivered as {revision}: {commit}", step, final=True)


# ---- the root of a stage -------------------------------------------------------------------------------------------------------


def of_root(
    seen: RootState, want: RootApplication, releases: Iterable[tuple[ReleaseState, Release]], judge: Judge
) -> Finding | None:
    """Return the most telling problem of a stage's root Application and its releases; None if all pass.

    A fail comes before an inconclusive finding, a child Application before the root.
    """
    app, pairs = seen.application, tuple(releases)
    if app is None:
        return _absent(f"{want.home}/{want.name}", f"the root of this stage, {want.path} at {want.revision}")
    if (problem := _is_delivered(app, seen.commit, want)) is not None:
        return problem
    present = ((state, release) for state, release in pairs if state.application is not None)
    judged = {release.name: judge(state, release, seen.commit) for state, release in present}
    troubled = {name: finding for name, finding in judged.items() if finding is not None}
    failures = [failure for failure in app.failures if not (failure.kind == CHILD and failure.name in troubled)]
    findings = list(troubled.values())
    findings += filter(None, [_no_error(app, want.name, failures) or _complete(app, seen.commit, want, pairs)])
    return next((finding for finding in findings if finding.status is Status.FAIL), findings[0] if findings else None)


def _is_delivered(app: Application, commit: str, want: RootApplication) -> Finding | None:
    """Return a finding if the root Application is not as delivered; None if it is.

    It must have the planned source and project, be reconciled and comparable, and be at the delivered commit.
    """
    if not commit:
        seen = f"no run of this store has delivered {want.revision} of {want.repo} with this plan's tree"
        step = "run stage base_services, which publishes it"
        return unknown(FailureClass.DEPENDENCY, seen, "runs/RUN/delivery.json with its commit", step)
    if (problem := _pointed(want.name, _root_pins(app, want)) or _reconciled(app, want.name)) is not None:
        return problem
    # an error explains a comparison that did not happen, so it is reported before the commit
    if app.conditions and (problem := _no_error(app, want.name, ())) is not None:
        return problem
    if app.revisions and app.revisions != (commit,):
        return _moved(want.name, want.revision, app.revisions, commit)
    return None


def _root_pins(app: Application, want: RootApplication) -> list[tuple[str, str, str]]:
    """Return (name, seen, wanted) for source, project and destination: in another project a root could get more rights."""
    pins = [("repository", app.repo, want.repo), ("path", app.path.strip("/"), want.path.strip("/"))]
    places = (("project", app.project, want.project), ("cluster", app.server, want.server))
    pins += [("revision", app.revision, want.revision), *(place for place in places if place[2])]
    return [*pins, ("namespace", app.namespace, want.home)] if want.server else pins


def _complete(
    app: Application, commit: str, want: RootApplication, pairs: Sequence[tuple[ReleaseState, Release]]
) -> Finding | None:
    """Return a finding unless the root is synced and healthy at `commit` and has a child Application for every release."""
    spared = gate_application_health.by_child(release for _, release in pairs)
    counts = any(release.by_quorum for _, release in pairs)
    if not (_is_good(app, spared) and app.revisions == (commit,) and app.synced_revisions):
        seen = f"root Application {want.name}: {_state(app)}, compared with {', '.join(app.revisions) or 'nothing yet'}"
        seen += gate_application_health.unhealthy_clause(app, spared)
        expected = f"Synced, Succeeded and {gate_application_health.expected_health(counts)} at {commit}"
        step = gate_application_health.next_step(app, want.name, counts)
        return unknown(_class_of(ReleaseState(name=want.name), app), seen, expected, step)
    lacking = [release.name for state, release in pairs if state.application is None or release.name not in app.children]
    if lacking:
        seen = f"root Application {want.name} lacks {', '.join(lacking)} (it has {', '.join(app.children) or 'no Application'})"
        step = f"see {want.path}/kustomization.yaml and the site's overlay at {want.revision}"
        return fail(FailureClass.COMPARISON, seen, "an Application for every release of this stage", step)
    return check_date(app.changed, f"Application {want.name}")
