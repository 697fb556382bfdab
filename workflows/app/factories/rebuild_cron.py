"""The CronWorkflow of a second place: another cluster rebuilds a factory, which cannot rebuild itself."""

from pathlib import PurePosixPath
from typing import Any

import yaml

from workflows.spec import FactorySpec
from workflows.spec.pipelines.factory_spec import SecondPlace

FILES, HOME = "/factory", "/bringup-home"
"""Folders in the pod: the spec with its files, and the state of bringup."""
KEPT_REBUILDS = 14
SECONDS = 6 * 3600
"""Time limit of a rebuild, that of the systemd service."""
_USER = 8737
"""Account of the pod; files of the Secret are readable for its group alone, and bringup copies keys with its own mode."""


class NoSecondPlace(ValueError):
    """Error for a spec without `rebuild.second_place`."""

    hint = "see `bringup explain rebuild.second_place`; `bringup factory timer` without --argo writes units for systemd"


def manifest(spec: FactorySpec, file: str) -> str:
    """Return the CronWorkflow as YAML; `file` is the name of the factory's spec in the Secret. Raises NoSecondPlace."""
    place = spec.rebuild.second_place
    if place is None:
        raise NoSecondPlace("the spec has no rebuild.second_place, so no other cluster rebuilds the factory")
    cron = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "CronWorkflow",
        "metadata": {
            "name": f"rebuild-{spec.name}"[:48].rstrip("-."),
            "namespace": place.namespace,
            "labels": {"app.kubernetes.io/managed-by": "bringup"},
        },
        "spec": {
            "schedules": list(place.schedule.cron),
            "timezone": place.schedule.timezone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": int(place.schedule.starting_deadline.total_seconds()),
            "successfulJobsHistoryLimit": KEPT_REBUILDS,
            "failedJobsHistoryLimit": KEPT_REBUILDS,
            **({"suspend": True} if place.schedule.suspend else {}),
            "workflowSpec": _workflow(place, file),
        },
    }
    return yaml.safe_dump(cron, sort_keys=False, width=130)


def _workflow(place: SecondPlace, file: str) -> dict[str, Any]:
    """Return the Workflow: one pod, without a second try, because a rebuild that was refused is refused again."""
    claims = {place.home: HOME, **place.claims}
    volumes: list[dict[str, Any]] = [{"name": "files", "secret": {"secretName": place.files, "defaultMode": 0o440}}]
    volumes += [{"name": f"claim-{name}", "persistentVolumeClaim": {"claimName": name}} for name in claims]
    mounts: list[dict[str, Any]] = [{"name": "files", "mountPath": FILES, "readOnly": True}]
    mounts += [{"name": f"claim-{name}", "mountPath": path} for name, path in claims.items()]
    container = {
        "image": place.image,
        "command": ["bringup", "factory", "rebuild", str(PurePosixPath(FILES, file)), "--yes"],
        "env": [{"name": "BRINGUP_HOME", "value": HOME}],
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "entrypoint": "rebuild",
        "serviceAccountName": place.account,
        "activeDeadlineSeconds": SECONDS,
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
        "volumes": volumes,
        "templates": [{"name": "rebuild", "container": container}],
    }
