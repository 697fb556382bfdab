"""A simulated helm-controller of RKE2 (k3s-io/helm-controller): it installs each HelmChart through a Job.

The Job's pod plays Helm, which writes a release Secret. The chart's failure policy decides what follows a failed Job.
"""

from __future__ import annotations

import functools

from steps.contract.canonical import digest
from workflows.rehearsal.simulator.api.api_kinds import (
    HELM_CHART_CONFIGS,
    HELM_CHARTS,
    JOBS,
    SECRETS,
    Obj,
    Ref,
    annotations_of,
    has_condition,
    ref,
)
from workflows.rehearsal.simulator.charts import chart_installers
from workflows.rehearsal.simulator.charts.chart_installers import ChartError, ChartRelease, installer
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, pod_program
from workflows.rehearsal.simulator.world import Changes, World

SYSTEM = "kube-system"
CLAIMED = "helmcharts.cattle.io/managed-by"
UNMANAGED = "helmcharts.helm.cattle.io/unmanaged"
HASH = "helmcharts.helm.cattle.io/configHash"
CHART_LABEL = "helmcharts.helm.cattle.io/chart"
FINALIZER = "wrangler.cattle.io/on-helm-chart-remove"
INSTALL_SECONDS = 12.0


class HelmController:
    """Simulated helm-controller of RKE2, for HelmCharts in `kube-system` that name or contain a chart and are not unmanaged."""

    name = "helm_controller"
    kinds = (HELM_CHARTS, HELM_CHART_CONFIGS, JOBS, SECRETS)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Schedule the next step of every HelmChart: claim, Job, or removal. All are looked at, because there are few."""
        for chart in list(world.select(HELM_CHARTS, SYSTEM)):
            annotations = annotations_of(chart)
            spec = chart.get("spec") or {}
            if UNMANAGED in annotations or not (spec.get("chart") or spec.get("chartContent")):
                continue
            at = ref(chart)
            if "deletionTimestamp" in chart["metadata"]:
                self._remove(world, chart)
            elif CLAIMED not in annotations:
                world.later(f"helm/{at.name}/claim", 0.5, 3, functools.partial(_claim, world, at))
            else:
                self._install(world, chart)

    def _install(self, world: World, chart: Obj) -> None:
        at = ref(chart)
        job = world.find(JOBS, f"helm-install-{at.name}", SYSTEM)
        wanted = config_hash(world, chart)
        if job is None:
            world.later(f"helm/{at.name}/job/{wanted}", 0.5, 2, functools.partial(_create_job, world, at, "install"))
        elif job["spec"]["template"]["metadata"].get("annotations", {}).get(HASH) != wanted:
            world.delete(JOBS, job)  # a finished Job of older values must not pass for the new ones
        elif job["spec"].get("suspend"):
            world.later(f"helm/{at.name}/resume/{wanted}", 0.2, 1, functools.partial(_resume, world, ref(job)))
        elif has_condition(job, "Failed"):
            self._failed(world, chart, job)
        else:
            _status(world, chart, failed=None)
            if at.name == "gpu-operator" and has_condition(job, "Complete") and world.fault("release_upgraded_by_hand"):
                world.later(f"helm/{at.name}/by-hand", 20, 40, functools.partial(_upgrade_by_hand, world, at))

    def _failed(self, world: World, chart: Obj, job: Obj) -> None:
        """Report a failed install Job on its HelmChart.

        The failure policies `abort` and `retry` leave the Job; the default, `reinstall`, uninstalls the release and starts again.
        """
        name = chart["metadata"]["name"]
        why = next(entry.get("message", "") for entry in job["status"]["conditions"] if entry["type"] == "Failed")
        message = f"Job {job['metadata']['name']} failed: {why}"
        _status(world, chart, failed=("Job failed", message))
        world.event(HELM_CHARTS, chart, "JobFailed", message, warning=True)
        if chart["spec"].get("failurePolicy", "reinstall") == "reinstall":
            key = f"helm/{name}/reinstall/{job['metadata']['uid']}"
            world.later(key, 30, 60, lambda: chart_installers.reinstall(world, chart, ref(job)))

    def _remove(self, world: World, chart: Obj) -> None:
        at = ref(chart)
        if FINALIZER not in (chart["metadata"].get("finalizers") or ()):
            return
        job = world.find(JOBS, f"helm-delete-{at.name}", SYSTEM)
        if job is None:
            world.later(f"helm/{at.name}/delete", 0.5, 2, functools.partial(_create_job, world, at, "delete"))
        elif job["spec"].get("suspend"):
            world.later(f"helm/{at.name}/resume-delete", 0.2, 1, functools.partial(_resume, world, ref(job)))
        elif has_condition(job, "Complete"):
            for done in (f"helm-install-{at.name}", f"helm-delete-{at.name}"):
                world.delete(JOBS, Ref(SYSTEM, done))
            kept = [entry for entry in chart["metadata"]["finalizers"] if entry != FINALIZER]
            world.patch(HELM_CHARTS, at, {"metadata": {"finalizers": kept}})


def _claim(world: World, at: Ref) -> None:
    chart = world.find(HELM_CHARTS, at)
    if chart is not None:
        finalizers = list(dict.fromkeys([*(chart["metadata"].get("finalizers") or ()), FINALIZER]))
        world.patch(HELM_CHARTS, at, {"metadata": {"annotations": {CLAIMED: "helm-controller"}, "finalizers": finalizers}})


def _upgrade_by_hand(world: World, at: Ref) -> None:
    """Play the fault `release_upgraded_by_hand`: a value that no workload shows."""
    chart = world.find(HELM_CHARTS, at)
    if chart is not None:
        chart_installers.upgrade_by_hand(world, chart, {"operator": {"logging": {"develMode": True}}})


def config_hash(world: World, chart: Obj) -> str:
    """Return a digest of the specs of a HelmChart and its HelmChartConfig; a new digest needs a new install Job."""
    config = world.find(HELM_CHART_CONFIGS, chart["metadata"]["name"], SYSTEM)
    return "SHA256=" + digest([chart["spec"], (config or {}).get("spec")]).removeprefix("sha256:").upper()


def _create_job(world: World, at: Ref, action: str) -> None:
    chart = world.find(HELM_CHARTS, at)
    if chart is None:
        return
    spec = chart["spec"]
    meta = {"name": f"helm-{action}-{at.name}", "namespace": SYSTEM, "labels": {CHART_LABEL: at.name}}
    pod = {
        "restartPolicy": "OnFailure",
        "containers": [{"name": "helm", "image": spec.get("jobImage") or "rancher/klipper-helm:v0.9.8", "args": [action]}],
        "tolerations": [{"operator": "Exists"}],
    }
    template = {"metadata": {"labels": meta["labels"], "annotations": {HASH: config_hash(world, chart)}}, "spec": pod}
    body = {
        "metadata": meta | {"ownerReferences": [HELM_CHARTS.owner(chart)]},
        "spec": {"backoffLimit": spec.get("backOffLimit", 1000), "suspend": True, "template": template},
    }
    job = world.create(JOBS, body)
    world.event(HELM_CHARTS, chart, "ApplyJob", f"Applying HelmChart using Job {SYSTEM}/{job['metadata']['name']}")
    _status(world, chart, failed=None)


def _resume(world: World, at: Ref) -> None:
    world.patch(JOBS, at, {"spec": {"suspend": False}})


def _status(world: World, chart: Obj, failed: tuple[str, str] | None) -> None:
    """Write job name and conditions on a HelmChart; `failed` is reason and message of a failed Job.

    Like those of the real controller, the conditions have no transition times and no observedGeneration.
    """
    name = f"helm-install-{chart['metadata']['name']}"
    created = ("JobCreated", "True", "Job created", f"Applying HelmChart using Job {SYSTEM}/{name}")
    conditions = world.conditions(chart, created, ("Failed", str(bool(failed)), *(failed or ("", ""))), timed=False)
    world.patch(HELM_CHARTS, chart, {"status": {"jobName": name, "conditions": conditions}}, status=True)


@pod_program(CHART_LABEL)
def helm(world: World, pod: Obj, _node: str) -> Behaviour:
    """Play Helm in the pod of an install or delete Job. The release is installed or uninstalled when the pod ends."""
    name = pod["metadata"]["labels"][CHART_LABEL]
    action = pod["spec"]["containers"][0]["args"][0]
    chart = world.find(HELM_CHARTS, name, SYSTEM)
    if chart is None:
        return Exit(code=1, message=f"HelmChart {name} is gone")
    work = chart_installers.uninstall if action == "delete" else _upgrade
    return Exit(seconds=INSTALL_SECONDS, log=_transcript(action, chart), effect=lambda: work(world, chart))


def _transcript(action: str, chart: Obj) -> str:
    spec, name = chart["spec"], chart["metadata"]["name"]
    target = spec.get("targetNamespace") or SYSTEM
    return f"+ helm_v3 {action} --namespace {target} {name} {spec.get('chart', '')} --version {spec.get('version', '')}\n"


def _upgrade(world: World, chart: Obj) -> None:
    """Play `helm upgrade --install`: run the chart's installer and write a release Secret, also of a failure."""
    release = ChartRelease(world, chart, chart_installers.values(world, chart))
    release.target(create=bool(chart["spec"].get("createNamespace")))
    try:
        installer(release)(world, release)
    except ChartError as error:
        chart_installers.record(world, release, "failed", error=str(error))
        raise
    chart_installers.record(world, release, "deployed")


ROLES = (HelmController,)
