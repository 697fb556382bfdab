"""Runs a script in a container of the platform until it succeeds or its time is over."""

from __future__ import annotations

from steps import timeouts
from steps.clients.kube.api import ApiError
from steps.contract.objects.pod_script import PodScript
from steps.contract.plain_text import count
from steps.contract.verdict import Verdict, passed
from steps.errors import NotUnderstood, Unreachable
from steps.runtime.running_task import RunningTask

_MOST = 300


def run(task: RunningTask, wanted: PodScript) -> Verdict:
    """Run a script again until it ends with 0. Return a verdict that passes and tells what changed, or why nothing did.

    A script without success is no failure of this task: a gate after it reads the setting back, and knows the causes.
    """
    deadline = task.clock.now() + timeouts.POD_SCRIPT
    while True:
        try:
            output = task.kube.execute(wanted.namespace, wanted.pod, wanted.container, wanted.words, timeouts.POD_SCRIPT_RUN)
            problem = (output.stderr or output.stdout).strip()[-_MOST:] if output.code else ""
            lines = output.stdout.splitlines()
        except (ApiError, Unreachable, NotUnderstood) as error:
            problem, lines = str(error)[:_MOST], []
        changes = [line for line in lines if line.startswith("changed ")]
        for change in changes[:_MOST]:
            task.did(change)
        if not problem:
            return passed(task.own_gate, f"{wanted.name}: {count(len(changes), 'change')} in pod {wanted.pod}")
        if task.clock.now() >= deadline:
            return passed(task.own_gate, f"{wanted.name} not set in pod {wanted.pod}: {problem}")
        task.clock.pause(timeouts.SLURM_PODS_POLL, deadline)
