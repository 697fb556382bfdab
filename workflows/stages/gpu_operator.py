"""Stage gpu_operator: install driver, container toolkit, device plugin and feature discovery on GPU nodes, proven by CUDA."""

from __future__ import annotations

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.spec.accelerators import numbers
from workflows.spec.cluster_spec import GPU, ClusterSpec, allocatable, has_gpu_cluster, product_label
from workflows.spec.gpu_pools import OPERAND_LABELS, runs_operand
from workflows.spec.parsing.document import value_at
from workflows.stage_names import StageName
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Change, Object, Rule, Site, Stage, Step, task

STAGE: StageName = "gpu_operator"
RELEASE = "gpu_operator"
CHECK = "cuda-smoke"
CONTROL, NODES, FUNCTIONAL = "gpu_operator/control", "gpu_operator/nodes", "gpu_operator/functional"

CONTROL_SECONDS = 2700
"""Time limit in seconds of the control gate: Helm, image pulls, and a driver container that may build for 20 minutes.

The 20 minutes are the limit of that container's startup probe: 120 × 10 s.
"""

NODES_SECONDS = 1200
"""Time limit in seconds of the node gate: after the control gate only late nodes remain, with one more driver build."""

FLAPPING_BEFORE = (26, 7)
"""First version in which ClusterPolicy no longer reports ready in the middle of a driver upgrade (NVIDIA/gpu-operator#1567)."""


def build(site: Site) -> Stage | None:
    """Return stage gpu_operator, or None for a cluster without GPUs."""
    release = site.releases.get(RELEASE)
    if release is None or site.spec.accelerator is None:
        return None
    gates = {"control": CONTROL, "nodes": NODES, "functional": FUNCTIONAL}
    expectations = _expectations(site, release)
    further = {"select": "gpu", **manifest_objects.upgrades(site, (release,))}
    return Stage(
        id=STAGE,
        title="GPU Operator",
        steps=(
            manifest_objects.apply_step(site, STAGE, (release,), CONTROL, expectations, _READS, **further),
            _control(site, release, expectations),
            _nodes(site, release),
            _functional(site, release),
            manifest_objects.judge(site, STAGE, gates),
        ),
        gates=tuple(gates.values()),
        changes=_changes(site, release),
        rollback=release.rollback,
        releases=(release.id,),
    )


def _changes(site: Site, release: PlannedRelease) -> tuple[Change, ...]:
    changes = list(manifest_objects.installs((release,)))
    if value_at(release.values, "driver.enabled") is not False:
        changes.append(Change(what="load the NVIDIA driver", where=f"{site.count('gpu')} GPU nodes"))
    changes.append(Change(what="add the NVIDIA runtime to containerd, which restarts RKE2", where=f"{site.count('gpu')} GPU nodes"))
    return tuple(changes)


def _operands(spec: ClusterSpec, release: PlannedRelease) -> list[str]:
    """Return the DaemonSets that must run on every GPU node; a trailing dash marks a name prefix.

    Source: `steps/docs/facts/gpu.md`, GPU Operator.
    """
    if has_gpu_cluster(spec):
        driver = ["nvidia-gpu-driver-"] if runs_operand(spec, release.values, "driver") else []
        dcgm = ["nvidia-dcgm-dra"] if runs_operand(spec, release.values, "dcgm") else []
        return [*driver, "nvidia-dra-driver-kubelet-plugin", *dcgm, "nvidia-dra-validator"]
    sets = dict(_DAEMON_SETS)
    if value_at(release.values, "driver.usePrecompiled") is True:
        sets["driver"] += "-"  # one DaemonSet for each kernel of the fleet, with the kernel in its name
    return [*(name for part, name in sets.items() if runs_operand(spec, release.values, part)), "nvidia-operator-validator"]


MIG_MANAGER = "nvidia-mig-manager"
_DAEMON_SETS = {
    "driver": "nvidia-driver-daemonset",
    "toolkit": "nvidia-container-toolkit-daemonset",
    "devicePlugin": "nvidia-device-plugin-daemonset",
    "gfd": "gpu-feature-discovery",
    "dcgm": "nvidia-dcgm",
    "migManager": MIG_MANAGER,
}
"""Key in the chart's values → DaemonSet of the part. The metrics exporter is expected by itself.

Source: assets/ of NVIDIA/gpu-operator.
"""
EXPORTER, EXPORTER_DRA, EXPORTER_PORT = "nvidia-dcgm-exporter", "nvidia-dcgm-exporter-dra", 9400


def _exporter(spec: ClusterSpec, release: PlannedRelease) -> str:
    """Return the name of the DaemonSet and Service of the metrics exporter; empty if the values switch it off."""
    name = EXPORTER_DRA if has_gpu_cluster(spec) else EXPORTER
    return name if runs_operand(spec, release.values, "dcgmExporter") else ""


def _host_driver(site: Site) -> bool:
    return site.spec.accelerator is not None and site.spec.accelerator.driver == "host"


def _expectations(site: Site, release: PlannedRelease) -> Object:
    accelerator = site.spec.accelerator
    expectations: Object = {
        "releases": [manifest_objects.expected_release(site, release, workloads=2)],
        "least": site.needed(STAGE, "gpu"),
        "operands": _operands(site.spec, release),
        **manifest_objects.root_app(site, (release,)),
    }
    capable = [part for part in site.pools if part.spec.accelerator and part.spec.accelerator.facts.mig]
    if MIG_MANAGER in expectations["operands"] and len(capable) < len(site.pools):
        forgiven = site.count("gpu") - site.needed(STAGE, "gpu")
        expectations["least_of"] = {MIG_MANAGER: max(sum(part.count("gpu") for part in capable) - forgiven, 1)}
    if has_gpu_cluster(site.spec):
        expectations["mode"] = "gpu_cluster"
    if (exporter := _exporter(site.spec, release)) != EXPORTER:
        expectations["exporter"] = exporter
    if _host_driver(site):
        expectations["host_driver"] = True
    if accelerator and accelerator.driver == "operator" and accelerator.driver_version:
        expectations["driver"] = accelerator.driver_version
    return expectations


def _control(site: Site, release: PlannedRelease, expectations: Object) -> Step:
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
    Rule(groups=("apps",), resources=("daemonsets", "deployments"), verbs=("list",)),
    Rule(groups=("",), resources=("nodes",), verbs=("list",)),
)


def _nodes(site: Site, release: PlannedRelease) -> Step:
    spec = site.spec
    mode = {"mode": "gpu_cluster"} if has_gpu_cluster(spec) else {}
    arguments: Object = {
        "gate": NODES,
        "select": "gpu",
        # verdicts about nodes are only recorded here: the judge applies the quorum
        "decides": False,
        "stable_seconds": 10,
        "namespaces": ["gpu-operator"],
        **mode,
    }
    expectations: Object = {**manifest_objects.pool_fields(site, lambda part: _shapes(part.spec) | _products(part.spec)), **mode}
    expectations |= {"driver": spec.accelerator.driver_version} if spec.accelerator and spec.accelerator.driver_version else {}
    further: Object = {
        "host_driver": _host_driver(site),
        "unused": [
            label for part, labels in OPERAND_LABELS.items() if not runs_operand(spec, release.values, part) for label in labels
        ],
        "resources": [spec.fabric.resource_key] if spec.fabric.kind != "none" else [],
        "may_differ": spec.validation.allowed_differences,
    }
    expectations |= {key: value for key, value in further.items() if value}
    return Step(
        task=task(STAGE, "nodes", Verb.WAIT, deadline=NODES_SECONDS, arguments=arguments, expectations=expectations),
        after=("control",),
        rules=(*_READS, Rule(groups=("resource.k8s.io",), resources=("resourceslices",), verbs=("list",)), *rights.DIAGNOSE),
    )


def _shapes(spec: ClusterSpec) -> Object:
    """Return the sets of resources that a node may advertise per GPU; an empty list with DRA.

    A first run sees whole GPUs; a second run may see the resources of the stage sharing.
    """
    if spec.sharing.mode == "dra" or has_gpu_cluster(spec):
        return {"shapes": []}
    whole, shared = {GPU: 1}, allocatable(spec, 1)
    return {"shapes": [whole] if shared == whole else [whole, shared]}


def _products(spec: ClusterSpec) -> Object:
    """Return the accepted product labels, that of whole GPUs first."""
    label = spec.accelerator.label if spec.accelerator else ""
    return {"products": list(dict.fromkeys((label, product_label(spec))))}


def _smoke_fields(site: Site) -> Object:
    """Return the number of GPUs that the check must see; by pool also the product, in which alone firmware is compared."""
    return manifest_objects.pool_fields(site, lambda part: _products(part.spec) if part.pool else {})


def _functional(site: Site, release: PlannedRelease) -> Step:
    exporter = _exporter(site.spec, release)
    address = f"{exporter}.{release.namespace}.svc:{EXPORTER_PORT}" if exporter else ""
    smoke = manifest_objects.script("cuda_add.sh", "cuda_smoke.sh")
    env = [manifest_objects.node_name(), {"name": "EXPORTER", "value": address}]
    pod = manifest_objects.gpu_pod(site, manifest_objects.container(site.spec.validation.image, smoke, env=env), CHECK)
    claims = manifest_objects.node_claims(site.spec, STAGE, CHECK)
    return manifest_objects.check_step(
        STAGE,
        FUNCTIONAL,
        CHECK,
        [*claims, manifest_objects.per_node_job(STAGE, CHECK, pod, seconds=840)],
        deadline=900,
        expectations={
            **_smoke_fields(site),
            **({} if exporter else {"exporter": False}),
            **({"may_differ": allowed} if (allowed := site.spec.validation.allowed_differences) else {}),
        },
        rules=(rights.GPU_CLAIMS,) if claims else (),
        select="gpu",
        namespaces=["gpu-operator"],
    )
