"""Stage sharing: divide GPUs among pods as the spec says; for mode `none`, prove that GPUs are not shared.

The GPU Operator's chart contains every sharing configuration from its first install, inactive. This stage sets the node label that
selects one. So only the stage gpu_operator installs the chart, and installing it again never undoes this stage
(`spec.derived.sharing_label`).
"""

from __future__ import annotations

from collections.abc import Iterable

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.spec.acceptance import unit_checks
from workflows.spec.cluster_spec import (
    PRODUCT_LABEL,
    ClusterSpec,
    advertised,
    allocatable,
    has_gpu_cluster,
    product_label,
    sharing_label,
)
from workflows.spec.gpu_pools import mig_strategy
from workflows.spec.parsing.document import value_at
from workflows.stage_names import StageName
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Change, Object, Rule, Site, Stage, Step, task

STAGE: StageName = "sharing"
CHECK = "sharing"
LIMIT_CHECK = "sharing-limit"
ROLE_LABEL = "bringup/pod"
SCRIPT = "check.sh"
CONTROL, NODES, FUNCTIONAL, LIMIT = "sharing/control", "sharing/nodes", "sharing/functional", "sharing/limit"
CONTROL_SECONDS = 900
NODES_SECONDS = {"mig": 1800, "dra": 900}
"""Sharing mode → time limit in seconds of the node gate.

The MIG manager waits five minutes for each application's pods to end, and may reboot. Its state `pending` can be final
(`steps/docs/facts/gpu.md`, Sharing).
"""
OTHER_NODES_SECONDS = 600
LIMIT_SECONDS = 30
"""Seconds for which each pod of check `sharing-limit` holds its unit."""
SLOW_SECONDS, FEW_UNITS = 120, 16
"""Seconds for which they hold their units if they have more than these: kubelets need longer to start dozens of containers."""
HOLD_SECONDS = 60
"""Seconds for which the check's pods hold their device, long enough for the second pod to start beside the first."""
CHECK_SECONDS = 600

STRATEGY_LABELS = {"none": "none", "time_slicing": "time-slicing", "mps": "mps"}
"""Sharing mode → value of the label nvidia.com/gpu.sharing-strategy (`steps/docs/facts/gpu.md`, Sharing)."""


def build(site: Site) -> Stage | None:
    """Return stage sharing, or None for a spec without GPUs."""
    spec = site.spec
    if spec.accelerator is None:
        return None
    chosen = manifest_objects.releases(site, STAGE)
    steps, gates = [*_apply(site, chosen), _control(site, chosen)], dict[str, str | Object](control=CONTROL)
    for part in site.pools:
        steps.append(_nodes(part))
        gates[part.named("nodes")] = manifest_objects.pool_check(
            site, part, STAGE, NODES, **({"per_node": True} if part.pool else {})
        )
    # one pool after the other: the checks have the same names
    after = tuple(part.named("nodes") for part in site.pools)
    for part in site.pools:
        for step, gate in _checks(part, after):
            steps.append(step)
            after = (step.name,)
            gates[step.name] = manifest_objects.pool_check(site, part, STAGE, gate) if gate == FUNCTIONAL else gate
    return Stage(
        id=STAGE,
        title="GPU sharing",
        steps=(*steps, manifest_objects.judge(site, STAGE, gates)),
        gates=tuple(dict.fromkeys(str(step.task.arguments["gate"]) for step in steps if step.name != "apply")),
        changes=_changes(site, chosen),
        rollback=_rollback(site, chosen),
        releases=tuple(release.id for release in chosen),
    )


def _checks(site: Site, after: tuple[str, ...]) -> list[tuple[Step, str]]:
    """Return the tasks that prove the sharing of one pool, the first after the tasks `after`, each with its gate."""
    counts = unit_checks.unit_counts(site.spec, site.machines)
    if not counts:
        return []
    checks = [(_functional(site, after, counts), FUNCTIONAL)]
    if unit_checks.fill_obstacle(site.spec, counts) is None:
        checks.append((_limit(site, unit_checks.node_fill(site.spec, counts)), LIMIT))
    return checks


def _labels(site: Site) -> dict[str, str]:
    """Return the labels of the GPU nodes of one pool that turn its sharing on."""
    if site.pool is not None:
        return dict(site.pool.labels)
    label = sharing_label(site.spec)
    return {label[0]: label[1]} if label else {}


def _changes(site: Site, chosen: tuple[PlannedRelease, ...]) -> tuple[Change, ...]:
    labels = (
        Change(what=f"label {key}={value}", where=f"{part.count('gpu')} GPU nodes{f' ({part.pool.shown})' if part.pool else ''}")
        for part in site.pools
        for key, value in _labels(part).items()
    )
    return (*manifest_objects.installs(chosen), *labels)


def _rollback(site: Site, chosen: tuple[PlannedRelease, ...]) -> str:
    removal = "remove the label nvidia.com/device-plugin.config from every GPU node, after its pods are gone"
    undo = {
        "mig": "set the label nvidia.com/mig.config to all-disabled on every GPU node, after its pods are gone",
        "time_slicing": removal,
        "mps": removal,
    }
    undone = dict.fromkeys(undo.get(part.spec.sharing.mode) for part in site.pools)
    return "; ".join(filter(None, (*undone, manifest_objects.rollback(chosen)))) or "nothing is changed"


def _apply(site: Site, chosen: tuple[PlannedRelease, ...]) -> tuple[Step, ...]:
    if not _has_labels(site) and not chosen:
        return ()
    if site.pools == (site,):
        labels: Object = {"node_labels": _labels(site)}
    else:
        labels = {"group_labels": {group: _labels(part) for part in site.pools if part.pool for group in part.pool.groups}}
    arguments: Object = {
        "objects": manifest_objects.release_objects(site, chosen),
        **labels,
        "select": "gpu",
        "gate": CONTROL,
        "gate_expectations": _control_expectations(site, chosen),
    }
    return (
        Step(
            task=task(STAGE, "apply", Verb.APPLY, deadline=600, arguments=arguments),
            rules=(
                Rule(groups=("",), resources=("nodes",), verbs=("get", "list", "patch")),
                *rights.release_rules(site, chosen),
                *_READS,
            ),
        ),
    )


def _has_labels(site: Site) -> bool:
    return any(map(_labels, site.pools))


def _control_expectations(site: Site, chosen: tuple[PlannedRelease, ...]) -> Object:
    spec = site.spec
    modes = tuple(dict.fromkeys(_effective_mode(part.spec) for part in site.pools))
    # nodes without a label get the device plugin's default, whole GPUs
    mode = modes[0] if len(modes) == 1 else "none"
    expectations: Object = {"mode": mode, "spare": manifest_objects.spare_nodes(site, STAGE)}
    if chosen:
        expectations["releases"] = [manifest_objects.expected_release(site, release) for release in chosen]
        expectations |= manifest_objects.root_app(site, chosen)
    if has_gpu_cluster(spec):
        expectations["root"] = "GPUCluster"
    if site.pools == (site,) and mode in ("time_slicing", "mps"):
        expectations |= {"key": _labels(site)["nvidia.com/device-plugin.config"], "shares": _shares(spec)}
    elif configs := _configs(site):
        expectations["configs"] = configs
    if strategy := mig_strategy(spec):
        expectations["mig_strategy"] = strategy
    if mode == "dra":
        expectations["device_classes"] = ["gpu.nvidia.com"]
    daemons = _daemons(site, modes)
    return expectations | ({"daemons": daemons} if daemons and not has_gpu_cluster(spec) else {})


def _configs(site: Site) -> dict[str, Object]:
    """Return the shares of all pools by their key in the device plugin's ConfigMap."""
    parts = [part for part in site.pools if part.pool and part.spec.sharing.mode in ("time_slicing", "mps")]
    return {part.pool.key: _shares(part.spec) for part in parts if part.pool}


def _shares(spec: ClusterSpec) -> Object:
    sharing = spec.sharing
    shares: Object = {"strategy": "timeSlicing", "replicas": sharing.replicas or 1, "rename": sharing.rename}
    if sharing.mode == "mps":
        return shares | {"strategy": "mps"}
    return shares | {"refuse_two": sharing.fail_requests_greater_than_one}


def _daemons(site: Site, modes: Iterable[str]) -> list[str]:
    """Return the GPU Operator's DaemonSets that the modes need; DRA's standalone driver is not one, but a release of its own."""
    operator = site.releases.get("gpu_operator")
    plugin = operator is None or value_at(operator.values, "devicePlugin.enabled") is not False
    by_mode = {"mps": ["nvidia-device-plugin-mps-control-daemon"], "mig": ["nvidia-mig-manager"]}
    return [*(["nvidia-device-plugin-daemonset"] if plugin else []), *(name for mode in modes for name in by_mode.get(mode, []))]


def _control(site: Site, chosen: tuple[PlannedRelease, ...]) -> Step:
    expectations = _control_expectations(site, chosen)
    compared: Object = {key: expectations[key] for key in ("releases", "root_app") if key in expectations}
    arguments: Object = {"gate": CONTROL, "select": "gpu", "stable_seconds": 10, "namespaces": ["gpu-operator"], **compared}
    return Step(
        task=task(STAGE, "control", Verb.WAIT, deadline=CONTROL_SECONDS, arguments=arguments, expectations=expectations),
        after=("apply",) if chosen or _has_labels(site) else (),
        rules=(*rights.gate_rules(site, chosen), *_READS),
    )


_READS = (
    Rule(groups=("nvidia.com",), resources=("clusterpolicies", "gpuclusters"), verbs=("get",)),
    Rule(groups=("",), resources=("configmaps",), verbs=("get",), namespaces=("gpu-operator",)),
    Rule(groups=("apps",), resources=("daemonsets",), verbs=("list",), namespaces=("gpu-operator",)),
    Rule(groups=("",), resources=("pods",), verbs=("list",), namespaces=("gpu-operator",)),
    Rule(groups=("resource.k8s.io",), resources=("deviceclasses", "resourceslices"), verbs=("list",)),
)


def _nodes(site: Site) -> Step:
    mode = site.spec.sharing.mode
    deadline = NODES_SECONDS.get(mode, OTHER_NODES_SECONDS)
    arguments = {"gate": NODES, "select": site.gpu_select, "decides": False, "stable_seconds": 10, "namespaces": ["gpu-operator"]}
    return Step(
        task=task(
            STAGE, site.named("nodes"), Verb.WAIT, deadline=deadline, arguments=arguments, expectations=_nodes_expectations(site)
        ),
        after=("control",),
        rules=(Rule(groups=("",), resources=("nodes",), verbs=("list",)), *_READS[-1:], *rights.DIAGNOSE),
    )


def _nodes_expectations(site: Site) -> Object:
    spec = site.spec
    mode = _effective_mode(spec)
    expectations: Object = {"mode": mode, **manifest_objects.gpu_counts(site)}
    names = advertised(spec)
    if mode == "dra":
        return expectations | {"labels": _labels(site)}
    expectations |= {"resource": names[0], "units": allocatable(spec, 1)[names[0]], "labels": _expected_labels(site)}
    return expectations | ({"mig": _labels(site)["nvidia.com/mig.config"]} if mode == "mig" else {})


def _effective_mode(spec: ClusterSpec) -> str:
    """Return the sharing mode by which nodes are judged: `dra` if the GPU Operator uses DRA, else the mode of the spec."""
    return "dra" if has_gpu_cluster(spec) else spec.sharing.mode


def _expected_labels(site: Site) -> dict[str, str]:
    """Return the node labels that turn sharing on, and those that GPU feature discovery must then set.

    Quotas and schedulers select nodes by these labels.
    """
    spec, mode = site.spec, site.spec.sharing.mode
    labels = {**_labels(site), PRODUCT_LABEL: product_label(spec)}
    if mode in STRATEGY_LABELS:
        labels["nvidia.com/gpu.sharing-strategy"] = STRATEGY_LABELS[mode]
        labels["nvidia.com/gpu.replicas"] = str(spec.sharing.replicas or 1)
    return labels


def _functional(site: Site, after: tuple[str, ...], counts: dict[str, int]) -> Step:
    spec, sharing = site.spec, site.spec.sharing
    refuse_two = sharing.mode == "time_slicing" and sharing.fail_requests_greater_than_one
    single = unit_checks.single_units(counts)
    # the rarer kind of node is named, because the task must stay small
    pair = 2 * len(single) < len(counts)
    others = single if pair else tuple(name for name in counts if name not in set(single))
    expectations: Object = {"mode": _effective_mode(spec), "exclusive": sharing.mode not in ("time_slicing", "mps")}
    expectations |= {"refuse_two": True} if refuse_two else {}
    expectations |= ({} if pair else {"pair": False}) | ({"others": list(others)} if others else {})
    jobs = [_job(spec, "sharing-first")]
    if pair or others:
        jobs.append(_on_several_units(_job(spec, "sharing-second"), pair=pair, others=others))
    jobs += [_job(spec, "sharing-two")] if refuse_two else []
    claims, space = _claims(spec, CHECK), (manifest_objects.CHECK_NAMESPACE,)
    maps = Rule(groups=("",), resources=("configmaps",), verbs=("get", "create", "delete"), namespaces=space)
    return manifest_objects.check_step(
        STAGE,
        FUNCTIONAL,
        CHECK,
        [_script_map(), *claims, *jobs],
        deadline=CHECK_SECONDS,
        expectations=expectations,
        rules=(maps, rights.GPU_CLAIMS) if claims else (maps,),
        name=site.named("functional"),
        waits_for=after,
        passed=(site.named("nodes"),),
        select=site.gpu_select,
        namespaces=["gpu-operator"],
    )


def _on_several_units(job: Object, *, pair: bool, others: tuple[str, ...]) -> Object:
    """Return the Job of the second pods, limited to nodes with two units: all but `others`, or with `pair` false `others`.

    Pods that find no such node stay Pending; the gate judges nodes, and the clean-up removes the pods.
    """
    if not others:
        return job
    expression = {"key": manifest_objects.HOSTNAME, "operator": "NotIn" if pair else "In", "values": list(others)}
    terms = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms["nodeSelectorTerms"][0]["matchExpressions"].append(expression)
    count = {} if pair else {"completions": len(others), "parallelism": len(others)}
    return {**job, "spec": job["spec"] | count}


def _limit(site: Site, fill: unit_checks.NodeFill) -> Step:
    """Return the task that asks one node for more than it has: the pods of one Job must all run on one node."""
    spec = site.spec
    beside = {
        "labelSelector": {"matchLabels": {manifest_objects.CHECK_LABEL: LIMIT_CHECK}},
        "topologyKey": manifest_objects.HOSTNAME,
    }
    affinity = _node_affinity(fill) | {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    seconds = LIMIT_SECONDS if fill.pods * fill.each <= FEW_UNITS else SLOW_SECONDS
    pod = {"affinity": affinity, **_with_device(spec, LIMIT_CHECK, _container(spec, LIMIT_CHECK, seconds))}
    claims = _claims(spec, LIMIT_CHECK)
    # device plugins that share GPUs refuse several units in one container, not in one pod
    holder = manifest_objects.container(spec.validation.image, f"sleep {seconds}", resources=pod["containers"][0]["resources"])
    pod["containers"] += [{**holder, "name": f"hold-{number}"} for number in range(2, fill.each + 1)]
    job = manifest_objects.per_node_job(STAGE, LIMIT_CHECK, pod, seconds=CHECK_SECONDS - 60)
    job["spec"] |= {"completions": fill.pods + 1, "parallelism": fill.pods + 1}
    expectations: Object = {"mode": _effective_mode(spec), "units": fill.pods * fill.each}
    return manifest_objects.check_step(
        STAGE,
        LIMIT,
        LIMIT_CHECK,
        [*claims, job],
        deadline=CHECK_SECONDS,
        expectations=expectations | ({"each": fill.each} if fill.each > 1 else {}),
        name=site.named("limit"),
        rules=(rights.GPU_CLAIMS,) if claims else (),
        waits_for=(site.named("functional"),),
        passed=(site.named("nodes"), site.named("functional")),
        select=site.gpu_select,
        namespaces=["gpu-operator"],
    )


def _claims(spec: ClusterSpec, check: str) -> list[Object]:
    """Return the template from which each pod of a check gets a claim for one GPU (DRA) in a list; empty in other modes."""
    return [manifest_objects.gpu_claims(STAGE, check, every=False)] if _effective_mode(spec) == "dra" else []


def _job(spec: ClusterSpec, role: str) -> Object:
    """Return a Job with one pod of the role on each node, which holds one unit (`sharing-two`: two)."""
    job = manifest_objects.per_node_job(
        STAGE, CHECK, _with_device(spec, role, _container(spec, role, HOLD_SECONDS)), seconds=CHECK_SECONDS - 60
    )
    template = job["spec"]["template"]
    template["spec"]["volumes"] = [{"name": "script", "configMap": {"name": CHECK}}]
    template["metadata"]["labels"] = {**template["metadata"]["labels"], ROLE_LABEL: role}
    template["spec"]["affinity"] = manifest_objects.one_a_node(
        {ROLE_LABEL: role}, manifest_objects.HOSTNAME, manifest_objects.NODES
    )
    return {**job, "metadata": {**job["metadata"], "name": role}}


def _container(spec: ClusterSpec, role: str, seconds: int) -> Object:
    environment = [
        manifest_objects.node_name(),
        {"name": "SECONDS_TO_HOLD", "value": str(seconds)},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
    ]
    if role == LIMIT_CHECK:
        return manifest_objects.container(spec.validation.image, _script(), env=environment)
    if role == "sharing-two":  # where it starts at all the gate fails
        return manifest_objects.container(spec.validation.image, f"sleep {seconds}")
    mounts = [{"name": "script", "mountPath": "/check"}]
    return manifest_objects.container(spec.validation.image, f". /check/{SCRIPT}", env=environment, volumeMounts=mounts)


def _script() -> str:
    return manifest_objects.script("cuda_add.sh", "sharing_hold.sh")


def _script_map() -> Object:
    """Return the ConfigMap with the script of both pods: written into each of them it would not fit into the task."""
    meta = manifest_objects.check_metadata(STAGE, CHECK)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {SCRIPT: _script()}}


def _with_device(spec: ClusterSpec, role: str, container: Object) -> Object:
    """Return the pod spec fields that give a container its GPU: a claim, a request, or the device number if Slurm holds all GPUs.

    By number the container is unprivileged, so the container toolkit must show it that one device and no other. Earlier gates count
    the devices that a node advertises, and the check of stage slurm shows who holds them.
    """
    check = LIMIT_CHECK if role == LIMIT_CHECK else CHECK
    if _claims(spec, check):
        return manifest_objects.pod_with_claim(check, container)
    # Slurm's node pods hold every unit once Slurm's stage has run: a second run finds none free to request
    if spec.slurm.kind != "none" and spec.sharing.mode == "none":
        number = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "1" if role == "sharing-second" else "0"}
        return {"runtimeClassName": "nvidia", "containers": [{**container, "env": [*container["env"], number]}]}
    units = 2 if role == "sharing-two" else 1
    return {"containers": [{**container, "resources": {"limits": {advertised(spec)[0]: units}}}]}


def _node_affinity(fill: unit_checks.NodeFill) -> Object:
    """Return the affinity of a pod to the nodes that passed the earlier gates and have as many units as the pods fill."""
    expressions: list[Object] = [{"key": manifest_objects.HOSTNAME, "operator": "In", "values": manifest_objects.NODES}]
    names = (("NotIn", fill.avoided), ("In", fill.allowed))
    expressions += [
        {"key": manifest_objects.HOSTNAME, "operator": operator, "values": list(hosts)} for operator, hosts in names if hosts
    ]
    terms = [{"matchExpressions": expressions}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
