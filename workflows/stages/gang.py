"""Stage gang: a gang scheduler, quotas, or both, proven by a gang of pods that must not start and by one that must run.

The gang that must not start has one member more than all GPUs of the plan can hold (`steps/docs/facts/gpu.md`, Functional gate of a
gang scheduler). It stays too large whatever part of the nodes is cordoned or busy, and it exposes a scheduler that binds pods one
by one. Each member of the gang that must run executes a CUDA kernel on its GPUs and ends.

If pods cannot request GPUs, members are spread one a node, and report only where they ran. This is so with DRA, where nodes
advertise no GPU resource, and with Slurm, whose node pods hold every GPU, so that a second run would find none free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.catalog.slurm_values import toleration
from workflows.catalog.templating import covered_resources
from workflows.spec.cluster_spec import (
    GPU,
    GROUP_LABEL,
    ClusterSpec,
    advertised,
    allocatable,
    gpu_groups,
    max_pods,
    node_labels,
    own_taints,
)
from workflows.spec.gpu_pools import PoolFlavor, quota_flavors
from workflows.stage_names import StageName
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Change, Object, Rule, Site, Stage, Step, task

STAGE: StageName = "gang"
KUEUE = "kueue"
SPACE = (manifest_objects.CHECK_NAMESPACE,)
RULES: dict[str, tuple[Rule, ...]] = {
    "volcano": (Rule(groups=("batch.volcano.sh",), resources=("jobs",), verbs=("get", "create", "delete"), namespaces=SPACE),),
    "kai": (),
    KUEUE: (
        Rule(groups=("kueue.x-k8s.io",), resources=("clusterqueues",), verbs=("get", "create", "delete")),
        Rule(groups=("kueue.x-k8s.io",), resources=("localqueues",), verbs=("get", "create", "delete"), namespaces=SPACE),
    ),
}
"""Scheduler → the rights that the objects of its check need, in addition to those of every check."""


@dataclass(frozen=True, kw_only=True)
class Gang:
    """A gang of `count` pods that the check `check` creates for a scheduler, with the size of each member.

    The pods end by themselves after `seconds` if nobody deletes them. Members of a gang that `runs` report what they did. `flavor`
    is the flavor in which a queue of Kueue admits the gang.
    """

    check: str
    count: int
    seconds: int
    sizes: Sizes
    scheduler: str
    runs: bool = False
    flavor: str = ""

    @property
    def units(self) -> int:
        """Units of the resource that each member takes."""
        return 1 if self.runs and self.sizes.single else self.sizes.units

    @property
    def quota(self) -> int:
        """Amount of a queue's quota that the whole gang takes; members that request nothing are counted as pods."""
        return self.count * (1 if self.sizes.apart else self.units)


def check_objects(gang: Gang, spec: ClusterSpec, *, within: bool = False) -> list[Object]:
    """Return the Kubernetes objects of a gang for its scheduler, in the order in which they must be created.

    `within`: other GPU nodes advertise resources too, so the members are kept on nodes of the spec's groups.
    """
    pod = _pod(gang, spec, within=within)
    if gang.scheduler == "volcano":
        return [_volcano(gang, pod)]
    if gang.scheduler == "kai":
        labels = {"kai.scheduler/queue": "default-queue"}
        notes = {"kai.scheduler/batch-min-member": str(gang.count)}
        return [_batch(gang, pod, labels, notes, {"schedulerName": "kai-scheduler"})]
    local_queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": manifest_objects.check_metadata(STAGE, gang.check),
        "spec": {"clusterQueue": gang.check},
    }
    job = _batch(gang, pod, {"kueue.x-k8s.io/queue-name": gang.check}, {}, {})
    # Kueue's webhook suspends Jobs too, but while the webhook is down a pod could slip through
    job["spec"]["suspend"] = True
    return [_cluster_queue(gang), local_queue, job]


def _volcano(gang: Gang, pod: Object) -> Object:
    """Return a Volcano Job that starts only if all members can start at once, and that retries none."""
    template = {"metadata": {"labels": manifest_objects.check_labels(STAGE, gang.check)}, "spec": pod}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": manifest_objects.check_metadata(STAGE, gang.check),
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": gang.count,
            "maxRetry": 1,
            "ttlSecondsAfterFinished": 3600,
            "tasks": [{"name": "member", "replicas": gang.count, "template": template}],
        },
    }


def _batch(gang: Gang, pod: Object, labels: dict[str, str], notes: dict[str, str], fields: Object) -> Object:
    """Return a batch Job with one pod per member. The pods carry `labels` too, because KAI reads its queue from the pod."""
    base = manifest_objects.check_metadata(STAGE, gang.check)
    meta = {**base, "labels": base["labels"] | labels, **({"annotations": notes} if notes else {})}
    template = {"metadata": {"labels": manifest_objects.check_labels(STAGE, gang.check) | labels}, "spec": pod | fields}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "parallelism": gang.count,
            "completions": gang.count,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 3600,
            "template": template,
        },
    }


def _cluster_queue(gang: Gang) -> Object:
    """Return the ClusterQueue of a gang, with a quota one unit short of the oversized gang, or just enough for the gang that fits.

    If members request nothing, the quota counts pods.
    """
    sizes = gang.sizes
    quota = gang.quota if gang.runs else gang.quota - 1
    flavors = [{"name": gang.flavor, "resources": [{"name": sizes.resource, "nominalQuota": quota}]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": gang.check, "labels": manifest_objects.check_labels(STAGE, gang.check)},
        "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [sizes.resource], "flavors": flavors}]},
    }


def _pod(gang: Gang, spec: ClusterSpec, *, within: bool) -> Object:
    """Return the pod spec of a gang member on a node of the GPU groups.

    The pod requests its units of the resource, and with `within` a node of these groups; a member that is spread one a node has an
    anti-affinity instead.
    """
    groups = _group_labels(spec)
    apart, limits = gang.sizes.apart, {gang.sizes.resource: gang.units}
    spread = manifest_objects.one_a_node({manifest_objects.CHECK_LABEL: gang.check}, GROUP_LABEL, groups)
    affinity = spread if apart else {"nodeAffinity": spread["nodeAffinity"]} if within else {}
    resources: Object = {} if apart else {"resources": {"limits": limits}}
    taints = sorted({taint for group in spec.hosts.values() if group.gpu for taint in group.taints})
    keys = [*own_taints(spec), "nvidia.com/gpu"]
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": gang.seconds,
        "tolerations": [*map(toleration, taints), *({"key": key, "operator": "Exists"} for key in keys)],
        **({"affinity": affinity} if affinity else {}),
        "containers": [_container(gang, spec, resources)],
    }


def _group_labels(spec: ClusterSpec) -> list[str]:
    """Return the values of the label `bringup/group` on GPU nodes."""
    return sorted(node_labels(spec, name)[GROUP_LABEL] for name in gpu_groups(spec))


def _container(gang: Gang, spec: ClusterSpec, resources: Object) -> Object:
    """Return the container of a gang member: it sleeps, or holds its place for a while and then reports.

    A member with GPUs runs a CUDA kernel on each, which takes the image of the validation: the check image has no CUDA.
    """
    if not gang.runs:
        return manifest_objects.container(spec.check_image, f"sleep {gang.seconds}", **resources)
    env = [manifest_objects.node_name(), {"name": "SECONDS_TO_HOLD", "value": str(hold_seconds(gang.count))}]
    if gang.sizes.apart:
        return manifest_objects.container(spec.check_image, manifest_objects.script("gang_member.sh"), env=env, **resources)
    env.append({"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"})
    script = manifest_objects.script("cuda_add.sh", "sharing_hold.sh")
    return manifest_objects.container(spec.validation.image, script, env=env, **resources)


CONTROL, NODES, OVERSIZE, FIT = "gang/control", "gang/nodes", "gang/oversize", "gang/functional"
MARGIN_SECONDS = 300
NODES_SECONDS = 300
CHECK_SECONDS = 420
"""Time limit in seconds of the gang that must not start: 60 s to watch it, and time to create thousands of pods."""
RUN_SECONDS = 3000
"""Time limit in seconds of the gang that must run, which may have to pull the image of the validation.

It is one for all sizes, so that the manifest does not depend on the number of nodes: 10,000 members take up to 2,700 s. The gate
gives up earlier, by limits that follow the gang's size.
"""
HOLD_SECONDS = 60
"""Seconds for which each member of a small gang that must run holds its place: see `hold_seconds`."""
START_SECONDS = 30
"""Part of the hold for the start of the last container. The images are on the nodes, because earlier checks have used them."""
PLACED_A_SECOND = 10
"""Members of a gang that are created and bound in a second at least.

Job controllers create about 20 pods a second (`--kube-api-qps` of kube-controller-manager), and binders are faster.
"""
WITHIN_SECONDS, ENDED_SECONDS = 180, 600
"""Seconds from creation to the last binding, and from there to the last end, that small gangs have."""
PODS = "pods"
"""Resource name by which spread members are counted: each counts as all pods that its node can take."""
MOST_PODS = 1024
"""Number of GPU units from which each member takes a whole node, so that the check stays smaller than the site's real jobs."""

DEPLOYMENTS = {
    "volcano": ("volcano-scheduler", "volcano-controllers", "volcano-admission"),
    "kai_scheduler": (
        "kai-operator",
        "kai-scheduler-default",
        "admission",
        "binder",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
    ),
    "kueue": ("kueue-controller-manager",),
}
"""Release id → its Deployments that must run. KAI's chart installs only the operator, which creates the others."""

QUEUES = {"volcano": "Queue default", "kai_scheduler": "Queue default-queue"}
"""Release id → the queue that the scheduler creates by itself and that the check uses."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Number of members of the oversized gang and of the gang that fits, and the `units` of `resource` that each member takes.

    With `apart`, members are spread one a node and request nothing. With `single`, members of the gang that fits take one unit
    each, because kubelets refuse pods that request several shares of GPUs.
    """

    oversize: int
    fit: int
    units: int
    resource: str
    apart: bool = False
    single: bool = False


def build(site: Site) -> Stage | None:
    """Return stage gang, or None if the spec has no gang scheduler and no quotas, or no GPUs."""
    chosen = manifest_objects.releases(site, STAGE)
    spec = site.spec
    if not chosen or spec.accelerator is None:
        return None
    quota_objects = _quota_objects(spec, chosen)
    # quota objects need a task of their own between the charts and the gate on everything
    gates: dict[str, str | Object] = {"charts": CONTROL} if quota_objects else {}
    steps = [
        # the gate for reuse leaves out the objects that a later task applies
        manifest_objects.apply_step(site, STAGE, chosen, CONTROL, _expectations(site, chosen, []), _CONTROL),
        *_configure(site, chosen, quota_objects),
        _wait(site, chosen, "control", "configure" if quota_objects else "apply", _expectations(site, chosen, quota_objects)),
    ]
    gates |= {"control": CONTROL}
    for part in _parts(site):
        for step in _proofs(part, steps[-1].name, _flavor_of(site, part)):
            steps.append(step)
            gate = str(step.task.arguments["gate"])
            gates[step.name] = manifest_objects.pool_check(site, part, STAGE, gate) if gate == NODES else gate
    return Stage(
        id=STAGE,
        title="Gang scheduling and quota",
        steps=(*steps, manifest_objects.judge(site, STAGE, gates, members=_members(site))),
        gates=tuple(dict.fromkeys(str(step.task.arguments["gate"]) for step in steps if step.name not in ("apply", "configure"))),
        changes=_changes(chosen, quota_objects),
        rollback=manifest_objects.rollback(chosen),
        releases=tuple(release.id for release in chosen),
    )


def _parts(site: Site) -> tuple[Site, ...]:
    """Return a site for each pool whose GPUs gangs get: all pools; with Kueue alone those whose GPUs are under quota."""
    if len(site.pools) < 2 or site.spec.scheduler.gang != "none":
        return site.pools
    return tuple(part for part in site.pools if _flavor_of(site, part)) or site.pools


def _flavors(site: Site) -> tuple[PoolFlavor, ...]:
    """Return Kueue's flavors; empty without quotas."""
    return () if site.spec.scheduler.quota == "none" else quota_flavors(site.spec)


def _flavor_of(site: Site, part: Site) -> PoolFlavor | None:
    """Return the flavor of the quota under which the GPUs of one of the site's pools are; None if they are under none."""
    name = part.pool.name if part.pool else None
    return next((flavor for flavor in _flavors(site) if name is None or name in flavor.groups), None)


def _members(site: Site) -> str:
    """Return the selector of the machines of which the quorum counts: those that take part in the gangs."""
    parts = _parts(site)
    return "gpu" if len(parts) == len(site.pools) else parts[0].gpu_select


def _proofs(site: Site, after: str, flavor: PoolFlavor | None) -> list[Step]:
    """Return the tasks that prove the schedulers of one pool, one after the other, the first after the task `after`.

    The second gang needs the room that a failing first one would hold. Beside a gang scheduler, two more gangs go through a queue
    of Kueue if the pool is under quota in `flavor`: the states of its objects do not show that it holds Jobs back and lets them in.
    """
    sizes, main = gang_sizes(site), scheduler(site.spec)
    steps = [_nodes(site, sizes, _labels((flavor,) if flavor else ()), after)]
    rounds = {main: ("oversize", "functional")}
    if flavor is not None:
        rounds.setdefault(KUEUE, ("quota_oversize", "quota_functional"))
    for placed_by, (large, small) in rounds.items():
        seconds = CHECK_SECONDS + MARGIN_SECONDS
        oversize = Gang(check="gang-oversize", count=sizes.oversize, seconds=seconds, sizes=sizes, scheduler=placed_by)
        seconds = RUN_SECONDS + MARGIN_SECONDS
        fit = Gang(check="gang-fit", count=sizes.fit, seconds=seconds, sizes=sizes, scheduler=placed_by, runs=True)
        for gang, name, gate in ((oversize, large, OVERSIZE), (fit, small, FIT)):
            steps.append(_check(site, replace(gang, flavor=flavor.name if flavor else ""), name, gate, steps[-1].name))
    return steps


def scheduler(spec: ClusterSpec) -> str:
    """Return the name of the scheduler that places the check's gangs: the gang scheduler, or `kueue` with quotas only."""
    return spec.scheduler.gang if spec.scheduler.gang != "none" else KUEUE


def gang_sizes(site: Site) -> Sizes:
    """Return the sizes of the two gangs: one member more than all GPUs (or nodes) hold, and one member per node of the quorum.

    The gang that fits has at least two members if the fleet can hold them.
    """
    spec, machines = site.spec, [machine for machine in site.machines if machine.gpu]
    needed = max(site.needed(STAGE, "gpu"), 2)
    if spec.slurm.kind != "none" or not advertised(spec):
        fit = min(needed, site.count("gpu"))
        return Sizes(oversize=len(site.machines) + 1, fit=fit, units=max_pods(spec), resource=PODS, apart=True)
    per_gpu = max(allocatable(spec, 1).values(), default=1)
    total = sum(machine.gpus for machine in machines) * per_gpu
    units = 1
    if total >= MOST_PODS and spec.accelerator is not None:
        units = spec.accelerator.per_node * per_gpu
    single = spec.sharing.mode in ("time_slicing", "mps")
    return Sizes(
        oversize=total // units + 1, fit=min(needed, total // units), units=units, resource=advertised(spec)[0], single=single
    )


def hold_seconds(count: int) -> int:
    """Return the seconds for which each of `count` members that must run holds its place.

    All must run at one moment, so the first must still hold its place when the last, which is created much later, starts.
    """
    return max(HOLD_SECONDS, START_SECONDS + count // PLACED_A_SECOND)


def _time_limits(gang: Gang) -> Object:
    """Return the expectations of time that a large gang that must run needs in addition."""
    if not gang.runs:
        return {}
    hold = hold_seconds(gang.count)
    longer, later = hold - HOLD_SECONDS, max(hold - WITHIN_SECONDS, 0)
    limits: Object = {"within_seconds": WITHIN_SECONDS + later} if later else {}
    return limits | ({"run_seconds": ENDED_SECONDS + longer} if longer else {})


def _changes(chosen: tuple[PlannedRelease, ...], made: list[Object]) -> tuple[Change, ...]:
    installs = manifest_objects.installs(chosen)
    names = ", ".join(f"{item['kind']} {item['metadata']['name']}" for item in made if item["kind"] != "Namespace")
    return (*installs, Change(what=f"apply {names}", where="cluster")) if made else installs


def _quota_objects(spec: ClusterSpec, chosen: tuple[PlannedRelease, ...]) -> list[Object]:
    """Return the tenants' Namespaces and Kueue's flavor and queues; empty if the catalog plans no such objects."""
    own_objects = [dict(item) for release in chosen for item in release.objects]
    spaces = dict.fromkeys(queue.namespace for queue in spec.scheduler.queues)
    return [*(manifest_objects.namespace(name) for name in spaces), *own_objects] if own_objects else []


def _expectations(site: Site, chosen: tuple[PlannedRelease, ...], made: list[Object]) -> Object:
    expectations: Object = {
        "releases": [manifest_objects.expected_release(site, release) for release in chosen],
        "deployments": [f"{release.namespace}/{name}" for release in chosen for name in DEPLOYMENTS.get(release.id, ())],
        "queues": [QUEUES[release.id] for release in chosen if release.id in QUEUES],
        **manifest_objects.root_app(site, chosen),
    }
    if made:
        for queue in (item for item in made if item["kind"] in ("ClusterQueue", "LocalQueue")):
            space, name = queue["metadata"].get("namespace"), queue["metadata"]["name"]
            expectations["queues"].append(f"{queue['kind']} {f'{space}/{name}' if space else name}")
        flavors = _flavors(site)
        expectations |= {"flavors": _labels(flavors), "covered": list(covered_resources(flavors)), **_counted(site, flavors)}
    return expectations


def _counted(site: Site, flavors: tuple[PoolFlavor, ...]) -> Object:
    """Return the expectations about the amounts that quotas may promise; with DRA nothing counts the GPUs."""
    if not any(flavor.resources for flavor in flavors):
        return {"claims": True}
    spare = {flavor.name: _spare_units(site, flavor) for flavor in flavors}
    if len(flavors) == 1:
        return spare[flavors[0].name]
    return {"pools": {flavor.name: {"resources": list(flavor.resources), **spare[flavor.name]} for flavor in flavors}}


def _spare_units(site: Site, flavor: PoolFlavor) -> Object:
    """Return how many units the nodes of a flavor advertise that the stage's quorum forgives, if they are the largest ones.

    `spare` is the number of most; `spares` has the resources of which these nodes advertise another one.
    """
    nodes = [allocatable(pool.spec) for pool in flavor.pools for _ in pool.spec.gpu_machines]
    forgiven = manifest_objects.spare_nodes(site, STAGE)
    units = {
        resource: sum(sorted((node.get(resource, 0) for node in nodes), reverse=True)[:forgiven]) for resource in flavor.resources
    }
    most = max(units.values(), default=0)
    others = {resource: number for resource, number in units.items() if number != most}
    return {"spare": most, **({"spares": others} if others else {})}


def _labels(flavors: Iterable[PoolFlavor]) -> dict[str, dict[str, str]]:
    """Return flavor name → labels of its nodes. Sharing changes `nvidia.com/gpu.product`, so it has the value after sharing."""
    return {flavor.name: dict(flavor.labels) for flavor in flavors}


def _wait(site: Site, chosen: tuple[PlannedRelease, ...], name: str, after: str, expectations: Object) -> Step:
    deadline = sum(release.timeout_seconds for release in chosen) + MARGIN_SECONDS
    arguments = {
        "gate": CONTROL,
        "select": "gpu",
        "stable_seconds": 10,
        "namespaces": list(dict.fromkeys(release.namespace for release in chosen)),
        "releases": expectations["releases"],
        **manifest_objects.root_app(site, chosen),
    }
    return Step(
        task=task(STAGE, name, Verb.WAIT, deadline=deadline, arguments=arguments, expectations=expectations),
        after=(after,),
        rules=(*rights.gate_rules(site, chosen), *_CONTROL),
    )


def _configure(site: Site, chosen: tuple[PlannedRelease, ...], made: list[Object]) -> tuple[Step, ...]:
    """Return the two tasks that wait for Kueue's chart, whose CRDs and webhook they need, and then apply the quota objects.

    The result is empty if there are none.
    """
    if not made:
        return ()
    charts = _wait(site, chosen, "charts", "apply", _expectations(site, chosen, []))
    arguments = {"objects": made, "gate": CONTROL, "gate_expectations": _expectations(site, chosen, made)}
    kinds = ("resourceflavors", "clusterqueues", "localqueues")
    verbs = ("get", "create", "patch")
    configure = Step(
        task=task(STAGE, "configure", Verb.APPLY, deadline=300, arguments=arguments),
        after=("charts",),
        rules=(
            Rule(groups=("kueue.x-k8s.io",), resources=kinds, verbs=verbs),
            Rule(groups=("",), resources=("namespaces",), verbs=verbs),
            *rights.CLAIM,
            *rights.gate_rules(site, chosen),
            *_CONTROL,
        ),
    )
    return charts, configure


_READS = (
    Rule(groups=("scheduling.volcano.sh", "scheduling.run.ai"), resources=("queues", "podgroups"), verbs=("list",)),
    Rule(
        groups=("kueue.x-k8s.io",),
        resources=("clusterqueues", "localqueues", "resourceflavors", "workloads", "cohorts"),
        verbs=("list",),
    ),
)
_ANYBODY = (
    Rule(groups=("apps",), resources=("deployments", "statefulsets", "daemonsets"), verbs=("list",)),
    Rule(
        groups=("admissionregistration.k8s.io",),
        resources=("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
        verbs=("list",),
    ),
)
"""Rights to look for a second scheduler, which can run in any namespace."""
_CONTROL = (*_READS, *_ANYBODY)
_WORLD = (Rule(groups=("",), resources=("nodes", "pods"), verbs=("list",)),)
"""Rights to read every node and every pod, from which the free units are counted."""


def _nodes(site: Site, sizes: Sizes, flavors: dict[str, dict[str, str]], after: str) -> Step:
    resource = sizes.resource
    labels = sorted({key for node_labels in flavors.values() for key in node_labels})
    arguments = {"gate": NODES, "select": site.gpu_select, "decides": False, "resource": resource, "labels": labels}
    expectations = {"resource": resource, "flavors": flavors}
    return Step(
        task=task(STAGE, site.named("nodes"), Verb.WAIT, deadline=NODES_SECONDS, arguments=arguments, expectations=expectations),
        after=(after,),
        rules=(*_WORLD, *rights.DIAGNOSE),
    )


def _check(site: Site, gang: Gang, name: str, gate: str, after: str) -> Step:
    spec = site.spec
    expectations: Object = {"scheduler": gang.scheduler, "count": gang.count, "units": gang.units, **_time_limits(gang)}
    if gang.sizes.apart:
        expectations["quota"] = gang.quota
    elif gang.runs:
        expectations |= {"devices": gang.units, **({"shared": True} if gang.sizes.single else {})}
    elif gang.sizes.resource != GPU:
        expectations["resource"] = gang.sizes.resource
    return manifest_objects.check_step(
        STAGE,
        gate,
        gang.check,
        check_objects(gang, spec, within=site.pool is not None),
        deadline=RUN_SECONDS if gang.runs else CHECK_SECONDS,
        expectations=expectations,
        name=site.named(name),
        waits_for=(after,),
        passed=(site.named("nodes"),),
        rules=(*RULES[gang.scheduler], *_WORLD, *_READS),
        select=site.gpu_select,
        scheduler=gang.scheduler,
        resource=gang.sizes.resource,
        **({"within": {GROUP_LABEL: _group_labels(spec)}} if site.pool else {}),
    )
