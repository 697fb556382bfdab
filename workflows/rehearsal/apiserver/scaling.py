"""The scale sub-resource: one view of everything that has replicas."""

from typing import Any

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.entry import Object
from workflows.rehearsal.apiserver.resources import Resource, ScalePaths


def _get(obj: Object, path: tuple[str, ...]) -> Any:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _selector_text(selector: Any) -> str:
    if isinstance(selector, dict):
        return ",".join(f"{key}={value}" for key, value in selector.get("matchLabels", selector).items() if isinstance(value, str))
    return selector or ""


def scale_of(resource: Resource, obj: Object) -> Object:
    """The `autoscaling/v1` Scale of an object."""
    paths = _paths(resource)
    meta = obj["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if key in meta}
    status: Object = {"replicas": _get(obj, paths.status_replicas) or 0}
    selector = _selector_text(_get(obj, paths.selector or ("spec", "selector")))
    if selector:
        status["selector"] = selector
    spec = {"replicas": _get(obj, paths.replicas) or 0}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status}


def _paths(resource: Resource) -> ScalePaths:
    if resource.scale is None:
        raise errors.no_such_path()
    return resource.scale


def with_replicas(resource: Resource, obj: Object, scale: Object) -> Object:
    """The object after its Scale was written.

    Raises:
        ApiError: 422, replicas is not a number from 0 on.
    """
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
