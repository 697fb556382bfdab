"""Stage validation: accept the platform by measured numbers: NCCL inside nodes, DCGM diagnostics, and NCCL over all nodes.

Facts: `steps/docs/facts/acceptance.md`.
"""

from __future__ import annotations

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.derived import intra_node_floor
from workflows.spec.fields import StageName
from workflows.stages import objects, rights, validation_operator, validation_pods
from workflows.stages.site import Site
from workflows.stages.stage import Change, Object, Rule, Stage, Step, task

STAGE: StageName = "validation"
INTRA_CHECK, DCGM_CHECK = "nccl-intra", "dcgm"
INTRA, DCGM, FUNCTIONAL = "validation/intra", "validation/dcgm", "validation/functional"

SPREAD_INTRA, SPREAD_INTER = 0.1, 0.15
"""Largest difference of repeated runs, as a share of the fastest; healthy fabrics repeat within a few percent."""

DCGM_IMAGE = "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04"
"""DCGM of GPU Operator 26.7 (its values.yaml `dcgm`); DCGM 4 runs with every driver from R535 on."""

DCGM_SECONDS = {1: 300, 2: 900, 3: 3600, 4: 10800}
"""Time limit of `dcgmi diag -r` by level, with a margin: levels take seconds, 2 minutes, 15 minutes, or longer."""


def build(site: Site) -> Stage | None:
    """Return the stage, or None for a cluster without GPUs, which has nothing to measure."""
    release = site.releases.get(validation_operator.RELEASE)
    if release is None or site.spec.accelerator is None or not site.count("gpu"):
        return None
    between = _between(site)
    steps = [
        *([validation_operator.apply(site, release), validation_operator.control(release)] if between else []),
        *_checks(site, between),
    ]
    gates = {step.name: str(step.task.arguments["gate"]) for step in steps if step.name != "apply"}
    return Stage(
        id=STAGE,
        title="Validation",
        steps=(*steps, objects.judge(site, STAGE, gates)),
        gates=tuple(gates.values()),
        changes=_changes(site, release, between),
        rollback=release.rollback,
        releases=(release.id,) if between else (),
    )


def _changes(site: Site, release: PlannedRelease, between: bool) -> tuple[Change, ...]:
    installs = [Change(what=f"install mpi-operator {release.version}", where=release.namespace)] if between else []
    return (*installs, Change(what="load every GPU and fabric port for some minutes", where=f"{site.count('gpu')} GPU nodes"))


def _whole(spec: ClusterSpec) -> bool:
    """Return True if pods can have whole GPUs: NCCL cannot join MIG instances of several GPUs."""
    return spec.sharing.mode != "mig"


def _between(site: Site) -> bool:
    return _whole(site.spec) and site.count("gpu") > 1


def _checks(site: Site, between: bool) -> list[Step]:
    """Return the checks one after another, since each needs all GPUs of a node; a node that fails one is left out of the next."""
    spec, after = site.spec, ["control"] if between else []
    steps: list[Step] = []
    if _whole(spec) and spec.accelerator and spec.accelerator.per_node > 1:
        steps.append(_intra(site, tuple(after)))
    steps.append(_dcgm(site, tuple(step.name for step in steps) or tuple(after)))
    if between:
        steps.append(_functional(site, tuple(step.name for step in steps)))
    return steps


def _seconds(site: Site) -> int:
    """Return the spec's time limit of each test in seconds."""
    return int(site.spec.validation.timeout.total_seconds())


# ---- checks --------------------------------------------------------------------------------------------------------------------


def _check(
    site: Site,
    name: str,
    gate: str,
    check: str,
    items: list[Object],
    *,
    after: tuple[str, ...],
    seconds: int,
    expectations: Object,
    rules: tuple[Rule, ...] = (),
) -> Step:
    """Return one check as a step; only nodes that passed the earlier checks take part."""
    claims = validation_pods.claims(site.spec, check)
    before = [step for step in after if step != "control"]
    arguments = {
        "gate": gate,
        "objects": [objects.check_namespace(), *claims, *items],
        "checks": [check],
        "select": "gpu",
        **({"after": before} if before else {}),
        **({"least": 2} if gate == FUNCTIONAL else {}),
    }
    return Step(
        task=task(STAGE, name, Verb.JOB, deadline=seconds, arguments=arguments, expectations=expectations),
        after=after[-1:],
        rules=rights.check_rules(*rules, *((rights.GPU_CLAIMS,) if claims else ())),
    )


def _want(site: Site, *, floor: float | None, spread: float, **more: bool | int) -> Object:
    """Return `steps.contract.nccl.NcclWant` as plain data."""
    return {"runs": site.spec.validation.runs, "spread": spread, **({"floor": floor} if floor else {}), **more}


def _intra(site: Site, after: tuple[str, ...]) -> Step:
    spec, seconds = site.spec, _seconds(site)
    env = validation_pods.sizes(site, spec.validation.runs, seconds)
    pod = validation_pods.gpu_pod(
        site, objects.container(spec.validation.image, objects.script("nccl_intra.sh"), env=env), INTRA_CHECK
    )
    return _check(
        site,
        "nccl_intra",
        INTRA,
        INTRA_CHECK,
        [objects.per_node_job(STAGE, INTRA_CHECK, pod, seconds=seconds - 30)],
        after=after,
        seconds=seconds,
        expectations={**validation_pods.gpus(site), "want": _want(site, floor=intra_node_floor(spec), spread=SPREAD_INTRA)},
    )


def _dcgm(site: Site, after: tuple[str, ...]) -> Step:
    spec = site.spec
    # with MIG, pods hold no whole GPU, which the hardware tests of higher levels need
    level = spec.validation.dcgm_level if _whole(spec) else 1
    seconds = DCGM_SECONDS[level]
    settings = {"LEVEL": str(level), "SECONDS_TO_RUN": str(seconds - 120)}
    env = [objects.node_name(), *({"name": name, "value": value} for name, value in settings.items())]
    pod = validation_pods.gpu_pod(site, objects.container(DCGM_IMAGE, objects.script("dcgm.sh"), env=env), DCGM_CHECK)
    return _check(
        site,
        "dcgm",
        DCGM,
        DCGM_CHECK,
        [objects.per_node_job(STAGE, DCGM_CHECK, pod, seconds=seconds - 30)],
        after=after,
        seconds=seconds,
        expectations={**validation_pods.gpus(site), "level": level},
    )


def _functional(site: Site, after: tuple[str, ...]) -> Step:
    spec, seconds = site.spec, _seconds(site)
    rdma = spec.fabric.kind != "none"
    want = _want(
        site,
        floor=spec.validation.nccl.inter_node_floor_gb_s,
        spread=SPREAD_INTER,
        **({"rdma": True, "gdr": True, "hcas": spec.fabric.nics_per_node} if rdma else {}),
    )
    jobs = Rule(
        groups=("kubeflow.org",), resources=("mpijobs",), verbs=("get", "create", "delete"), namespaces=(objects.CHECK_NAMESPACE,)
    )
    return _check(
        site,
        "functional",
        FUNCTIONAL,
        validation_pods.INTER_CHECK,
        [validation_pods.mpi_job(site, seconds)],
        after=after,
        seconds=seconds,
        expectations={"gpus": validation_pods.slots(site), "want": want},
        rules=(jobs,),
    )
