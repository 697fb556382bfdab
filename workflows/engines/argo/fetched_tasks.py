"""The tasks of a run on Argo, copied from the home cluster to this machine: what was planned, and who may approve."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

from workflows.engines.argo.home import Home, NoTemplate, NotOurs
from workflows.engines.argo.run_memory import knows_tasks
from workflows.engines.argo.workflow_objects import Workflow
from workflows.engines.folders import RunFolder


def fetch_tasks(home: Home, workflow: Workflow, folder: RunFolder) -> None:
    """Copy the run's tasks (what was planned, who may approve) from the home cluster unless this machine has them.

    Raises NotOurs if the template mounts no tasks, NoTemplate if the template or its ConfigMap was deleted.
    """
    if knows_tasks(folder):
        return
    volumes = home.made_from(workflow).get("volumes") or ()
    name = next((volume["configMap"]["name"] for volume in volumes if volume["name"] == "tasks" and "configMap" in volume), "")
    if not name:
        raise NotOurs(f"WorkflowTemplate {workflow.template} mounts no tasks: it belongs to another version of bringup")
    config_map = home.ask(lambda kube: kube.get(home.core("configmaps", name), dict[str, Any]))
    if config_map is None:
        raise NoTemplate(f"namespace {home.namespace} of the home cluster has no ConfigMap {name}, which holds the run's tasks")
    _keep(folder, config_map.get("data") or {})


def _keep(folder: RunFolder, tasks: Mapping[str, str]) -> None:
    """Write all tasks or none: a process that is killed half-way leaves only a hidden temporary folder."""
    place, fresh = folder.inputs / "tasks", folder.inputs / f".tasks.{os.getpid()}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for file, text in tasks.items():
        (fresh / file).write_text(text)
    if place.exists() and not knows_tasks(folder):
        shutil.rmtree(place, ignore_errors=True)
    try:
        fresh.rename(place)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not knows_tasks(folder):
            raise  # otherwise another command has fetched the tasks meanwhile
