"""Stage validation: what the tasks of all its checks share: time limits, settings of NCCL's scripts, and the task of a check."""

from __future__ import annotations

from collections.abc import Callable

from workflows.spec.gpu_pools import shares_by_mig
from workflows.stage_names import StageName
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Object, Rule, Site, Step

STAGE: StageName = "validation"

CheckMaker = Callable[[Site, tuple[str, ...], tuple[str, ...]], Step]
"""A function that returns the task of a check on a site, after the tasks that it names, on the nodes that passed others."""


def measures_between(part: Site) -> bool:
    """Return True if a set of equal machines is measured across nodes: it has several machines with whole GPUs."""
    return not shares_by_mig(part.spec) and part.count("gpu") > 1


def network_annotations(site: Site) -> Object:
    """Return the part of a pod's metadata that attaches it to the fabric's network; empty without such a network."""
    if not site.spec.fabric.has_network:
        return {}
    return {"annotations": {"k8s.v1.cni.cncf.io/networks": ",".join(["default/fabric"] * site.spec.fabric.attachments)}}


def time_limit(site: Site) -> int:
    """Return the spec's time limit of one test in seconds."""
    return int(site.spec.validation.timeout.total_seconds())


FEWEST_SECONDS, MARGIN_SECONDS = 60, 300
"""Least time limit of one run of a program in seconds, and the time that a check has beside its runs."""


def sizes(site: Site, runs: int, seconds: int, *, launches: int = 0) -> list[Object]:
    """Return the environment entries of the NCCL scripts: node name, message sizes, number of runs, and seconds per run.

    `launches` is the number of all runs that share `seconds`, if the script runs other programs too.
    """
    message_sizes = site.spec.validation.nccl.sizes
    settings = {
        "FIRST": message_sizes[0],
        "LAST": message_sizes[-1],
        "RUNS": str(runs),
        "SECONDS_A_RUN": str(max((seconds - MARGIN_SECONDS) // (launches or runs), FEWEST_SECONDS)),
    }
    return [manifest_objects.node_name(), *({"name": name, "value": value} for name, value in settings.items())]


def adapters(site: Site) -> list[Object]:
    """Return the environment entry that has NCCL use the rails of the plan alone; empty if the plan names none.

    Other NICs, such as those of storage, would carry a part of the data. The equals sign stands for whole names.
    """
    names = site.spec.fabric.nccl_adapters
    return [{"name": "NCCL_IB_HCA", "value": f"={','.join(names)}"}] if names else []


def over_rdma(site: Site) -> Object:
    """Return what a gate expects of the network in a log of NCCL: RDMA over the plan's adapters, with GPUDirect; empty for none."""
    fabric = site.spec.fabric
    if fabric.kind == "none":
        return {}
    named = {"adapters": list(fabric.nccl_adapters)} if fabric.nccl_adapters else {}
    return {"rdma": True, "gdr": True, "hcas": fabric.nics_per_node, "link": fabric.nccl_link, **named}


def slots(site: Site) -> int:
    """Return the number of MPI ranks per node: the GPU count of the machine with the fewest GPUs."""
    return min(machine.gpus for machine in site.machines if machine.gpu)


def check(
    site: Site,
    name: str,
    gate: str,
    label: str,
    items: list[Object],
    *,
    after: tuple[str, ...],
    passed: tuple[str, ...],
    seconds: int,
    expectations: Object,
    rules: tuple[Rule, ...] = (),
    least: int = 0,
) -> Step:
    """Return the task of one check after the task `after`, on the nodes that passed the checks `passed`.

    `seconds` is its time limit. With `least`, it needs that many nodes, else one.
    """
    claims = manifest_objects.node_claims(site.spec, STAGE, label)
    return manifest_objects.check_step(
        STAGE,
        gate,
        label,
        [*claims, *items],
        deadline=seconds,
        expectations=expectations,
        name=site.named(name),
        waits_for=after,
        passed=passed,
        rules=(*rules, *((rights.GPU_CLAIMS,) if claims else ())),
        select=site.gpu_select,
        **({"least": least} if least else {}),
    )


def want(site: Site, *, floor: float | None, spread: float, **more: object) -> Object:
    """Return the NCCL result that a gate expects, as fields of `steps.contract.node_tests.nccl.NcclWant`; no `floor` if None."""
    return {"runs": site.spec.validation.runs, "spread": spread, **({"floor": floor} if floor else {}), **more}
