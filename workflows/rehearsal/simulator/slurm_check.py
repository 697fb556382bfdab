"""Pods of the simulated Slurm cluster, and what sinfo and srun say to the srun check."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from workflows.rehearsal.simulator import pods
from workflows.rehearsal.simulator.kinds import PODS, Obj
from workflows.rehearsal.simulator.programs import Behaviour, Exit, Run, Stuck, check
from workflows.rehearsal.simulator.programs import pods as program
from workflows.rehearsal.simulator.reports import environment, keep_log, packed
from workflows.rehearsal.simulator.slurm_nodes import NAME, STATE, answers, gres, told
from workflows.rehearsal.simulator.world import World


@program(NAME, "slurmctld")
def slurmctld(world: World, _pod: Obj, _node: str) -> Behaviour:
    """The controller's pod."""
    if world.fault("slurmctld_crashes"):
        return Stuck(reason="CrashLoopBackOff", message="back-off 5m0s restarting failed container=slurmctld")
    return Run()


@program("app", "slurm-operator-webhook")
def webhook(world: World, _pod: Obj, _node: str) -> Behaviour:
    """The admission webhook's pod."""
    if world.fault("slurm_webhook_down"):
        return Stuck(reason="CreateContainerConfigError", message='secret "slurm-operator-webhook-cert" not found')
    return Run()


@program(NAME, "slurmd")
def slurmd(world: World, _pod: Obj, node: str) -> Behaviour:
    """A node's pod."""
    if world.fault("slurmd_crashes", node):
        return Stuck(reason="CrashLoopBackOff", message="fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory")
    return Run()


@check("srun")
def srun(world: World, pod: Obj, node: str) -> Behaviour:
    """What `workflows/stages/scripts/srun.sh` reports."""
    text, exits = _srun(world, pod["metadata"]["namespace"], int(environment(pod).get("GPUS", "0")))
    message = {"node": node, "exits": exits, "packed": packed(text)}
    return Exit(message=message, seconds=25, effect=functools.partial(keep_log, world, pod, text))


def _srun(world: World, namespace: str, gpus: int) -> tuple[str, dict[str, int]]:
    if not answers(world):
        said = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
        return f"@sinfo\n@reasons\n@hosts\n@gpus\n@errors\n{said}\n", {"sinfo": 1, "hosts": 0, "gpus": 0}
    slurmds = [pod for pod in world.select(PODS, namespace, {NAME: "slurmd"}) if told(pod)]
    idle = [pod for pod in slurmds if len(told(pod)) == 1 and told(pod)[0]["type"] == f"{STATE}Idle"]
    refused = {pods.node(pod) for pod in idle if world.fault("slurm_key_differs", pods.node(pod))}
    names = sorted(pods.node(pod) for pod in idle)
    hosts = [name for name in names if name not in refused]
    seen = {name: world.host(name).gpus - bool(world.fault("slurm_job_misses_gpu", name)) for name in hosts if gpus}
    errors = [f"srun: error: Task launch for 1.0 failed on node {name}: Invalid job credential" for name in sorted(refused)]
    sections = {
        "sinfo": _sinfo(world, slurmds),
        "reasons": (f"{told(pod)[0]['message']}|{pods.node(pod)}" for pod in slurmds if told(pod)[0].get("message")),
        "hosts": hosts,
        "gpus": (f"{name} {count}" for name, count in seen.items()),
        "errors": errors,
    }
    text = "".join(f"@{name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())
    return text, {"sinfo": 0, "hosts": 1 if refused else 0, "gpus": 123 if refused and gpus else 0}


def _sinfo(world: World, slurmds: list[Obj]) -> Iterator[str]:
    """One line per node, as sinfo groups nodes of one state and Gres."""
    for pod in slurmds:
        words = {entry["type"].removeprefix(STATE) for entry in told(pod)}
        state = "drained" if "Drain" in words else "down*" if "Down" in words else "idle"
        yield f"{state}|{gres(world, pod)}(S:0-1)|{pods.node(pod)}"
