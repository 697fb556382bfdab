"""Stage validation: programs of checks across simulated nodes, whose reports have the formats of the tools that they run."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from workflows.rehearsal.simulator.api.api_kinds import PODS, Obj
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, LongRunning, check, environment, keep_log
from workflows.rehearsal.simulator.stages.validation import (
    fabric_links,
    launcher_log,
    validation_failures,
    validation_launcher_programs,
)
from workflows.rehearsal.simulator.stages.validation.fabric_communicators import adapters, simulated_fabric
from workflows.rehearsal.simulator.stages.validation.validation_nccl_output import (
    RUN_SECONDS,
    check_settings,
    debug_info,
    jitter,
    join_lines,
    table,
)
from workflows.rehearsal.simulator.world import World

JOB_NAME, ROLE = "training.kubeflow.org/job-name", "training.kubeflow.org/job-role"
INDEX = "training.kubeflow.org/replica-index"


def workers(world: World, namespace: str, job: str) -> list[Obj]:
    """Return the worker pods of an MPIJob, sorted by index."""
    pods = world.select(PODS, namespace, {JOB_NAME: job, ROLE: "worker"})
    return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"][INDEX]))


# ---- NCCL over all nodes -------------------------------------------------------------------------------------------------------


@check("nccl-inter")
def nccl_inter(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `nccl-inter`: a worker runs until it is deleted, the launcher reports exit codes and logs NCCL's output.

    The report has the form that `workflows/stages/scripts/nccl_inter.sh` prints.
    """
    labels = pod["metadata"]["labels"]
    if labels.get(ROLE) == "worker":
        return LongRunning()
    _, _, runs = check_settings(environment(pod))
    programs = environment(pod).get("PROGRAMS", "").split()
    seconds = RUN_SECONDS * (runs + (runs + 1) * len(programs))
    return Exit(seconds=seconds, outcome=functools.partial(_inter_outcome, world, pod, node, runs, programs))


def _inter_outcome(world: World, pod: Obj, node: str, runs: int, programs: list[str]) -> Exit:
    own = workers(world, pod["metadata"]["namespace"], pod["metadata"]["labels"][JOB_NAME])
    text, code = _together(world, pod, own, runs)
    if code == 0:
        text += "".join(validation_launcher_programs.output(world, pod, own, programs))
    message = {"node": node, "exits": [code] * runs}
    return Exit(message=message, effect=functools.partial(keep_log, world, pod, text))


def _together(world: World, pod: Obj, own: list[Obj], runs: int) -> tuple[str, int]:
    first, last, _ = check_settings(environment(pod))
    nodes = [simulated_pods.node(worker) for worker in own]
    lost = next((worker for worker in own if world.fault("ib_retry_exceeded", simulated_pods.node(worker))), None)
    hosts = [worker["metadata"]["name"] for worker in own]
    shape, network, gdr = simulated_fabric(world, hosts, nodes, int(environment(pod)["PER_NODE"]))
    lines = debug_info(shape, adapters(world, nodes), network=network, gdr=gdr)
    if lost is not None:
        return _launcher_log([*lines, *_retry_exceeded(shape.hosts, lost["metadata"]["name"])]), 3
    for fault in _FAILS_FIRST:
        victim = next((number for number, name in enumerate(nodes) if world.fault(fault, name)), None)
        if victim is not None:
            return _launcher_log([*lines, *validation_failures.failed_run(world, fault, shape.hosts, victim)]), 3
    tables = [table(shape, first, last, jitter(world, "fabric", run)) for run in range(runs)]
    # only the first run has NCCL's lines
    return _launcher_log(itertools.chain(lines, tables[0])) + "".join(map(_launcher_log, tables[1:])), 0


def _launcher_log(lines: Iterable[str]) -> str:
    """Return the output of one run as the launcher's script writes it to its log."""
    return join_lines(launcher_log.shorten(lines))


_FAILS_FIRST = ("nccl_no_route", "nccl_gid_unreachable", "nccl_memlock", "nccl_two_versions", "nccl_port_error")
"""Faults by which a rank on one node fails first, and ends the run of all."""


def _retry_exceeded(hosts: Sequence[str], host: str) -> Iterator[str]:
    peer = validation_failures.address((hosts.index(host) + 1) % len(hosts))
    yield "# Collective test starting: all_reduce_perf"
    yield (
        f"{host}:4003:4103 [3] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer {peer}<53908> with status=12 "
        "opcode=129 len=1048576 vendor err 129 (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_3"
    )
    yield f"{host}:4003:4103 [3] NCCL INFO transport/net.cc:1362 -> 6"


# ---- tests between nodes -------------------------------------------------------------------------------------------------------


@check("fabric")
def fabric(world: World, pod: Obj, node: str) -> Behaviour:
    """Play a pod of the check `fabric`: one of a pair, which measures each rail to the other one, or one of an MPIJob of a group.

    Reports have the form that `workflows/stages/scripts/fabric_pair.sh` prints.
    """
    if ROLE in pod["metadata"]["labels"]:
        return nccl_inter(world, pod, node)  # the MPIJob of a group is played as the one over all nodes
    settings = environment(pod)
    nodes = _selected(pod)
    others = _met(nodes, node, int(settings.get("STEPS") or len(nodes)))
    tested = settings.get("TESTED", "").split()

    def outcome() -> Exit:
        rails = [*_fabric_rails(world, node, others or {node: 0}, tested)] if node in nodes else []
        return Exit(message={"node": node, "rails": rails, "error": ""})

    return Exit(seconds=15 + 7 * len(others), outcome=outcome)


def _selected(pod: Obj) -> list[str]:
    """Return the machines of a pod's Job, which its pods may run on."""
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return list(terms[0]["matchExpressions"][0]["values"])


def _met(nodes: Sequence[str], node: str, steps: int) -> dict[str, int]:
    """Return the machines that this one meets in `steps` steps of a tournament by the circle method, each with its number."""
    if node not in nodes or len(nodes) < 2:
        return {}
    own, whole = nodes.index(node), len(nodes) + len(nodes) % 2
    last = whole - 1
    met: dict[str, int] = {}
    for step in range(min(steps, last)):
        other = step * (whole // 2) % last if own == last else (step - own) % last
        other = last if other == own else other
        if other < len(nodes):
            met[nodes[other]] = other
    return met


def _fabric_rails(world: World, node: str, others: Mapping[str, int], tested: Sequence[str]) -> Iterator[Obj]:
    """Yield the least bandwidth of each tested rail to the machines that this one meets, which have numbers in the test."""
    for rail in range(world.hardware(node).nics):
        if not tested or str(rail) in tested:
            figures = {other: fabric_links.rate(world, node, other, rail) for other in others}
            worst = min(figures, key=lambda other: figures[other])
            gbit = figures[worst] * (1 - 0.004 * world.chance(f"fabric/{node}/{rail}"))
            yield {"device": f"mlx5_{rail}", "rail": rail, "gbit": round(gbit, 2), "peer": others[worst], "error": ""}
