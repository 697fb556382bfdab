"""Errands: short pods of ours that reach the run store, made from the template of the run's own pods and deleted afterwards."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from steps import timeouts
from steps.clients.kube.api import ApiError
from steps.errors import Temporary
from workflows.engines.argo import watchdog
from workflows.engines.argo.home import Home, NotOurs, Object
from workflows.engines.argo.objects import Meta, Workflow
from workflows.engines.argo.streams import Gone, Pace, State, Stream
from workflows.engines.argo.watchdog import Pod

ERRAND = "bringup/errand"
"""Label of our own pods: what they are for."""
RUN = "bringup/run"
CONTAINER = "errand"


class ErrandFailed(Temporary):
    """The pod did not do what it was made for; the message holds what it said last."""


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What a pod is to do: `store_only` mounts nothing but the store, for reading unless `writes`."""

    purpose: str
    command: Sequence[str]
    environment: Mapping[str, str]
    template: str = "run-open"
    store_only: bool = True
    writes: bool = False


def run(home: Home, workflow: Workflow, errand: Errand) -> bytes:
    """Run it to its end and return what it printed. Raises ErrandFailed, NotOurs, NoTemplate."""
    return finish(home, errand, begin(home, workflow, errand))


def begin(home: Home, workflow: Workflow, errand: Errand) -> str:
    """Make the pod; its name. Raises ErrandFailed, NotOurs, NoTemplate."""
    manifest = pod(home, workflow, errand)
    name: str = manifest["metadata"]["name"]
    try:
        home.ask(lambda kube: kube.create(manifest))
    except ApiError as error:
        raise ErrandFailed(f"the home cluster does not take pod {name}: {error}", hint=_RIGHTS) from error
    return name


def finish(home: Home, errand: Errand, name: str) -> bytes:
    """Wait for its end, take it away, and return what it printed. Raises ErrandFailed."""
    try:
        ended = _await(home, name)
        said = home.fetch(f"{home.core('pods', name)}/log", {"container": CONTAINER})
        if ended.status.phase != "Succeeded":
            tail = said[-400:].decode(errors="replace").strip()
            raise ErrandFailed(f"pod {name} ({errand.purpose}) ended as {ended.status.phase}: {tail}")
        return said
    finally:
        home.ask(lambda kube: kube.delete(home.core("pods", name)))


_RIGHTS = "reading a run's store takes the right to create pods, read their logs and delete them in the namespace of the runs"


def pod(home: Home, workflow: Workflow, errand: Errand) -> Object:
    """The pod's manifest: image, user and volumes of the run's own pods. Raises NotOurs, NoTemplate."""
    spec = home.made_from(workflow)
    model = next((one for one in spec["templates"] if one["name"] == errand.template), None)
    if model is None:
        raise NotOurs(
            f"WorkflowTemplate {workflow.template} has no template {errand.template}: it is of another version of bringup"
        )
    meta = workflow.metadata
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": meta.name, "uid": meta.uid}
    owned = {"ownerReferences": [owner]} if meta.uid else {}  # a Workflow that is gone owns nothing
    pod_meta: Object = {
        "name": f"bringup-{errand.purpose}-{secrets.token_hex(4)}",
        "namespace": home.namespace,
        "labels": {ERRAND: errand.purpose, RUN: meta.name},
        **owned,
    }
    pod_spec: Object = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(timeouts.READER_POD),
        "automountServiceAccountToken": False,
        "serviceAccountName": model.get("serviceAccountName", "default"),
        "securityContext": spec.get("securityContext", {}),
        "containers": [_container(model["container"], errand)],
        "volumes": _volumes(spec["volumes"], model["container"], errand),
        **{key: spec[key] for key in ("affinity", "imagePullSecrets") if key in spec},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": pod_spec}


def _container(model: Object, errand: Errand) -> Object:
    mounts = _mounted(model, errand)
    for mount in mounts:
        if mount["name"] == "store" and not errand.writes:
            mount["readOnly"] = True
    kept: Object = {key: model[key] for key in ("image", "imagePullPolicy", "resources", "securityContext") if key in model}
    return {
        "name": CONTAINER,
        "command": list(errand.command),
        "env": [{"name": name, "value": value} for name, value in errand.environment.items()],
        "volumeMounts": mounts,
        **kept,
    }


def _mounted(model: Object, errand: Errand) -> list[Object]:
    return [dict(mount) for mount in model["volumeMounts"] if not errand.store_only or mount["name"] == "store"]


def _volumes(every: Sequence[Object], model: Object, errand: Errand) -> list[Any]:
    """Those that the container mounts: no other secret than its own comes to its pod."""
    wanted = {mount["name"] for mount in _mounted(model, errand)}
    chosen = [dict(volume) for volume in every if volume["name"] in wanted]
    for volume in chosen:
        if "persistentVolumeClaim" in volume and not errand.writes:
            volume["persistentVolumeClaim"] = {**volume["persistentVolumeClaim"], "readOnly": True}
    return chosen


def _await(home: Home, name: str) -> Pod:
    """The pod once it has ended. Raises ErrandFailed when it does not, saying what it waits for."""
    end, latest = time.monotonic() + timeouts.READER_POD, Pod(metadata=Meta(name=name))
    for seen in Stream(home, home.core("pods"), name, Pace(round=5.0)).states():
        if isinstance(seen, Gone):
            raise ErrandFailed(f"pod {name} was deleted before it ended")
        if isinstance(seen, State):
            latest = msgspec.json.decode(seen.data, type=Pod)
            if latest.status.phase in ("Succeeded", "Failed"):
                return latest
        if time.monotonic() > end:
            raise ErrandFailed(
                f"pod {name} has not ended in {timeouts.READER_POD:.0f} s: {watchdog.waits_for(latest) or latest.status.phase}"
            )
    raise AssertionError("a stream has no end")
