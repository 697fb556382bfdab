"""Builders of the Kubernetes objects that several stages share: the same site gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steps.contract.task import Verb
from workflows.catalog import Release
from workflows.catalog.text import values_text
from workflows.gitops import applications, layout, projects
from workflows.spec.fields import StageName
from workflows.stages import rights
from workflows.stages.site import Site
from workflows.stages.stage import Object, Rule, Step, When, task

CHECK_NAMESPACE = rights.CHECK_NAMESPACE
CHECK_LABEL = "bringup/check"
STAGE_LABEL = "bringup/stage"
HOSTNAME = "kubernetes.io/hostname"
COUNT, NODES = "@count", "@nodes"
"""Markers that verb `job` replaces by the number and the list of the nodes under test."""


# ---- releases ------------------------------------------------------------------------------------------------------------------


def namespace(name: str, *, privileged: bool = False) -> Object:
    """A Namespace; `privileged` lifts pod security for workloads that touch the host."""
    labels = {"labels": dict(applications.PRIVILEGED)} if privileged else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **labels}}


def releases(site: Site, stage: str) -> tuple[Release, ...]:
    """The charts of a stage, in catalog order (upstream manifests are no releases; Argo CD itself comes before the stage's own)."""
    return tuple(release for release in layout.delivered(site.releases.values()) if release.stage == stage)


def release_objects(site: Site, chosen: Iterable[Release]) -> list[Object]:
    """What applies releases of a stage: their namespaces, then by their one owner (design §6) a HelmChart each, or the stage's root
    Application, which has Argo CD make one for each from Git."""
    chosen = tuple(chosen)
    made = [namespace(name, privileged=flag) for name, flag in layout.privileged(chosen).items()]
    if chosen and by_argo_cd(site, chosen):
        return [*made, applications.root(site.spec, chosen[0].stage)]
    return [*made, *map(helm_chart, chosen)]


def by_argo_cd(site: Site, chosen: Iterable[Release]) -> bool:
    """Whether Argo CD owns these releases: where it delivers, all but itself."""
    return site.spec.delivery.argo_cd is not None and bool(layout.delivered(chosen))


def root_app(site: Site, chosen: Iterable[Release]) -> Object:
    """What tasks and gates of a stage say about its root Application: `steps.contract.charts.RootApplication` as plain data, under
    its key; nothing where Argo CD does not own the stage's releases."""
    chosen, argo = tuple(chosen), site.spec.delivery.argo_cd
    if argo is None or not by_argo_cd(site, chosen):
        return {}
    stage = chosen[0].stage
    root: Object = {
        "name": layout.root_name(stage),
        "home": argo.namespace,
        "repo": argo.repo,
        "path": layout.Layout.of(site.spec).stage(stage),
        "revision": argo.revision,
        "tree": site.tree_digest,
        "project": projects.roots_project(argo),
        "server": layout.IN_CLUSTER,
    }
    return {"root_app": root}


_DAEMON_SET = "apps/DaemonSet"
_BY_NODES: Mapping[str, tuple[str, ...]] = {
    "gpu_operator": (_DAEMON_SET, "nvidia.com/ClusterPolicy", "nvidia.com/GPUCluster"),
    "network_operator": (_DAEMON_SET, "mellanox.com/NicClusterPolicy"),
    "sharing": (_DAEMON_SET,),
    "slurm": (_DAEMON_SET, "slinky.slurm.net/NodeSet"),
}
"""Stages whose own gates count nodes, and the kinds (GROUP/KIND) that say of the whole that it is not ready while a single node is
short. All else in these stages has to be healthy."""


def helm_chart(release: Release) -> Object:
    """A HelmChart for RKE2's helm-controller. Its defaults would try 1000 times and then uninstall (gpu_stack §0.5)."""
    spec: Object = {
        "chart": release.chart,
        "version": release.version,
        "targetNamespace": release.namespace,
        "createNamespace": True,
        "backOffLimit": 3,
        "failurePolicy": "abort",
        "timeout": f"{release.timeout_seconds}s",
    }
    if release.repo:
        spec["repo"] = release.repo
    if release.values:
        spec["valuesContent"] = values_text(release.values)
    return {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChart",
        "metadata": {"name": release.release_name, "namespace": "kube-system", **_marked(release)},
        "spec": spec,
    }


def _marked(release: Release) -> Object:
    """The chart's digest where one is given: neither owner checks it, so it is there to be compared with what was pulled."""
    return {"annotations": {applications.CHART_DIGEST: release.digest}} if release.digest else {}


def upgrades(site: Site, chosen: Sequence[Release]) -> Object:
    """The argument `upgrade_from` of verb `apply`: by release (NAMESPACE/NAME) the lines that may be upgraded (P14).

    None with Argo CD, which keeps no Helm releases: there `plan --against` alone says it.
    """
    if by_argo_cd(site, chosen):
        return {}
    found = {f"{one.namespace}/{one.release_name}": list(one.upgrade_from) for one in chosen if one.upgrade_from}
    return {"upgrade_from": found} if found else {}


def expected(site: Site, release: Release, *, workloads: int = 1) -> Object:
    """What the chart gate expects of a release: `steps.contract.charts.Release` as plain data."""
    argo = site.spec.delivery.argo_cd
    crds_only = release.rollout == "crds_only"
    found: Object = {
        "name": release.release_name,
        "namespace": release.namespace,
        "version": release.version,
        "workloads": 0 if crds_only else workloads,
        "spare": spare(site, release.stage),
    }
    if argo is None or not by_argo_cd(site, (release,)):
        return found
    revision = "" if argo.is_commit else argo.revision  # a commit cannot name itself: the values stand in the Application
    repo, chart = applications.chart_place(release)
    place = {"repo": repo, "chart": chart, "project": argo.project, "server": layout.IN_CLUSTER}
    if found["spare"] and release.stage in _BY_NODES:
        found["by_quorum"] = list(_BY_NODES[release.stage])
    return found | {"owner": "argo_cd", "home": argo.namespace, "revision": revision, **place}


def spare(site: Site, stage: StageName) -> int:
    """How many nodes a DaemonSet may be short of: those that the stage's quorum lets go, which still count as desired there."""
    members = "gpu" if site.count("gpu") else "all"
    return site.count(members) - site.needed(stage, members)


# ---- checks --------------------------------------------------------------------------------------------------------------------


def check_namespace() -> Object:
    """The namespace of all check objects; it is kept."""
    return namespace(CHECK_NAMESPACE, privileged=True)


def check_metadata(stage: str, check: str) -> Object:
    """Name, namespace and labels of a check's object."""
    return {"name": check, "namespace": CHECK_NAMESPACE, "labels": check_labels(stage, check)}


def check_labels(stage: str, check: str) -> dict[str, str]:
    """Labels by which a check's pods are found."""
    return {CHECK_LABEL: check, STAGE_LABEL: stage.replace("_", "-")}


def container(image: str, script: str, *, name: str = "check", **fields: Any) -> Object:
    """A container that runs a shell script; what it writes to /dev/termination-log is its report."""
    return {"name": name, "image": image, "command": ["/bin/sh", "-c", script], **fields}


CLAIM = "gpus"
"""Name of the claim in a pod that has one of `gpu_claims`."""


def gpu_claims(stage: str, check: str, *, every: bool) -> Object:
    """A template for claims of GPUs (DRA): each pod gets one GPU, or with `every` all of its node."""
    wanted: Object = {"deviceClassName": "gpu.nvidia.com", **({"allocationMode": "All"} if every else {})}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": check_metadata(stage, check),
        "spec": {"spec": {"devices": {"requests": [{"name": CLAIM, "exactly": wanted}]}}},
    }


def claiming(check: str, container: Object) -> Object:
    """A pod whose one container has what the template of this check's claims gives it."""
    claimed = {**container, "resources": {**container.get("resources", {}), "claims": [{"name": CLAIM}]}}
    return {"containers": [claimed], "resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": check}]}


def script(name: str) -> str:
    """A shell script of `scripts/`, without its comments."""
    lines = Path(__file__).with_name("scripts").joinpath(name).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("# "))


def node_name() -> Object:
    """The environment variable NODE_NAME with the pod's node."""
    return {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def single_job(stage: str, check: str, pod: Object, *, seconds: int, annotations: Mapping[str, str] | None = None) -> Object:
    """A Job of one pod that is tried once and removed by itself some time after it ended."""
    return _job(stage, check, pod, {"backoffLimit": 0}, seconds, annotations)


def per_node_job(stage: str, check: str, pod: Object, *, seconds: int, annotations: Mapping[str, str] | None = None) -> Object:
    """An indexed Job with one pod on each node under test: anti-affine to each other, pinned to the list of nodes.

    A node whose pod fails does not stop the others (`backoffLimitPerIndex`, Kubernetes 1.33).
    """
    affinity = one_a_node({CHECK_LABEL: check}, HOSTNAME, NODES)
    shape = {"completionMode": "Indexed", "completions": COUNT, "parallelism": COUNT, "backoffLimitPerIndex": 0}
    return _job(stage, check, {"affinity": affinity, "tolerations": [{"operator": "Exists"}], **pod}, shape, seconds, annotations)


def one_a_node(own: Mapping[str, str], key: str, values: str | list[str]) -> Object:
    """Affinity of pods with the labels `own`: no two on one node, and only on nodes whose label `key` is one of `values`."""
    apart = {"labelSelector": {"matchLabels": dict(own)}, "topologyKey": HOSTNAME}
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
    return {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
    }


def _job(stage: str, check: str, pod: Object, shape: Object, seconds: int, annotations: Mapping[str, str] | None = None) -> Object:
    template: Object = {"labels": check_labels(stage, check)}
    if annotations:
        template["annotations"] = dict(annotations)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": check_metadata(stage, check),
        "spec": {
            **shape,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": 3600,
            "template": {
                "metadata": template,
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 5,
                    **pod,
                },
            },
        },
    }


# ---- steps ---------------------------------------------------------------------------------------------------------------------


def judge(site: Site, stage: StageName, gates: Mapping[str, str], *, members: str = "gpu", cordon: bool = True) -> Step:
    """The step that decides the stage. `gates` maps task names to gate ids, in running order."""
    return Step(
        task=task(
            stage,
            "judge",
            Verb.JUDGE,
            deadline=600,
            arguments={
                "checks": [{"task": name, "gate": gate} for name, gate in gates.items()],
                "needed": site.needed(stage, members),
                "members": members,
                "cordon": cordon,
            },
        ),
        after=tuple(gates),
        when=When.ANYHOW,
        rules=(Rule(groups=("",), resources=("nodes",), verbs=("get", "patch")), *rights.CLAIM) if cordon else (),
    )
