"""Logs of a run's tasks: from their pods while those are there, from the store once they are gone."""

import re
from dataclasses import dataclass, field

from steps.clients.kube.api import ApiError
from steps.clients.store import Store
from steps.contract import log
from steps.errors import Refused, StepError, Temporary
from workflows.engines.argo import pull, watchdog
from workflows.engines.argo.home import Home
from workflows.engines.argo.last_words import MAIN
from workflows.engines.argo.objects import Workflow, node_status
from workflows.engines.argo.watchdog import Pod
from workflows.engines.folders import RunFolder


def logs(home: Home, workflow: Workflow, folder: RunFolder, wanted: str) -> list[tuple[str, str]]:
    """(node or key, text) in the order in which tasks started, each text once; `wanted` is a part of STAGE.TASK.

    The store is read by a pod where a task's own pod is gone, or its log cannot be had now. Raises ErrandFailed, Damaged,
    Unreachable where nothing at all can be read.
    """
    nodes, reader = workflow.nodes(), _Reader(home)
    there = watchdog.pods(home, workflow.metadata.name)
    found, stored, gone = list[tuple[str, str]](), set[str](), workflow.status.phase == pull.GONE
    for node in sorted((node_status(one, nodes) for one in nodes.values() if one.type == "Pod"), key=lambda node: node.started):
        if not is_wanted(node.template, wanted):
            continue
        pod = there.get(node.path)
        text = reader.text(pod) if pod else None
        if text is None:
            gone = gone or node.phase not in ("", "Pending")
            if pod and (why := reader.lost.get(pod.metadata.name)):
                found.append((node.path, f"(its pod's log cannot be read now: {why})"))
            continue
        stored |= set(log.KEPT.findall(text))
        found.append((node.path, log.KEPT.sub("", text).rstrip() or "(it said nothing)"))
    if gone:
        found += _from_store(home, workflow, folder, wanted, stored, alone=len(found) == len(reader.lost))
    return found


def of_start(home: Home, workflow: Workflow) -> list[tuple[str, str]]:
    """The same of a Workflow that only starts a run, of which nothing is in a store: once its pod is gone, how it ended."""
    nodes, reader = workflow.nodes(), _Reader(home)
    there = watchdog.pods(home, workflow.metadata.name)
    every = sorted((node_status(one, nodes) for one in nodes.values() if one.type == "Pod"), key=lambda node: node.started)
    said = [(node, reader.text(there[node.path]) if node.path in there else None) for node in every]
    return [(node.path, text or f"(its log is gone; it ended as {node.phase} {node.message})") for node, text in said]


def _from_store(
    home: Home, workflow: Workflow, folder: RunFolder, wanted: str, shown: set[str], *, alone: bool
) -> list[tuple[str, str]]:
    """What the store has beside what is shown. That it cannot be read is an error only where nothing else is shown."""
    try:
        pull.pull(home, workflow, folder)
    except StepError as error:
        if alone:
            raise
        return [("the run store", f"(it cannot be read now: {error})")]
    return _stored(Store(folder.home.store), workflow.metadata.name, wanted, shown)


ARGOS = re.compile(r"^time=\S+ level=\w+ msg=.* argo=true(?: .*)?(?:\n|\Z)|^Error: exit status \d+\n?\Z", re.MULTILINE)
"""What Argo's executor says among a container's own lines (workflow/executor/os-specific, cmd/argoexec). Its fields come in any
order: what it waits for, and how the command ended, stand before or behind the one that tells it from others."""


@dataclass
class _Reader:
    """Reads logs of pods. A kubelet that does not answer is asked once: each of its pods would wait as long again."""

    home: Home
    lost: dict[str, str] = field(default_factory=dict)
    """By pod, why its log cannot be read now."""
    _silent: dict[str, str] = field(default_factory=dict)

    def text(self, pod: Pod) -> str | None:
        """What a pod said; None where that is gone, not begun, not ours to read, or cannot be read now (see `lost`)."""
        name, node = pod.metadata.name, pod.spec.node_name or pod.metadata.name
        if node not in self._silent:
            try:
                said = self.home.fetch(f"{self.home.core('pods', name)}/log", {"container": MAIN}).decode(errors="replace")
                return ARGOS.sub("", said)
            except (ApiError, Refused):
                return None
            except Temporary as error:
                self._silent[node] = str(error)
        self.lost[name] = self._silent[node]
        return None


def is_wanted(named: str, wanted: str) -> bool:
    """Whether a template or `STAGE_TASK` is meant by a part of STAGE.TASK."""
    return wanted.replace(".", "_").replace("-", "_") in named.replace("-", "_")


def _stored(store: Store, run: str, wanted: str, shown: set[str]) -> list[tuple[str, str]]:
    keys = [key for key in store.keys(log.folder(run)) if key not in shown and is_wanted("_".join(key.split("/")[3:5]), wanted)]
    return [(key, (store.read(key) or b"").decode(errors="replace").rstrip()) for key in keys]
