"""Judges Helm releases: several signals must agree, because none of them alone proves that a release runs.

For helm-controller: HelmChart claimed, not failed, install Job complete and newer than the change, newest release Secret deployed
by that Job with the pinned version and the planned values, workloads settled. For Argo CD see `gate_applications`. See
`steps/docs/facts/gpu.md`, helm-controller.
"""

from collections.abc import Iterable

from steps.contract.objects.charts import (
    Chart,
    ChartsExpectation,
    ChartsObservation,
    Crd,
    InstallJob,
    Owner,
    Release,
    ReleaseState,
    Revision,
    RootApplication,
    RootState,
    Trouble,
    Workload,
)
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.shared import causes, gate_applications
from steps.stages.shared.finding import Finding, fail, unknown

JOB_SKEW = 2.0
"""Seconds by which Helm's time of a revision may be later than the end of its Job.

Helm uses the clock of the node that runs the Job's pod, within half a second of the servers' (stage os_prep). A Job's completion
time has whole seconds.
"""


def problem(
    seen: Iterable[ReleaseState],
    want: Iterable[Release],
    root: RootState | None = None,
    wanted_root: RootApplication | None = None,
    *,
    dated: bool = True,
) -> Finding | None:
    """Return the problem of the first release that is not deployed and settled, including the stage's root; None if all pass.

    With `dated` false, the caller asks `undated` itself after checks that tell more.
    """
    by_name = {state.name: state for state in seen}
    pairs = [(by_name.get(release.name, ReleaseState(name=release.name)), release) for release in want]
    if wanted_root is not None:
        return gate_applications.of_root(root or RootState(), wanted_root, pairs, _release)
    first = next((finding for state, release in pairs if (finding := _release(state, release)) is not None), None)
    return first or (undated(pairs) if dated else None)


def _release(state: ReleaseState, want: Release, commit: str = "") -> Finding | None:
    """Return the problem of one release, first of its installation, then of its workloads; None if it passes.

    `commit` is the delivered commit if a root Application installs the release.
    """
    finding = gate_applications.of_release(state, want, commit) if want.owner is Owner.ARGO_CD else _helm(state, want)
    return finding or _workloads(state, want)


# ---- helm-controller -----------------------------------------------------------------------------------------------------------


def _helm(state: ReleaseState, want: Release) -> Finding | None:
    chart, job = state.chart, state.job
    if chart is None:
        step = "apply this stage again: somebody removed it"
        return fail(FailureClass.APPLY, f"no HelmChart kube-system/{want.name}", f"{want.name} {want.version}", step)
    if (unclaimed := _claimed(chart, want)) is not None:
        return unclaimed
    # HelmChart's conditions carry no times, so only the Job's age shows which spec it installed
    if job is not None and job.created + gate_applications.SKEW < chart.changed:
        age = f"{chart.changed - job.created:.0f} s older than the last change"
        step = "wait for helm-controller, then read its log on the servers"
        return unknown(
            FailureClass.APPLY, f"install Job of {want.name} ({job.uid[:8]}) is {age}", "a Job made for this change", step
        )
    return (
        _installed(state, chart, want)
        or _deployed(state.newest, want)
        or _drifted(state, want)
        or gate_applications.check_date(chart.changed, f"HelmChart {want.name}")
    )


def _claimed(chart: Chart, want: Release) -> Finding | None:
    if chart.version != want.version:
        step = "find who else writes this HelmChart: one owner per release"
        return fail(FailureClass.COMPARISON, f"HelmChart {want.name} has version {chart.version or 'none'}", want.version, step)
    # helm-controller ignores a chart with this annotation for ever, so waiting does not help
    if chart.opted_out:
        seen, step = f"HelmChart {want.name} is marked unmanaged", "remove the annotation helmcharts.helm.cattle.io/unmanaged"
        return fail(FailureClass.DEPENDENCY, seen, "helm-controller to own it", step, final=True)
    if not chart.managed:
        seen = f"helm-controller has not claimed HelmChart {want.name}"
        step = "check that RKE2's helm-controller runs (it watches kube-system only)"
        return unknown(FailureClass.DEPENDENCY, seen, "annotation helmcharts.cattle.io/managed-by", step)
    return None


def _installed(state: ReleaseState, chart: Chart, want: Release) -> Finding | None:
    job, expected = state.job, "the install Job to complete"
    failure = chart.failed or (job.failed if job else "")
    cause = _cause(state, failure)
    if failure:
        step = f"{cause.next_step} (kubectl -n kube-system logs job/helm-install-{want.name})"
        return fail(cause.failure_class, f"installing {want.name} failed: {cause.text}", expected, step, final=True)
    if job is None or not job.complete:
        seen = f"install Job of {want.name} {'is not complete' if job else 'does not exist yet'}"
        return unknown(cause.failure_class, seen + (f": {cause.text}" if cause.text else ""), expected, cause.next_step)
    return None


def install_texts(state: ReleaseState) -> list[str]:
    """Return what a release's installer said: the Job's log and events, Helm's record of a failure, Argo CD's messages.

    The Job's pod can be deleted together with its log, so Helm's record is read too.
    """
    job, newest, application = state.job, state.newest, state.application
    texts = [job.log, *job.events] if job else []
    texts += [newest.description] if newest and newest.status == "failed" else []
    if application is not None:
        texts += [application.message, *(entry.message for entry in application.conditions)]
        texts += [failure.message for failure in application.failures]
    return texts


def _cause(state: ReleaseState, condition: str) -> causes.Cause:
    """Return why an installation failed, from what the installer said, or else from the chart's condition."""
    known = causes.classify(causes.HELM, [("", text) for text in (*install_texts(state), condition)])
    if known is not None and known.text != condition:
        return known
    # no rule knows the log, or only the condition, which tells nothing: its last line is quoted, so that it is not lost
    lines = [line.strip() for line in (state.job.log if state.job else "").splitlines() if line.strip()]
    text = f"{condition}; the last line of its log: {causes.short(lines[-1])}" if condition and lines else condition
    failure_class, step = (known.failure_class, known.next_step) if known else (FailureClass.APPLY, "read the install Job's log")
    return causes.Cause(failure_class, step, text)


def _deployed(newest: Revision | None, want: Release) -> Finding | None:
    history = f"helm -n {want.namespace} history {want.name}"
    if newest is None or newest.status.startswith("pending") or not newest.chart_version:
        state = "none" if newest is None else f"revision {newest.number} is {newest.status or 'of no known status'}"
        seen = f"release Secret of {want.name} in {want.namespace}: {state}"
        return unknown(FailureClass.APPLY, seen, f"a deployed revision of chart {want.version}", history)
    if newest.status != "deployed":
        seen = f"newest revision {newest.number} of {want.name} is {newest.status} {newest.description}".rstrip()
        return fail(FailureClass.APPLY, seen, "deployed", f"{history}, then correct and apply again", final=True)
    # some charts are published with a leading `v` in their version, some without
    if newest.chart_version.removeprefix("v") != want.version.removeprefix("v"):
        seen = f"deployed revision {newest.number} of {want.name} is chart {newest.chart_version}"
        return fail(FailureClass.COMPARISON, seen, want.version, "find who else installs this release: one owner per release")
    return None


def _drifted(state: ReleaseState, want: Release) -> Finding | None:
    """Return a failure if somebody changed the release since the install Job, or if it has other values than planned."""
    job, newest = state.job, state.newest
    # the checks before ask for both
    assert job is not None
    assert newest is not None
    again = f"then kubectl -n kube-system delete job helm-install-{want.name}, so that the planned release is installed again"
    if job.completed and newest.deployed > job.completed + JOB_SKEW:
        return _by_hand(job, newest, want, again)
    # a first revision is no upgrade, so other findings tell more
    if newest.number > 1 and (unknown_date := undated([(state, want)])) is not None:
        return unknown_date
    values = newest.values or {}
    odd = sorted(key for key in want.values.keys() | values.keys() if key not in want.values or not values.get(key))
    if odd and newest.values is not None:
        seen = f"revision {newest.number} of {want.name} has other values than planned in {', '.join(odd)}"
        step = f"see helm -n {want.namespace} get values {want.name} and HelmChartConfig kube-system/{want.name}"
        step += f"; write what shall stay into overrides of the spec, {again}"
        return fail(FailureClass.COMPARISON, seen, "the values of the plan alone", step, final=True)
    return None


def _by_hand(job: InstallJob, newest: Revision, want: Release, again: str) -> Finding:
    by = f" by {newest.manager}" if newest.manager else ""
    age = f"{newest.deployed - job.completed:.0f} s after its install Job ({job.uid[:8]}) ended"
    seen = f"revision {newest.number} of {want.name} was deployed{by} {age}: somebody changed the release by hand"
    step = f"helm -n {want.namespace} history {want.name}: find who else installs this release (one owner per release), {again}"
    return fail(FailureClass.COMPARISON, seen, "the revision that the install Job made", step, final=True)


def undated(pairs: Iterable[tuple[ReleaseState, Release]]) -> Finding | None:
    """Return an inconclusive finding if a release does not show whether it is what its install Job made; None if all do."""
    for state, release in pairs:
        if state.job is None or state.newest is None or release.owner is Owner.ARGO_CD:
            continue
        facts = {"when its install Job ended": state.job.completed, "when it was deployed": state.newest.deployed}
        facts["its values"] = state.newest.values is not None
        lacking = next((what for what, known in facts.items() if not known), "")
        if lacking:
            seen = f"revision {state.newest.number} of {release.name} does not tell {lacking}"
            step = f"helm -n {release.namespace} history {release.name}: see whether somebody changed it since the install Job"
            return unknown(FailureClass.COMPARISON, seen, "a revision that the install Job made, with the planned values", step)
    return None


# ---- workloads -----------------------------------------------------------------------------------------------------------------


def _workloads(state: ReleaseState, want: Release) -> Finding | None:
    if len(state.workloads) < want.workloads:
        seen = f"{len(state.workloads)} workloads of {want.name} in {want.namespace}"
        step = "see what the chart rendered: an install without workloads proves nothing"
        return unknown(FailureClass.HEALTH, seen, f"at least {want.workloads}", step)
    late = next((entry for entry in state.workloads if not entry.settled(want.spare)), None)
    return judge_unsettled(late, state.trouble, want.namespace) if late else None


def judge_unsettled(workload: Workload, trouble: Iterable[Trouble], namespace: str) -> Finding:
    """Return the finding on a workload that is not ready: fail if one of its pods fails, inconclusive if its pods are starting."""
    bad = next(
        (entry for entry in trouble if entry.pod.startswith(f"{workload.name}-") and entry.reason in causes.RUNTIME_REASONS), None
    )
    seen = f"{workload.kind} {namespace}/{workload.name}: {workload.ready} of {workload.desired} ready, {workload.updated} updated"
    seen += "" if workload.current else ", newest spec not yet seen by its controller"
    expected = "all pods of the newest spec ready"
    if bad is None:
        return unknown(FailureClass.HEALTH, seen, expected, f"kubectl -n {namespace} get pods")
    failure = f"{seen}; pod {bad.pod}{f' on {bad.node}' if bad.node else ''}: {bad.reason} {bad.message}".rstrip()
    return fail(FailureClass.RUNTIME, failure, expected, f"kubectl -n {namespace} describe pod {bad.pod}")


def with_charts(gate: str, seen: ChartsObservation, want: ChartsExpectation) -> Verdict:
    """Check that the charts are deployed and their CRDs established, so that resources of these kinds can be applied."""
    finding = problem(seen.releases, want.releases, seen.root_app, want.root_app) or missing_crd(seen.crds, want.crds)
    names = ", ".join(release.name for release in want.releases)
    return finding.verdict(gate) if finding else passed(gate, f"{names} deployed, {count(len(want.crds), 'CRD')} established")


def missing_crd(seen: Iterable[Crd], want: Iterable[str]) -> Finding | None:
    """Return an inconclusive finding for the first wanted CRD that the API server does not serve; None if all are established."""
    by_name = {crd.name: crd for crd in seen}
    for name in want:
        crd = by_name.get(name)
        if crd is None or not crd.established:
            state = "does not exist" if crd is None else f"is not established {crd.message}".rstrip()
            step = "see whether its chart brings CRDs (crds.enabled, upgradeCRDs), and who else owns the name"
            return unknown(FailureClass.DEPENDENCY, f"CRD {name} {state}", "condition Established", step)
    return None
