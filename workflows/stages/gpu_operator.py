"""Stage gpu_operator: driver, container toolkit, device plugin and feature discovery on every GPU node, proven by CUDA."""

from __future__ import annotations

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.catalog.templating import value_at
from workflows.spec.accelerators import numbers
from workflows.spec.cluster_spec import GPU, ClusterSpec, allocatable, product_label
from workflows.spec.fields import StageName
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Change, Object, Rule, Site, Stage, Step, task

STAGE: StageName = "gpu_operator"
RELEASE = "gpu_operator"
CHECK = "cuda-smoke"
CONTROL, NODES, FUNCTIONAL = "gpu_operator/control", "gpu_operator/nodes", "gpu_operator/functional"

CONTROL_SECONDS = 2700
"""Time limit of the control gate: a driver container may build for 20 minutes (its startup probe: 120 × 10 s), beside Helm and
image pulls.
"""

NODES_SECONDS = 1200
"""Time limit of the node gate: after the control gate only late nodes remain, with one more driver build."""

FLAPPING_BEFORE = (26, 7)
"""First version in which ClusterPolicy no longer reports ready in the middle of a driver upgrade (NVIDIA/gpu-operator#1567)."""


def build(site: Site) -> Stage | None:
    """Return the stage, or None for a cluster without GPUs."""
    release = site.releases.get(RELEASE)
    if release is None or site.spec.accelerator is None:
        return None
    gates = {"control": CONTROL, "nodes": NODES, "functional": FUNCTIONAL}
    return Stage(
        id=STAGE,
        title="GPU Operator",
        steps=(
            _apply(site, release),
            _control(site, release),
            _nodes(site),
            _functional(site),
            manifest_objects.judge(site, STAGE, gates),
        ),
        gates=tuple(gates.values()),
        changes=_changes(site, release),
        rollback=release.rollback,
        releases=(release.id,),
    )


def _changes(site: Site, release: PlannedRelease) -> tuple[Change, ...]:
    changes = [Change(what=f"install {release.release_name} {release.version}", where=release.namespace)]
    if value_at(release.values, "driver.enabled") is not False:
        changes.append(Change(what="load the NVIDIA driver", where=f"{site.count('gpu')} GPU nodes"))
    changes.append(Change(what="add the NVIDIA runtime to containerd, which restarts RKE2", where=f"{site.count('gpu')} GPU nodes"))
    return tuple(changes)


def _mode(spec: ClusterSpec) -> str:
    return spec.accelerator.operator_mode if spec.accelerator else "cluster_policy"


def _operands(spec: ClusterSpec, release: PlannedRelease) -> list[str]:
    """Return the DaemonSets that must run on every GPU node; a trailing dash marks a prefix (`steps/docs/facts/gpu.md`, GPU
    Operator).
    """
    driver = value_at(release.values, "driver.enabled") is not False
    if _mode(spec) == "gpu_cluster":
        return [*(["nvidia-gpu-driver-"] if driver else []), "nvidia-dra-driver-kubelet-plugin"]
    plugin = value_at(release.values, "devicePlugin.enabled") is not False
    return [
        *(["nvidia-driver-daemonset"] if driver else []),
        "nvidia-container-toolkit-daemonset",
        *(["nvidia-device-plugin-daemonset"] if plugin else []),
        "gpu-feature-discovery",
        "nvidia-operator-validator",
    ]


def _expectations(site: Site, release: PlannedRelease) -> Object:
    accelerator = site.spec.accelerator
    expectations: Object = {
        "releases": [manifest_objects.expected_release(site, release, workloads=2)],
        "least": site.needed(STAGE, "gpu"),
        "operands": _operands(site.spec, release),
        **manifest_objects.root_app(site, (release,)),
    }
    if _mode(site.spec) == "gpu_cluster":
        expectations["mode"] = "gpu_cluster"
    if accelerator and accelerator.driver == "operator" and accelerator.driver_version:
        expectations["driver"] = accelerator.driver_version
    return expectations


def _apply(site: Site, release: PlannedRelease) -> Step:
    arguments = {
        "objects": manifest_objects.release_objects(site, (release,)),
        "gate": CONTROL,
        "select": "gpu",
        "gate_expectations": _expectations(site, release),
        **manifest_objects.upgrades(site, (release,)),
    }
    return Step(
        task=task(STAGE, "apply", Verb.APPLY, deadline=300, arguments=arguments),
        rules=(*rights.release_rules(site, (release,)), *_READS),
    )


def _control(site: Site, release: PlannedRelease) -> Step:
    expectations = _expectations(site, release)
    arguments = {
        "gate": CONTROL,
        "select": "gpu",
        # versions that report ready too early must stay ready for longer
        "stable_seconds": 60 if numbers(release.version) < FLAPPING_BEFORE else 20,
        "namespaces": [release.namespace],
        "releases": expectations["releases"],
        **manifest_objects.root_app(site, (release,)),
    }
    return Step(
        task=task(STAGE, "control", Verb.WAIT, deadline=CONTROL_SECONDS, arguments=arguments, expectations=expectations),
        after=("apply",),
        rules=(*rights.gate_rules(site, (release,)), *_READS),
    )


_READS = (
    Rule(groups=("nvidia.com",), resources=("clusterpolicies", "gpuclusters"), verbs=("list",)),
    Rule(groups=("apps",), resources=("daemonsets",), verbs=("list",)),
    Rule(groups=("",), resources=("nodes",), verbs=("list",)),
)


def _nodes(site: Site) -> Step:
    spec = site.spec
    mode = {"mode": "gpu_cluster"} if _mode(spec) == "gpu_cluster" else {}
    arguments: Object = {
        "gate": NODES,
        "select": "gpu",
        # verdicts about nodes are only recorded here: the judge applies the quorum
        "decides": False,
        "stable_seconds": 10,
        "namespaces": ["gpu-operator"],
        **mode,
    }
    expectations: Object = {**manifest_objects.gpu_counts(site), **mode, "shapes": _shapes(spec), "products": _products(spec)}
    if spec.accelerator and spec.accelerator.driver_version:
        expectations["driver"] = spec.accelerator.driver_version
    return Step(
        task=task(STAGE, "nodes", Verb.WAIT, deadline=NODES_SECONDS, arguments=arguments, expectations=expectations),
        after=("control",),
        rules=(*_READS, Rule(groups=("resource.k8s.io",), resources=("resourceslices",), verbs=("list",)), *rights.DIAGNOSE),
    )


def _shapes(spec: ClusterSpec) -> list[dict[str, int]]:
    """Return the resources that a node may advertise per GPU: whole GPUs, or on a second run those of the sharing stage."""
    if spec.sharing.mode == "dra" or _mode(spec) == "gpu_cluster":
        return []
    whole, shared = {GPU: 1}, allocatable(spec, 1)
    return [whole] if shared == whole else [whole, shared]


def _products(spec: ClusterSpec) -> list[str]:
    return list(dict.fromkeys((spec.accelerator.label, product_label(spec)))) if spec.accelerator else []


def _functional(site: Site) -> Step:
    arguments = {
        "gate": FUNCTIONAL,
        "objects": [
            manifest_objects.check_namespace(),
            *_claims(site.spec),
            manifest_objects.per_node_job(STAGE, CHECK, _pod(site), seconds=840),
        ],
        "checks": [CHECK],
        "select": "gpu",
        "after": ["nodes"],
        "namespaces": ["gpu-operator"],
    }
    return Step(
        task=task(STAGE, "functional", Verb.JOB, deadline=900, arguments=arguments, expectations=manifest_objects.gpu_counts(site)),
        after=("nodes",),
        rules=rights.check_rules(*((rights.GPU_CLAIMS,) if _claims(site.spec) else ())),
    )


def _claims(spec: ClusterSpec) -> list[Object]:
    """Return the template of a claim for all GPUs of a node, for DRA; empty otherwise."""
    return [manifest_objects.gpu_claims(STAGE, CHECK, every=True)] if _mode(spec) == "gpu_cluster" else []


def _pod(site: Site) -> Object:
    """Return a pod whose container sees all GPUs of its node.

    The pod requests GPUs if they are whole, free, and equally many on every node. If sharing or Slurm has taken them (on a second
    run), or machines differ, it gets them by the runtime class instead.
    """
    spec, env = site.spec, [manifest_objects.node_name()]
    image, smoke = spec.validation.image, manifest_objects.script("cuda_smoke.sh")
    if _mode(spec) == "gpu_cluster":
        return manifest_objects.pod_with_claim(CHECK, manifest_objects.container(image, smoke, env=env))
    gpus = manifest_objects.gpu_counts(site)
    # one Job has one request: machines with another number of GPUs would not fit it
    if spec.sharing.mode == "none" and spec.slurm.kind == "none" and "others" not in gpus:
        return {"containers": [manifest_objects.container(image, smoke, env=env, resources={"limits": {GPU: gpus["gpus"]}})]}
    all_gpus = [*env, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    opened = manifest_objects.container(image, smoke, env=all_gpus, securityContext={"privileged": True})
    return {"runtimeClassName": "nvidia", "containers": [opened]}
