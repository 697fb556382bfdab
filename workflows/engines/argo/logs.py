"""Logs of a run's tasks: from their pods while those are there, from the store once they are gone."""

from steps.clients.kube_http import ApiError
from steps.clients.store import Store
from steps.contract import log
from steps.errors import Refused
from workflows.engines.argo import pull, watchdog
from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import Workflow, node_status
from workflows.engines.folders import RunFolder

MAIN = "main"
"""Argo's name for the container that runs the task."""


def logs(home: Home, workflow: Workflow, folder: RunFolder, wanted: str) -> list[tuple[str, str]]:
    """(node or key, text) in the order in which tasks started, each text once; `wanted` is a part of STAGE.TASK.

    The store is read by a pod where a task's own pod is gone. Raises ErrandFailed, Damaged.
    """
    nodes = workflow.nodes()
    there = watchdog.pods(home, workflow.metadata.name)
    found, stored, gone = list[tuple[str, str]](), set[str](), False
    for node in sorted((node_status(one, nodes) for one in nodes.values() if one.type == "Pod"), key=lambda node: node.started):
        if not is_wanted(node.template, wanted):
            continue
        pod = there.get(node.path)
        text = _text(home, pod.metadata.name) if pod else None
        if text is None:
            gone = gone or node.phase not in ("", "Pending")
            continue
        stored |= set(log.KEPT.findall(text))
        found.append((node.path, log.KEPT.sub("", text).rstrip() or "(it said nothing)"))
    if gone:
        pull.pull(home, workflow, folder)
        found += _stored(Store(folder.home.store), workflow.metadata.name, wanted, stored)
    return found


def is_wanted(named: str, wanted: str) -> bool:
    """Whether a template or `STAGE_TASK` is meant by a part of STAGE.TASK."""
    return wanted.replace(".", "_").replace("-", "_") in named.replace("-", "_")


def _text(home: Home, pod: str) -> str | None:
    try:
        return home.fetch(f"{home.core('pods', pod)}/log", {"container": MAIN}).decode(errors="replace")
    except (ApiError, Refused):
        return None  # gone meanwhile, or not started, or not ours to read


def _stored(store: Store, run: str, wanted: str, shown: set[str]) -> list[tuple[str, str]]:
    keys = [key for key in store.keys(log.folder(run)) if key not in shown and is_wanted("_".join(key.split("/")[3:5]), wanted)]
    return [(key, (store.read(key) or b"").decode(errors="replace").rstrip()) for key in keys]
