"""List sessions on login pods of an old revision, and replace such pods if their users are known to an approver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from steps import timeouts
from steps.clients.kube.api import ApiError
from steps.contract.objects.login_pods import LoginPods
from steps.contract.plain_text import count
from steps.contract.verdict import Verdict, passed
from steps.errors import NotUnderstood, Unreachable
from steps.runtime.running_task import RunningTask
from steps.stages.slurm_login import probe
from steps.stages.slurm_login.contract import OutdatedPod, SessionsObservation

if TYPE_CHECKING:
    from steps.stages.shared.kube_objects import Pod

_SESSION = re.compile(r"session ([A-Za-z0-9_.@+$-]{1,64}) ([A-Za-z0-9_./:-]{1,64})")
_END = "end"
"""Last line of the script's output, by which a list that was cut off is known."""
MOST_SESSIONS = 200


def listed(task: RunningTask, wanted: LoginPods) -> tuple[Verdict, SessionsObservation]:
    """Return the login pods of an old revision with their sessions, and the verdict of the task, which always passes."""
    seen = SessionsObservation(pods=tuple(_sessions(task, wanted, pod.metadata.name) for pod in _outdated(task, wanted)))
    return passed(task.own_gate, f"of an old revision are {seen.text}" if seen.pods else "no login pod is of an old revision"), seen


def replace(task: RunningTask, wanted: LoginPods, approved: SessionsObservation) -> Verdict:
    """Delete login pods of an old revision one at a time, each once the one before is ready again.

    A pod is kept if somebody is logged in there who is not among the `approved` sessions of that pod. What is missing at the end is
    no failure of this task: the gate after it judges the pods.
    """
    known: Mapping[str, OutdatedPod] = {pod.name: pod for pod in approved.pods}
    replaced, kept = 0, list[str]()
    for pod in _outdated(task, wanted):
        name = pod.metadata.name
        seen, shown = _sessions(task, wanted, name), known.get(name, OutdatedPod(name=name))
        if not seen.users <= shown.users or (seen.error and not shown.error):
            kept.append(seen.text)
            continue
        if task.kube.delete(f"/api/v1/namespaces/{wanted.namespace}/pods/{name}"):
            task.did(f"deleted login pod {wanted.namespace}/{name} of an old revision ({seen.text})")
        replaced += 1
        if not _is_back(task, wanted, name):
            break
    left = f"; kept, since nobody approved it, {'; '.join(kept)}" if kept else ""
    return passed(task.own_gate, f"{count(replaced, 'login pod')} replaced{left}")


def _outdated(task: RunningTask, wanted: LoginPods) -> list[Pod]:
    """Return the login pods of another revision than the newest; none if there is no StatefulSet or its status is not known."""
    stateful_set = probe.read_set(task.kube, wanted.namespace, wanted.name)
    newest = stateful_set.status.update_revision if stateful_set is not None else ""
    pods = probe.members(task.kube, wanted.namespace, wanted.name) if newest else ()
    return [pod for pod in pods if probe.revision(pod) != newest]


def _sessions(task: RunningTask, wanted: LoginPods, pod: str) -> OutdatedPod:
    words = ("env", "CHECK=login-sessions", "/bin/sh", "-c", wanted.script)
    try:
        output = task.kube.execute(wanted.namespace, pod, wanted.container, words, timeouts.POD_SCRIPT_RUN)
    except (ApiError, Unreachable, NotUnderstood) as error:
        return OutdatedPod(name=pod, error=str(error)[:300])
    *lines, last = output.stdout.splitlines() or [""]
    matches = [_SESSION.fullmatch(line.strip()) for line in lines]
    if output.code or last.strip() != _END or None in matches:
        return OutdatedPod(name=pod, error=(output.stderr or output.stdout).strip()[-300:] or "the list of sessions is not whole")
    every = dict.fromkeys(f"{match[1]} {match[2]}" for match in matches if match)
    if len(every) > MOST_SESSIONS:
        # a shorter list would hide users whom nobody then approves
        return OutdatedPod(name=pod, error=f"{len(every)} sessions, more than the {MOST_SESSIONS} that are listed")
    return OutdatedPod(name=pod, sessions=tuple(every))


def _is_back(task: RunningTask, wanted: LoginPods, name: str) -> bool:
    """Return True once the pod is of the newest revision and ready; False after a while."""
    deadline = task.clock.now() + timeouts.LOGIN_POD
    while True:
        old = {pod.metadata.name for pod in _outdated(task, wanted)}
        pods = {pod.metadata.name: pod for pod in probe.members(task.kube, wanted.namespace, wanted.name)}
        if name not in old and name in pods and pods[name].ready:
            return True
        if task.clock.now() >= deadline:
            return False
        task.clock.pause(timeouts.SLURM_PODS_POLL, deadline)
