"""Judges Helm releases: several signals must agree, because none of them alone proves that a release runs.

For helm-controller: HelmChart claimed, not failed, install Job complete and newer than the change, newest release Secret deployed
with the pinned version, workloads settled. For Argo CD see `gate_applications`. See `steps/docs/facts/gpu.md`, helm-controller.
"""

from collections.abc import Iterable

from steps.contract.charts import (
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
from steps.contract.plain import count
from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive, passed
from steps.stages.shared import causes, gate_applications


def problem(
    gate: str,
    seen: Iterable[ReleaseState],
    want: Iterable[Release],
    root: RootState | None = None,
    wanted_root: RootApplication | None = None,
) -> Verdict | None:
    """Return the problem of the first release that is not deployed and settled, including the stage's root; None if all pass."""
    by_name = {state.name: state for state in seen}
    pairs = [(by_name.get(release.name, ReleaseState(name=release.name)), release) for release in want]
    if wanted_root is not None:
        return gate_applications.of_root(gate, root or RootState(), wanted_root, pairs, _release)
    return next((verdict for state, release in pairs if (verdict := _release(gate, state, release)) is not None), None)


def _release(gate: str, state: ReleaseState, want: Release, commit: str = "") -> Verdict | None:
    """Return the problem of one release; None if it passes. `commit` is the delivered commit if a root installs the release."""
    verdict = gate_applications.of_release(gate, state, want, commit) if want.owner is Owner.ARGO_CD else _helm(gate, state, want)
    return verdict or _workloads(gate, state, want)


# ---- helm-controller -----------------------------------------------------------------------------------------------------------


def _helm(gate: str, state: ReleaseState, want: Release) -> Verdict | None:
    if state.chart is None:
        return failed(
            gate,
            FailureClass.APPLY,
            seen=f"no HelmChart kube-system/{want.name}",
            expected=f"{want.name} {want.version}",
            next_step="apply this stage again: somebody removed it",
        )
    return (
        _claimed(gate, state.chart, want)
        or _fresh(gate, state.chart, state.job, want)
        or _installed(gate, state, state.chart, want)
        or _deployed(gate, state.newest, want)
        or gate_applications.check_date(gate, state.chart.changed, f"HelmChart {want.name}")
    )


def _claimed(gate: str, chart: Chart, want: Release) -> Verdict | None:
    if chart.version != want.version:
        return failed(
            gate,
            FailureClass.COMPARISON,
            seen=f"HelmChart {want.name} has version {chart.version or 'none'}",
            expected=want.version,
            next_step="find who else writes this HelmChart: one owner per release",
        )
    # helm-controller ignores a chart with this annotation for ever, so waiting does not help
    if chart.opted_out:
        return failed(
            gate,
            FailureClass.DEPENDENCY,
            seen=f"HelmChart {want.name} is marked unmanaged",
            expected="helm-controller to own it",
            next_step="remove the annotation helmcharts.helm.cattle.io/unmanaged",
            final=True,
        )
    if not chart.managed:
        return inconclusive(
            gate,
            seen=f"helm-controller has not claimed HelmChart {want.name}",
            expected="annotation helmcharts.cattle.io/managed-by",
            next_step="check that RKE2's helm-controller runs (it watches kube-system only)",
            failure_class=FailureClass.DEPENDENCY,
        )
    return None


def _fresh(gate: str, chart: Chart, job: InstallJob | None, want: Release) -> Verdict | None:
    """Return inconclusive if the install Job is older than the last change of the chart: it proves nothing about that change."""
    # HelmChart's conditions carry no times, so only the Job's age shows which spec it installed
    if job is None or job.created + gate_applications.SKEW >= chart.changed:
        return None
    return inconclusive(
        gate,
        seen=f"install Job of {want.name} ({job.uid[:8]}) is {chart.changed - job.created:.0f} s older than the last change",
        expected="a Job made for this change",
        next_step="wait for helm-controller, then read its log on the servers",
        failure_class=FailureClass.APPLY,
    )


def _installed(gate: str, state: ReleaseState, chart: Chart, want: Release) -> Verdict | None:
    job = state.job
    failure = chart.failed or (job.failed if job else "")
    if failure:
        cause = _cause(state, failure)
        return failed(
            gate,
            cause.failure_class,
            seen=f"installing {want.name} failed: {cause.text}",
            expected="the install Job to complete",
            next_step=f"{cause.next_step} (kubectl -n kube-system logs job/helm-install-{want.name})",
            final=True,
        )
    if job is None or not job.complete:
        cause = _cause(state, "")
        return inconclusive(
            gate,
            seen=f"install Job of {want.name} {'is not complete' if job else 'does not exist yet'}"
            + (f": {cause.text}" if cause.text else ""),
            expected="the install Job to complete",
            next_step=cause.next_step,
            failure_class=cause.failure_class,
        )
    return None


def _cause(state: ReleaseState, said: str) -> causes.Cause:
    """Return the cause of a failed installation from the log, Helm's own record, the events, and the condition, in this order.

    The Job's pod can be deleted together with its log, so Helm's release record is read too.
    """
    job, newest = state.job, state.newest
    texts = [("log", job.log), *(("event", line) for line in job.events)] if job else []
    texts += [("release", newest.description)] if newest and newest.status == "failed" else []
    known = causes.classify(causes.HELM, [*texts, ("condition", said)])
    return known or causes.Cause(FailureClass.APPLY, "read the install Job's log", said)


def _deployed(gate: str, newest: Revision | None, want: Release) -> Verdict | None:
    if newest is None or newest.status.startswith("pending") or not newest.chart_version:
        state = "none" if newest is None else f"revision {newest.number} is {newest.status or 'of no known status'}"
        return inconclusive(
            gate,
            seen=f"release Secret of {want.name} in {want.namespace}: {state}",
            expected=f"a deployed revision of chart {want.version}",
            next_step=f"helm -n {want.namespace} history {want.name}",
            failure_class=FailureClass.APPLY,
        )
    if newest.status != "deployed":
        return failed(
            gate,
            FailureClass.APPLY,
            seen=f"newest revision {newest.number} of {want.name} is {newest.status} {newest.description}".rstrip(),
            expected="deployed",
            next_step=f"helm -n {want.namespace} history {want.name}, then correct and apply again",
            final=True,
        )
    # some charts are published with a leading `v` in their version, some without
    if newest.chart_version.removeprefix("v") != want.version.removeprefix("v"):
        return failed(
            gate,
            FailureClass.COMPARISON,
            seen=f"deployed revision {newest.number} of {want.name} is chart {newest.chart_version}",
            expected=want.version,
            next_step="find who else installs this release: one owner per release",
        )
    return None


# ---- workloads -----------------------------------------------------------------------------------------------------------------


def _workloads(gate: str, state: ReleaseState, want: Release) -> Verdict | None:
    if len(state.workloads) < want.workloads:
        return inconclusive(
            gate,
            seen=f"{len(state.workloads)} workloads of {want.name} in {want.namespace}",
            expected=f"at least {want.workloads}",
            next_step="see what the chart rendered: an install without workloads proves nothing",
        )
    late = next((entry for entry in state.workloads if not entry.settled(want.spare)), None)
    return judge_unsettled(gate, late, state.trouble, want.namespace) if late else None


def judge_unsettled(gate: str, workload: Workload, trouble: Iterable[Trouble], namespace: str) -> Verdict:
    """Return the verdict on a workload that is not ready: fail if one of its pods fails, inconclusive if its pods are starting."""
    bad = next(
        (entry for entry in trouble if entry.pod.startswith(f"{workload.name}-") and entry.reason in causes.RUNTIME_REASONS), None
    )
    seen = f"{workload.kind} {namespace}/{workload.name}: {workload.ready} of {workload.desired} ready, {workload.updated} updated"
    seen += "" if workload.current else ", newest spec not yet seen by its controller"
    expected = "all pods of the newest spec ready"
    if bad is None:
        return inconclusive(gate, seen=seen, expected=expected, next_step=f"kubectl -n {namespace} get pods")
    failure = f"{seen}; pod {bad.pod}{f' on {bad.node}' if bad.node else ''}: {bad.reason} {bad.message}".rstrip()
    return failed(
        gate, FailureClass.RUNTIME, seen=failure, expected=expected, next_step=f"kubectl -n {namespace} describe pod {bad.pod}"
    )


def with_charts(gate: str, seen: ChartsObservation, want: ChartsExpectation) -> Verdict:
    """Check that the charts are deployed and their CRDs established, so that resources of these kinds can be applied."""
    return (
        problem(gate, seen.releases, want.releases, seen.root_app, want.root_app)
        or missing_crd(gate, seen.crds, want.crds)
        or passed(
            gate, f"{', '.join(release.name for release in want.releases)} deployed, {count(len(want.crds), 'CRD')} established"
        )
    )


def missing_crd(gate: str, seen: Iterable[Crd], want: Iterable[str]) -> Verdict | None:
    """Return inconclusive for the first wanted CRD that the API server does not serve; None if all are established."""
    by_name = {crd.name: crd for crd in seen}
    for name in want:
        crd = by_name.get(name)
        if crd is None or not crd.established:
            state = "does not exist" if crd is None else f"is not established {crd.message}".rstrip()
            return inconclusive(
                gate,
                seen=f"CRD {name} {state}",
                expected="condition Established",
                next_step="see whether its chart brings CRDs (crds.enabled, upgradeCRDs), and who else owns the name",
                failure_class=FailureClass.DEPENDENCY,
            )
    return None
