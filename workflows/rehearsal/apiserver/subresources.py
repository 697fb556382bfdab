"""Sub-resources: scale of workloads; binding, eviction and logs of pods (k8s.io/kubernetes `pkg/registry/core/pod/storage`)."""

import datetime
import time
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

from workflows.rehearsal.apiserver import container_logs, errors, object_metadata
from workflows.rehearsal.apiserver.cluster_state import ClusterState
from workflows.rehearsal.apiserver.container_logs import ContainerLog, LogWindow
from workflows.rehearsal.apiserver.lifecycle import Deletion, Lifecycle, WriteOptions
from workflows.rehearsal.apiserver.listing import TRUE_VALUES
from workflows.rehearsal.apiserver.object_store import ObjectStore
from workflows.rehearsal.apiserver.selectors import parse_labels
from workflows.rehearsal.apiserver.served_resources import ResourceTable, ScalePaths, ServedResource
from workflows.rehearsal.apiserver.stored_object import Object, StoredObject, value_at

_RETRY_S = 10  # what kube-apiserver asks for while the budget's status is out of date


def _with_condition(status: Object, kind: str, at: str = "", **more: str) -> None:
    others = [row for row in status.get("conditions", ()) if row["type"] != kind]
    since = at or object_metadata.current_time()
    status["conditions"] = [*others, {"type": kind, "status": "True", "lastTransitionTime": since, **more}]


def _time(stamp: object) -> str:
    """Return a timestamp of a request; empty if there is none. Raises StatusError (400) for something else."""
    if stamp is None:
        return ""
    try:
        datetime.datetime.fromisoformat(str(stamp))
    except ValueError as error:
        raise errors.bad_request(f"metadata.creationTimestamp {str(stamp)[:40]!r} is no time") from error
    return str(stamp)


def _check_name(entry: StoredObject, body: Object, kind: str) -> None:
    if body.get("metadata", {}).get("name") != entry.name:
        raise errors.bad_request(f"name in URL does not match name in {kind} object")


def _requirements(selector: Object) -> Iterator[str]:
    for key, value in selector.get("matchLabels", {}).items():
        yield f"{key}={value}"
    for row in selector.get("matchExpressions", ()):
        key, values = row["key"], ",".join(row.get("values", ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
        yield texts[row["operator"]]


def _guards(budget: Object, pod: StoredObject) -> bool:
    selector = budget.get("spec", {}).get("selector")
    if selector is None:
        return False
    return all(term.matches(pod.labels) for term in parse_labels(",".join(_requirements(selector))))


def _is_ready(pod: Object) -> bool:
    return any(row["type"] == "Ready" and row["status"] == "True" for row in pod["status"].get("conditions", ()))


def _lets_unready_go(budget: Object) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status", {})
    return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


class PodActions:
    """The binding and eviction of pods, two writes with rules of their own beside create, update and delete."""

    def __init__(self, store: ObjectStore, resources: ResourceTable, lifecycle: Lifecycle) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._pods = resources.core("pods")
        self._budgets = resources.find("policy", "v1", "poddisruptionbudgets")

    def bind(self, entry: StoredObject, body: Object, write: WriteOptions) -> None:
        """Assign a pod to the node that the Binding `body` names.

        A time of creation in it is taken for the condition PodScheduled, because simulated schedulers have a time of their own.

        Raises StatusError: 400 (it names another pod), 409 (already assigned, gated or being deleted) or 422 (it names no node).
        """
        _check_name(entry, body, "Binding")
        node = body.get("target", {}).get("name")
        if not node:
            raise errors.invalid("", "Binding", entry.name, ["target.name: Required value"])
        obj = entry.decode()
        meta, spec = obj["metadata"], obj["spec"]
        obstacles = {
            f"pod {entry.name} is being deleted, cannot be assigned to a host": meta.get("deletionTimestamp"),
            f'pod {entry.name} is already assigned to node "{spec.get("nodeName")}"': spec.get("nodeName"),
            f"pod {entry.name} has non-empty .spec.schedulingGates": spec.get("schedulingGates"),
        }
        for why, holds in obstacles.items():
            if holds:
                raise errors.conflict("", "pods/binding", entry.name, why)
        spec["nodeName"] = node
        annotations = body["metadata"].get("annotations")
        if annotations:
            meta["annotations"] = {**meta.get("annotations", {}), **annotations}
        _with_condition(obj["status"], "PodScheduled", _time(body["metadata"].get("creationTimestamp")))
        if not write.dry_run:
            self._store.put(self._pods, obj, entry)

    def evict(self, entry: StoredObject, body: Object, write: WriteOptions) -> None:
        """Delete a pod if its PodDisruptionBudget allows it; `body` is an Eviction.

        Raises StatusError: 400 (it names another pod), 429 (no disruption allowed now) or 500 (more than one budget).
        """
        _check_name(entry, body, "Eviction")
        options = body.get("deleteOptions") or {}
        dry_run = write.dry_run or bool(options.get("dryRun"))
        pod = entry.decode()
        idle = pod["status"].get("phase") in ("Pending", "Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp")
        if not idle:
            self._ask_budgets(entry, pod, dry_run=dry_run)
        if not dry_run:
            _with_condition(pod["status"], "DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting")
            entry = self._store.put(self._pods, pod, entry)
            self._lifecycle.delete(self._pods, entry, Deletion(grace_s=options.get("gracePeriodSeconds")))

    def _ask_budgets(self, entry: StoredObject, pod: Object, *, dry_run: bool) -> None:
        stored = self._store.table(self._budgets.key).slice(entry.namespace)
        budgets = [(budget, obj) for budget, obj in ((row, row.decode()) for row in stored) if _guards(obj, entry)]
        if not budgets:
            return
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise errors.StatusError(500, "", message)
        budget, obj = budgets[0]
        if not _is_ready(pod) and _lets_unready_go(obj):
            return
        allowed = obj["status"].get("disruptionsAllowed", 0)
        outdated = obj["status"].get("observedGeneration", 0) < obj["metadata"]["generation"]
        if outdated or allowed <= 0:
            why = "Cannot evict pod as it would violate the pod's disruption budget."
            raise errors.try_later(429, "TooManyRequests", why, _RETRY_S if outdated else 0)
        if not dry_run:
            obj["status"]["disruptionsAllowed"] = allowed - 1
            self._store.put(self._budgets, obj, budget)


def _selector_text(selector: Any) -> str:
    if isinstance(selector, dict):
        return ",".join(f"{key}={value}" for key, value in selector.get("matchLabels", selector).items() if isinstance(value, str))
    return selector or ""


def _paths(resource: ServedResource) -> ScalePaths:
    if resource.scale is None:
        raise errors.no_such_path()
    return resource.scale


def scale_of(resource: ServedResource, obj: Object) -> Object:
    """Return the `autoscaling/v1` Scale of an object. Raises StatusError (404) if the resource has none."""
    paths, meta = _paths(resource), obj["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if key in meta}
    status: Object = {"replicas": value_at(obj, paths.status_replicas) or 0}
    selector = _selector_text(value_at(obj, paths.selector or ("spec", "selector")))
    if selector:
        status["selector"] = selector
    spec = {"replicas": value_at(obj, paths.replicas) or 0}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status}


def with_replicas(resource: ServedResource, obj: Object, scale: Object) -> Object:
    """Return the object with the replicas of a written Scale. Raises StatusError (422) unless they are an integer ≥ 0."""
    replicas = scale.get("spec", {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise errors.invalid("autoscaling", "Scale", obj["metadata"]["name"], [f"spec.replicas: Invalid value: {replicas!r}"])
    *holders, last = _paths(resource).replicas
    holder = obj
    for step in holders:
        holder = holder.setdefault(step, {})
    holder[last] = replicas
    revision = scale.get("metadata", {}).get("resourceVersion")
    return obj | {"metadata": obj["metadata"] | ({"resourceVersion": revision} if revision else {})}


_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def container_of(pod: Object, named: str) -> str:
    """Return the name of the container that a log request means; `named` is the one in its query, or empty.

    Raises StatusError (400) if the container does not exist, or if the pod has several and the request names none.
    """
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [row["name"] for row in spec["containers"]]
    known = containers + [row["name"] for part in ("initContainers", "ephemeralContainers") for row in spec.get(part, ())]
    named = named or pod["metadata"].get("annotations", {}).get(_DEFAULT_CONTAINER, "")
    if named:
        if named not in known:
            raise errors.bad_request(f"container {named} is not valid for pod {name}")
        return named
    if len(containers) > 1:
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]")
    return str(containers[0])


def _state(pod: Object, container: str) -> Object:
    rows = [row for part in ("containerStatuses", "initContainerStatuses") for row in pod["status"].get(part, ())]
    return next((row.get("state", {}) for row in rows if row["name"] == container), {})


def _check_started(pod: Object, container: str, log: ContainerLog) -> None:
    """Raise StatusError (400) if the container still waits to start and has no log, as a kubelet does."""
    waiting = _state(pod, container).get("waiting")
    if waiting is not None and not log.parts and not log.previous:
        why = waiting.get("reason", "ContainerCreating")
        raise errors.bad_request(f'container "{container}" in pod "{pod["metadata"]["name"]}" is waiting to start: {why}')


def _over(pod: StoredObject | None, container: str) -> bool:
    if pod is None:
        return True
    obj = pod.decode()
    return obj["status"].get("phase") in ("Succeeded", "Failed") or "terminated" in _state(obj, container)


def _integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is not None and not text.isdigit():
        raise errors.bad_request(f"invalid {name}: {text!r}")
    return None if text is None else int(text)


def requested_window(query: Mapping[str, str]) -> LogWindow:
    """Return the part of a log that a request's query asks for. Raises StatusError (400) for a malformed number."""
    since = _integer(query, "sinceSeconds")
    return LogWindow(
        tail=_integer(query, "tailLines"),
        since=None if since is None else time.time() - since,
        limit_bytes=_integer(query, "limitBytes"),
        timestamps=query.get("timestamps") in TRUE_VALUES,
    )


async def serve_log(request: web.Request, state: ClusterState, entry: StoredObject) -> web.StreamResponse:
    """Answer a request for the log of a pod's container; with `follow`, stream it until the container has ended.

    Raises StatusError (400) for an unknown container, or if there is no such log.
    """
    query = request.query
    pod = entry.decode()
    container = container_of(pod, query.get("container", ""))
    log = state.logs.container_log(entry.namespace, entry.name, container)
    window = requested_window(query)
    if query.get("previous") in TRUE_VALUES:
        if not log.previous:
            raise errors.bad_request(f'previous terminated container "{container}" in pod "{entry.name}" not found')
        return web.Response(body=container_logs.window_text(log.previous, window), content_type="text/plain")
    _check_started(pod, container, log)
    if not pod["spec"].get("nodeName") and not log.parts:
        # a pod without a node: kube-apiserver answers an empty stream so
        return web.Response(status=204)
    if query.get("follow") not in TRUE_VALUES:
        return web.Response(body=container_logs.window_text(log.parts, window), content_type="text/plain")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    await _follow(response, state, entry, container, log, window)
    await response.write_eof()
    return response


async def _follow(
    response: web.StreamResponse, state: ClusterState, entry: StoredObject, container: str, log: ContainerLog, window: LogWindow
) -> None:
    pods = state.resources.core("pods")
    sent = log.first + container_logs.count(log.parts)
    await response.write(container_logs.window_text(log.parts, window))
    while True:
        changed = log.changed  # before the lines are read: what comes while they are sent wakes the loop
        over = _over(state.store.table(pods.key).get(entry.namespace, entry.name), container)
        lines, dropped = list(container_logs.lines_of(log.parts, timestamps=window.timestamps)), log.first
        for line in lines[max(0, sent - dropped) :]:
            await response.write(line)
        sent = dropped + len(lines)
        if over:
            return
        await changed.wait()
