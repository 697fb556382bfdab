"""Build the Kubernetes objects, tasks and expectations that several stages share. Equal input gives equal bytes."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from steps.contract.canonical import canonical
from steps.contract.objects import object_files
from steps.contract.objects.charts import value_digests
from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.catalog.yaml_text import plain_data, values_text
from workflows.gitops import argo_applications, layout, projects, wrapper_charts
from workflows.spec.cluster_spec import GPU, ClusterSpec, has_gpu_cluster
from workflows.stage_names import StageName
from workflows.stages import rights
from workflows.stages.stage import Change, Object, Rule, Site, Step, judge_step, task

CHECK_NAMESPACE = rights.CHECK_NAMESPACE
CHECK_LABEL = "bringup/check"
STAGE_LABEL = "bringup/stage"
HOSTNAME = "kubernetes.io/hostname"
CHART_LOGIN = "sunk-charts"
"""Secret in kube-system with the login of SUNK's chart repository."""
MOST_INLINE = 7500
"""Most bytes of the arguments of a task, whose file may have 8192; objects of larger ones lie in a file beside the task."""
COUNT, NODES = "@count", "@nodes"
"""Placeholders in check objects that the verb `job` replaces by the number and by the list of the nodes under test."""


# ---- releases ------------------------------------------------------------------------------------------------------------------


def namespace(name: str, *, privileged: bool = False) -> Object:
    """Return a Namespace; `privileged` allows pods at the privileged level of Pod Security, for workloads that touch the host."""
    labels = {"labels": dict(argo_applications.PRIVILEGED)} if privileged else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **labels}}


def releases(site: Site, stage: str) -> tuple[PlannedRelease, ...]:
    """Return a stage's Helm charts in catalog order, without upstream manifests and without Argo CD itself."""
    return tuple(release for release in layout.delivered_releases(site.releases.values()) if release.stage == stage)


def installs(chosen: Iterable[PlannedRelease]) -> tuple[Change, ...]:
    """Return one change for each release, for display in the plan."""
    return tuple(Change(what=f"install {release.release_name} {release.version}", where=release.namespace) for release in chosen)


def rollback(chosen: Iterable[PlannedRelease]) -> str:
    """Return the sentence that tells a person how to undo the releases of a stage."""
    return "; ".join(f"{release.release_name}: {release.rollback}" for release in chosen)


def release_objects(site: Site, chosen: Iterable[PlannedRelease], beside: Iterable[Object] = ()) -> list[Object]:
    """Return the objects that install a stage's releases: their Namespaces, and HelmCharts or the stage's root Application.

    Each release has one owner: RKE2's helm-controller reads a HelmChart; Argo CD creates an Application for each release from Git.
    `beside` are objects that the releases need, applied between Namespaces and owners.
    """
    chosen = tuple(chosen)
    namespaces = [namespace(name, privileged=flag) for name, flag in layout.privileged_namespaces(chosen).items()]
    if chosen and by_argo_cd(site, chosen):
        return [*namespaces, *beside, argo_applications.root_application(site.spec, chosen[0].stage)]
    return [*namespaces, *beside, *(helm_chart(release, chart_login(site, release)) for release in chosen)]


def chart_login(site: Site, release: PlannedRelease) -> str:
    """Return the Secret beside the HelmChart with the login of a release's chart repository; empty if it needs none."""
    return CHART_LOGIN if site.spec.slurm.credentials is not None and release.id in wrapper_charts.WRAPPED else ""


def by_argo_cd(site: Site, chosen: Iterable[PlannedRelease]) -> bool:
    """Return True if Argo CD installs at least one of these releases: any chart except Argo CD's own, in a spec with Argo CD."""
    return site.spec.delivery.argo_cd is not None and bool(layout.delivered_releases(chosen))


def root_app(site: Site, chosen: Iterable[PlannedRelease]) -> Object:
    """Return `{"root_app": …}` with the fields of `steps.contract.objects.charts.RootApplication`, for tasks and gates of a stage.

    The result is empty if Argo CD does not install the stage's releases.
    """
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
"""Stage id → kinds (GROUP/KIND) that are not ready while one node is missing, for stages whose own gates count nodes.

All other objects of these stages must be healthy.
"""


def helm_chart(release: PlannedRelease, login: str = "") -> Object:
    """Return the HelmChart from which RKE2's helm-controller installs a release; `login` is a Secret for its repository."""
    spec: Object = {
        "chart": release.chart,
        "version": release.version,
        "targetNamespace": release.namespace,
        "createNamespace": True,
        # the controller's defaults retry 1000 times, and uninstall after a failed upgrade
        # (steps/docs/facts/gpu.md, helm-controller)
        "backOffLimit": 3,
        "failurePolicy": "abort",
        "timeout": f"{release.timeout_seconds}s",
    }
    if release.repo:
        spec["repo"] = release.repo
    if login:
        spec["dockerRegistrySecret"] = {"name": login}
    if release.values:
        spec["valuesContent"] = values_text(release.values)
    meta: Object = {"name": release.release_name, "namespace": "kube-system"}
    if release.digest:  # neither owner verifies it: it is there to compare
        meta["annotations"] = {argo_applications.CHART_DIGEST: release.digest}
    return {"apiVersion": "helm.cattle.io/v1", "kind": "HelmChart", "metadata": meta, "spec": spec}


def upgrades(site: Site, chosen: Sequence[PlannedRelease]) -> Object:
    """Return the argument `upgrade_from` of verb `apply`: NAMESPACE/NAME of a release → release lines it may be upgraded from.

    It enforces rule P14. The result is empty with Argo CD, which keeps no Helm releases: there only `plan --against` checks the
    rule.
    """
    if by_argo_cd(site, chosen):
        return {}
    lines = {
        f"{release.namespace}/{release.release_name}": list(release.upgrade_from) for release in chosen if release.upgrade_from
    }
    return {"upgrade_from": lines} if lines else {}


def expected_release(site: Site, release: PlannedRelease, *, workloads: int = 1) -> Object:
    """Return the chart gate's expectation of a release, with the fields of `steps.contract.objects.charts.Release`."""
    argo = site.spec.delivery.argo_cd
    crds_only = release.rollout == "crds_only"
    values = value_digests(plain_data(release.values))
    expectation: Object = {
        "name": release.release_name,
        "namespace": release.namespace,
        "version": release.version,
        "workloads": 0 if crds_only else workloads,
        "spare": spare_nodes(site, release.stage),
    }
    if argo is None or not by_argo_cd(site, (release,)):
        return expectation | ({"values": values} if values else {})
    # a tree cannot contain the id of its own commit: the values are then part of the Application
    revision = "" if argo.is_commit else argo.revision
    repo, chart = projects.chart_source(release)
    if wrapper_charts.is_wrapped(site.spec, release):
        # the Application names the wrapper in Git, which names chart and version; the digest of the tree covers it
        repo, chart, expectation["version"] = "", "", ""
    place = {"repo": repo, "chart": chart, "project": argo.project, "server": layout.IN_CLUSTER}
    if expectation["spare"] and release.stage in _BY_NODES:
        expectation["by_quorum"] = list(_BY_NODES[release.stage])
    return expectation | {"owner": "argo_cd", "home": argo.namespace, "revision": revision, **place}


def spare_nodes(site: Site, stage: StageName) -> int:
    """Return how many pods a DaemonSet may lack: all nodes less the quorum of the stage.

    Kubernetes still counts failed nodes as desired.
    """
    members = "gpu" if site.count("gpu") else "all"
    return site.count(members) - site.needed(stage, members)


# ---- checks --------------------------------------------------------------------------------------------------------------------


def gpu_counts(site: Site) -> Object:
    """Return the usual number of GPUs per node under `gpus`, and machine → number under `others` for machines that differ."""
    usual = site.spec.accelerator.per_node if site.spec.accelerator else 0
    others = {machine.name: machine.gpus for machine in site.machines if machine.gpu and machine.gpus != usual}
    return {"gpus": usual, **({"others": others} if others else {})}


def pool_fields(site: Site, of_pool: Callable[[Site], Object] = lambda _: {}) -> Object:
    """Return the fields about numbers of GPUs in the expectation of a gate that judges all GPU nodes at once.

    If host groups differ these are `pools`, each with its groups. `of_pool` returns further fields of a pool.
    """
    if len(site.pools) < 2:
        return {**gpu_counts(site), **of_pool(site)}
    pools = [{"groups": list(part.pool.groups), **gpu_counts(part), **of_pool(part)} for part in site.pools if part.pool]
    return {"pools": pools}


def pool_check(site: Site, part: Site, stage: StageName, gate: str, **fields: object) -> Object:
    """Return the fields of a judged check of one pool: its gate, its hosts, and how many of them must pass.

    Each pool must have passing nodes, however many fail elsewhere; it may lack as many as the quorum of the stage forgives.
    """
    if part.pool is None:
        return {"gate": gate, **fields}
    count = part.count("gpu")
    forgiven = site.count("gpu") - site.needed(stage, "gpu")
    return {"gate": gate, "select": part.gpu_select, "needed": max(count - forgiven, 1), **fields}


def check_namespace() -> Object:
    """Return the Namespace of all check objects, which stays after the checks."""
    return namespace(CHECK_NAMESPACE, privileged=True)


def check_metadata(stage: str, check: str) -> Object:
    """Return the metadata of a check's object: name, namespace and labels."""
    return {"name": check, "namespace": CHECK_NAMESPACE, "labels": check_labels(stage, check)}


def check_labels(stage: str, check: str) -> dict[str, str]:
    """Return the labels of a check's objects, by which its pods are found."""
    return {CHECK_LABEL: check, STAGE_LABEL: stage.replace("_", "-")}


def container(image: str, script: str, *, name: str = "check", **fields: Any) -> Object:
    """Return a container that runs a shell script, which reports by writing to /dev/termination-log; `fields` are added."""
    return {"name": name, "image": image, "command": ["/bin/sh", "-c", script], **fields}


CLAIM = "gpus"
"""Name by which a pod refers to its claim for GPUs, made from a template of `gpu_claims`."""


def gpu_claims(stage: str, check: str, *, every: bool) -> Object:
    """Return a ResourceClaimTemplate for GPUs (DRA): one GPU for each pod, or with `every` all GPUs of the pod's node."""
    device_request: Object = {"deviceClassName": "gpu.nvidia.com", **({"allocationMode": "All"} if every else {})}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": check_metadata(stage, check),
        "spec": {"spec": {"devices": {"requests": [{"name": CLAIM, "exactly": device_request}]}}},
    }


def node_claims(spec: ClusterSpec, stage: str, check: str) -> list[Object]:
    """Return the ResourceClaimTemplate for all GPUs of a node in a list; empty unless the GPU Operator uses DRA."""
    return [gpu_claims(stage, check, every=True)] if has_gpu_cluster(spec) else []


def pod_with_claim(check: str, container: Object) -> Object:
    """Return a pod spec whose only container uses a claim from the check's ResourceClaimTemplate."""
    claimed = {**container, "resources": {**container.get("resources", {}), "claims": [{"name": CLAIM}]}}
    return {"containers": [claimed], "resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": check}]}


def gpu_pod(site: Site, container: Object, check: str, *, fabric: bool = False) -> Object:
    """Return a pod spec whose only container has all GPUs of its node, and with `fabric` also the RDMA devices.

    The pod requests GPUs if they are whole, free, and equally many on every node. If sharing or Slurm's node pods have taken them
    (on a second run), or machines differ, it gets them by the runtime class, since nothing else runs on the GPUs during a check.
    """
    spec, counts, parts = site.spec, gpu_counts(site), site.pools
    # one Job has one request: machines with another number of GPUs would not fit it
    whole = all(part.spec.sharing.mode == "none" for part in parts) and "others" not in counts
    limits = _fabric_limits(spec) if fabric else {}
    requested = {"resources": {"limits": limits}} if limits else {}
    # RDMA registers locked memory: without IPC_LOCK ibv_reg_mr fails
    secured = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}} if fabric and spec.fabric.kind != "none" else {}
    if has_gpu_cluster(spec):
        return pod_with_claim(check, {**container, **secured, **requested})
    if whole and spec.slurm.kind == "none":
        return {"containers": [{**container, **secured, "resources": {"limits": {**limits, GPU: counts["gpus"]}}}]}
    env = [*container.get("env", ()), {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    opened = {**container, "env": env, "securityContext": {"privileged": True}, **requested}
    return {"runtimeClassName": "nvidia", "containers": [opened]}


def _fabric_limits(spec: ClusterSpec) -> dict[str, int]:
    """Return resource name → number of RDMA devices that a pod requests; empty without a fabric.

    If Slurm's node pods hold the devices, it is empty too, because a privileged pod reaches whole devices without a request.
    """
    fabric = spec.fabric
    taken = spec.slurm.kind != "none" and fabric.mode in ("sriov", "host_device")
    return {fabric.resource_key: fabric.attachments} if fabric.kind != "none" and not taken else {}


def script(*names: str) -> str:
    """Return the text of shell scripts in `scripts/`, one after the other, without their comment lines."""
    folder = Path(__file__).with_name("scripts")
    lines = (line for name in names for line in (folder / name).read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if not line.startswith("# "))


def packed_script(*names: str) -> str:
    """Return a command that runs scripts of `script` which are too long for a task (8 kB): it unpacks them (gzip, base64) first."""
    packed = base64.b64encode(gzip.compress(script(*names).encode(), 9, mtime=0)).decode()
    return f'eval "$(echo {packed} | base64 -d | gunzip)"'


SERVICE_RIGHTS = Rule(groups=("",), resources=("services",), verbs=("get", "create", "delete"), namespaces=(CHECK_NAMESPACE,))
"""Rights to create the Services of a check."""


def ring_service(stage: str, check: str, name: str, spec: Object) -> Object:
    """Return a Service over a check's pods, which resolves also pods that are not ready, because they look each other up early."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": check_metadata(stage, check) | {"name": name},
        "spec": {"publishNotReadyAddresses": True, "selector": {CHECK_LABEL: check}, **spec},
    }


def node_name() -> Object:
    """Return the environment entry that gives a container the name of its node as NODE_NAME."""
    return {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def single_job(stage: str, check: str, pod: Object, *, seconds: int) -> Object:
    """Return a Job with one pod and no retry, which Kubernetes deletes an hour after it ended; `seconds` is its time limit."""
    return _job(stage, check, pod, {"backoffLimit": 0}, seconds)


def per_node_job(stage: str, check: str, pod: Object, *, seconds: int, annotations: Mapping[str, str] | None = None) -> Object:
    """Return an indexed Job with one pod on each node under test; `seconds` is its time limit.

    A pod that fails does not stop those on other nodes (`backoffLimitPerIndex`, Kubernetes 1.33).
    """
    # a node under test may carry any taint, hence the toleration of all
    affinity = one_a_node({CHECK_LABEL: check}, HOSTNAME, NODES)
    shape = {"completionMode": "Indexed", "completions": COUNT, "parallelism": COUNT, "backoffLimitPerIndex": 0}
    return _job(stage, check, {"affinity": affinity, "tolerations": [{"operator": "Exists"}], **pod}, shape, seconds, annotations)


def one_a_node(own: Mapping[str, str], key: str, values: str | list[str]) -> Object:
    """Return an affinity that puts pods with the labels `own` on different nodes, whose label `key` is one of `values`."""
    apart = {"labelSelector": {"matchLabels": dict(own)}, "topologyKey": HOSTNAME}
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
    return {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
    }


def _job(stage: str, check: str, pod: Object, shape: Object, seconds: int, annotations: Mapping[str, str] | None = None) -> Object:
    meta: Object = {"labels": check_labels(stage, check), **({"annotations": dict(annotations)} if annotations else {})}
    own = {"restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": check_metadata(stage, check),
        "spec": {
            **shape,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": meta, "spec": {**own, **pod}},
        },
    }


# ---- steps ---------------------------------------------------------------------------------------------------------------------


def apply_step(
    site: Site,
    stage: str,
    chosen: Sequence[PlannedRelease],
    gate: str,
    expectations: Object,
    rules: Iterable[Rule] = (),
    *,
    name: str = "apply",
    after: tuple[str, ...] = (),
    beside: Iterable[Object] = (),
    **arguments: object,
) -> Step:
    """Return the task that installs a stage's releases; it does nothing if its gate already finds what it expects.

    `rules` are the rights that the gate needs beside those of the installation; `beside` are objects that the releases need.
    """
    objects = release_objects(site, chosen, beside)
    task_arguments: Object = {"objects": objects, "gate": gate, "gate_expectations": expectations, **arguments}
    files: dict[str, bytes] = {}
    if len(canonical(plain_data(task_arguments))) > MOST_INLINE:
        file_name, data = f"{stage}_{name}_objects.json", object_files.encode(map(plain_data, objects))
        task_arguments = {**task_arguments, "objects": [], "file": msgspec.to_builtins(object_files.file_of(file_name, data))}
        files = {file_name: data}
    return Step(
        task=task(stage, name, Verb.APPLY, deadline=300, arguments=task_arguments),
        after=after,
        rules=(*rights.release_rules(site, chosen), *rules),
        files=files,
    )


def check_step(
    stage: str,
    gate: str,
    check: str,
    objects: Iterable[Object],
    *,
    deadline: int,
    expectations: Object,
    name: str = "functional",
    waits_for: tuple[str, ...] = ("nodes",),
    passed: Sequence[str] = ("nodes",),
    rules: Iterable[Rule] = (),
    **arguments: object,
) -> Step:
    """Return the task that creates a check's objects in the check namespace and reads what its pods report.

    It starts after the tasks `waits_for`, on the nodes that passed the tasks `passed` (all nodes if that is empty). `rules` are
    rights on objects other than Jobs and pods.
    """
    created: Object = {"gate": gate, "objects": [check_namespace(), *objects], "checks": [check], **arguments}
    created |= {"after": list(passed)} if passed else {}
    return Step(
        task=task(stage, name, Verb.JOB, deadline=deadline, arguments=created, expectations=expectations),
        after=waits_for,
        rules=rights.check_rules(*rules),
    )


def judge(
    site: Site,
    stage: StageName,
    gates: Mapping[str, str | Object],
    *,
    members: str = "gpu",
    cordon: bool = True,
    needed: int | None = None,
) -> Step:
    """Return the task that decides the stage by quorum. `gates` maps task names to gate ids, in running order.

    For a gate of one pool it has the fields of `pool_check` instead. `members` selects the machines that the quorum counts; with
    `cordon` the judge cordons nodes that failed. `needed` replaces the spec's quorum.
    """
    checks = [{"task": name, **({"gate": gate} if isinstance(gate, str) else gate)} for name, gate in gates.items()]
    rules = rights.CORDON if cordon else ()
    needed = site.needed(stage, members) if needed is None else needed
    return judge_step(stage, checks, rules=rules, needed=needed, members=members)
