"""Short pods beside a run, made from templates of the run's own pods and deleted afterwards: they read or write the run store.

The pod that releases quarantined nodes is made from the judge's template of the stage that quarantined them.
"""

import base64
import inspect
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.kube.api import ApiError
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.exit import ExitCode
from steps.errors import StepError, Temporary
from workflows.engines import node_release
from workflows.engines.argo import run_pods, store_writer
from workflows.engines.argo.home import Home, NotOurs, Object
from workflows.engines.argo.resource_watch import ObjectGone, ObjectState, ResourceWatch, WatchPace
from workflows.engines.argo.run_pods import RunPod
from workflows.engines.argo.workflow_objects import ResourceMeta, Workflow
from workflows.render import names

ERRAND = "bringup/errand"
"""Label of helper pods; its value is the pod's purpose, such as `read`."""
RUN = "bringup/run"
CONTAINER = "errand"


class HelperPodFailed(Temporary):
    """Exception: a helper pod did not succeed; the message holds the end of its log."""


@dataclass(frozen=True, kw_only=True)
class HelperPod:
    """The work of one helper pod: its command and environment, and the template of the run from which it is made.

    With `store_only` it mounts nothing but the run store. The store is read-only unless `writes` is set.
    """

    purpose: str
    command: Sequence[str]
    environment: Mapping[str, str]
    template: str = "run-open"
    store_only: bool = True
    writes: bool = False


def store_file(purpose: str, key: str, content: bytes, *, unless: str = "") -> HelperPod:
    """Return the work of a pod that writes one file into the run store, or nothing if the store has a key listed in `unless`."""
    environment = {"BRINGUP_STORE": "/bringup/store", "KEY": key, "CONTENT": base64.b64encode(content).decode(), "UNLESS": unless}
    command = ("python", "-c", inspect.getsource(store_writer))
    return HelperPod(purpose=purpose, command=command, environment=environment, writes=True)


def run(home: Home, workflow: Workflow, errand: HelperPod) -> bytes:
    """Create the helper pod, wait for its end, delete it and return its log. Raises HelperPodFailed, NotOurs, NoTemplate."""
    return finish(home, errand, begin(home, workflow, errand))


def begin(home: Home, workflow: Workflow, errand: HelperPod) -> str:
    """Create the helper pod and return its name. Raises HelperPodFailed, NotOurs, NoTemplate."""
    manifest = pod_manifest(home, workflow, errand)
    name: str = manifest["metadata"]["name"]
    try:
        home.ask(lambda kube: kube.create(manifest))
    except ApiError as error:
        raise HelperPodFailed(f"the home cluster refused pod {name}: {error}", hint=_RIGHTS) from error
    return name


def finish(home: Home, errand: HelperPod, name: str) -> bytes:
    """Wait for the end of a helper pod, delete it and return its log. Raises HelperPodFailed if it did not succeed."""
    try:
        ended = _await(home, name)
        log = home.fetch(f"{home.core('pods', name)}/log", {"container": CONTAINER})
        if ended.status.phase != "Succeeded":
            tail = log[-400:].decode(errors="replace").strip()
            raise HelperPodFailed(f"pod {name} ({errand.purpose}) ended as {ended.status.phase}: {tail}")
        return log
    finally:
        home.delete(home.core("pods", name))


_RIGHTS = "this account needs the right to create pods, read their logs and delete them in the namespace of the runs"


def pod_manifest(home: Home, workflow: Workflow, errand: HelperPod) -> Object:
    """Return the helper pod's manifest, with image, user and volumes of the run's own pods. Raises NotOurs, NoTemplate."""
    spec = home.made_from(workflow)
    model = next((candidate for candidate in spec["templates"] if candidate["name"] == errand.template), None)
    if model is None:
        raise NotOurs(
            f"WorkflowTemplate {workflow.template} has no template {errand.template}: it belongs to another version of bringup"
        )
    meta = workflow.metadata
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": meta.name, "uid": meta.uid}
    owned = {"ownerReferences": [owner]} if meta.uid else {}  # a deleted Workflow cannot own the pod
    pod_meta: Object = {
        "name": f"bringup-{errand.purpose}-{secrets.token_hex(4)}",
        "namespace": home.namespace,
        "labels": {ERRAND: errand.purpose, RUN: meta.name},
        **owned,
    }
    pod_spec: Object = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(timeouts.READER_POD),  # ends the pod even if this machine never gets to delete it
        "automountServiceAccountToken": False,  # no helper pod calls the API of its own cluster
        "serviceAccountName": model.get("serviceAccountName", "default"),
        "securityContext": spec.get("securityContext", {}),
        "containers": [_container(model["container"], errand)],
        "volumes": _volumes(spec["volumes"], model["container"], errand),
        **{key: spec[key] for key in ("affinity", "imagePullSecrets") if key in spec},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": pod_spec}


def _container(model: Object, errand: HelperPod) -> Object:
    mounts = _mounted(model, errand)
    for mount in mounts:
        if mount["name"] == "store" and not errand.writes:
            mount["readOnly"] = True
    copied: Object = {key: model[key] for key in ("image", "imagePullPolicy", "resources", "securityContext") if key in model}
    return {
        "name": CONTAINER,
        "command": list(errand.command),
        "env": [{"name": name, "value": value} for name, value in errand.environment.items()],
        "volumeMounts": mounts,
        **copied,
    }


def _mounted(model: Object, errand: HelperPod) -> list[Object]:
    return [dict(mount) for mount in model["volumeMounts"] if not errand.store_only or mount["name"] == "store"]


def _volumes(every: Sequence[Object], model: Object, errand: HelperPod) -> list[Any]:
    """Return only those volumes that the helper pod's container mounts, so that the pod gets no other secret."""
    mounted = {mount["name"] for mount in _mounted(model, errand)}
    chosen = [dict(volume) for volume in every if volume["name"] in mounted]
    for volume in chosen:
        if "persistentVolumeClaim" in volume and not errand.writes:
            volume["persistentVolumeClaim"] = {**volume["persistentVolumeClaim"], "readOnly": True}
    return chosen


def _await(home: Home, name: str) -> RunPod:
    """Return the pod once it has ended. Raises HelperPodFailed if it does not end in time, with what it waits for."""
    end, latest = time.monotonic() + timeouts.READER_POD, RunPod(metadata=ResourceMeta(name=name))
    # short rounds: the time limit below is only looked at when an event comes
    for event in ResourceWatch(home, home.core("pods"), name, WatchPace(round=5.0)).states():
        if isinstance(event, ObjectGone):
            raise HelperPodFailed(f"pod {name} was deleted before it ended")
        if isinstance(event, ObjectState):
            latest = msgspec.json.decode(event.data, type=RunPod)
            if latest.status.phase in ("Succeeded", "Failed"):
                return latest
        if time.monotonic() > end:
            raise HelperPodFailed(
                f"pod {name} has not ended in {timeouts.READER_POD:.0f} s: {run_pods.waits_for(latest) or latest.status.phase}"
            )
    raise AssertionError("a stream has no end")


class NotReleased(StepError):
    """Exception: the pod could not release the nodes. Message and exit code are those of the problem that the pod reported."""

    def __init__(self, message: str, hint: str, code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = ExitCode(code)


class _ReleaseAnswer(Struct, frozen=True):
    said: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""
    code: int = 0


def release(home: Home, workflow: Workflow, stage: str, nodes: Sequence[str], who: str) -> tuple[str, ...]:
    """Release quarantined nodes by a helper pod, and return one line for each. `stage` is a stage that quarantined one of them.

    Raises NotReleased, HelperPodFailed, NoWorkflow.
    """
    environment = {"BRINGUP_STORE": "/bringup/store", "BRINGUP_SECRETS": "/bringup/secrets", "BRINGUP_RUN": workflow.metadata.name}
    errand = HelperPod(
        purpose="release",
        command=("python", "-c", inspect.getsource(node_release)),
        environment={**environment, "NODES": " ".join(nodes), "WHO": who},
        template=names.template(stage, "judge"),
        store_only=False,
        writes=True,
    )
    answer = _answer(run(home, workflow, errand))
    if answer.problem:
        raise NotReleased(answer.problem, answer.hint, answer.code)
    return answer.said


def _answer(log: bytes) -> _ReleaseAnswer:
    line = next((row for row in log.decode(errors="replace").splitlines() if row.startswith(node_release.ANSWER_PREFIX)), "")
    try:
        return msgspec.json.decode(line.removeprefix(node_release.ANSWER_PREFIX), type=_ReleaseAnswer)
    except UNREADABLE_JSON as error:
        raise HelperPodFailed(f"the pod that releases nodes gave no answer: {log[-400:].decode(errors='replace')}") from error
