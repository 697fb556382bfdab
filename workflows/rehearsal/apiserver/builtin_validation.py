"""Validation rules of built-in kinds that go beyond types: required fields, matching selectors, immutable fields.

They are a selection of k8s.io/kubernetes `pkg/apis/*/validation`: mistakes that a bring-up can make, and rules that controllers
rely on.
"""

import binascii
import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.stored_object import Object, value_at

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_IMMUTABLE: Mapping[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("apps", "deployments"): (("spec", "selector"),),
    ("apps", "daemonsets"): (("spec", "selector"),),
    ("apps", "replicasets"): (("spec", "selector"),),
    ("apps", "statefulsets"): (
        ("spec", "selector"),
        ("spec", "serviceName"),
        ("spec", "podManagementPolicy"),
        ("spec", "volumeClaimTemplates"),
    ),
    ("batch", "jobs"): (("spec", "completions"), ("spec", "selector"), ("spec", "completionMode")),
    ("rbac.authorization.k8s.io", "rolebindings"): (("roleRef",),),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): (("roleRef",),),
    ("storage.k8s.io", "storageclasses"): (("provisioner",), ("parameters",), ("reclaimPolicy",), ("volumeBindingMode",)),
    ("scheduling.k8s.io", "priorityclasses"): (("value",), ("preemptionPolicy",)),
    ("", "secrets"): (("type",),),
    ("", "persistentvolumeclaims"): (("spec", "accessModes"), ("spec", "storageClassName"), ("spec", "volumeMode")),
    ("node.k8s.io", "runtimeclasses"): (("handler",),),
}


def _required(obj: Object, path: str, *names: str) -> Iterator[str]:
    for name in names:
        if not obj.get(name):
            yield f"{path}.{name}: Required value"


def _pod_spec(spec: Object, path: str) -> Iterator[str]:
    if not spec.get("containers"):
        yield f"{path}.containers: Required value"
    volumes = {volume.get("name") for volume in spec.get("volumes", ())}
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group, ())):
            container_path = f"{path}.{group}[{index}]"
            yield from _required(container, container_path, "name", "image")
            if container.get("name") in seen:
                yield f'{container_path}.name: Duplicate value: "{container["name"]}"'
            seen.add(container.get("name", ""))
            yield from _mounts(container, volumes, container_path)
            yield from _limits(container.get("resources", {}), f"{container_path}.resources")


def _mounts(container: Object, volumes: set[Any], container_path: str) -> Iterator[str]:
    for index, mount in enumerate(container.get("volumeMounts", ())):
        yield from _required(mount, f"{container_path}.volumeMounts[{index}]", "name", "mountPath")
        if mount.get("name") and mount["name"] not in volumes:
            yield f'{container_path}.volumeMounts[{index}].name: Not found: "{mount["name"]}"'


def _limits(resources: Object, container_path: str) -> Iterator[str]:
    """Yield the errors in requests and limits. An extended resource (nvidia.com/gpu) needs a limit and a request equal to it."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name in limits.keys() | requests.keys():
        extended = "/" in name and "kubernetes.io/" not in name
        if extended and name not in limits:
            yield f"{container_path}.limits: Required value: Limit must be set for non overcommitable resources"
        elif extended and requests.get(name, limits[name]) != limits[name]:
            yield f'{container_path}.requests: Invalid value: "{requests[name]}": must be equal to {name} limit of {limits[name]}'


def _workload(obj: Object) -> Iterator[str]:
    spec = obj["spec"]
    template = value_at(spec, ("template", "spec")) or {}
    selector = spec.get("selector") or {}
    labels = value_at(spec, ("template", "metadata", "labels")) or {}
    if not selector:
        yield "spec.selector: Required value"
    elif any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        yield f"spec.template.metadata.labels: Invalid value: {labels}: `selector` does not match template `labels`"
    yield from _pod_spec(template, "spec.template.spec")
    policy = template.get("restartPolicy")
    if policy not in (None, "Always"):
        yield f'spec.template.spec.restartPolicy: Unsupported value: "{policy}": supported values: "Always"'


def _job(obj: Object) -> Iterator[str]:
    template = value_at(obj["spec"], ("template", "spec")) or {}
    yield from _pod_spec(template, "spec.template.spec")
    policy = template.get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        yield f'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never" (is "{policy}")'


def _keys(obj: Object) -> Iterator[str]:
    rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    for part in ("data", "binaryData"):
        for key in obj.get(part, {}):
            if not _KEY.fullmatch(key):
                yield f'{part}[{key}]: Invalid value: "{key}": {rule}'


_VALUES = 1 << 20
"""Largest size in bytes of all values of a ConfigMap or Secret together."""


def _config_map(obj: Object) -> Iterator[str]:
    yield from _keys(obj)
    size = sum(len(text.encode()) for text in obj.get("data", {}).values()) + _decoded(obj.get("binaryData", {}))
    if size > _VALUES:
        yield f"[]: Too long: may not be more than {_VALUES} bytes"


def _secret(obj: Object) -> Iterator[str]:
    yield from _keys(obj)
    if _decoded(obj.get("data", {})) > _VALUES:
        yield f"data: Too long: may not be more than {_VALUES} bytes"


def _decoded(values: Mapping[str, str]) -> int:
    """Return the size in bytes of all these base64 values together after decoding."""
    return sum(len(binascii.a2b_base64(text)) for text in values.values())


def _service(obj: Object) -> Iterator[str]:
    spec = obj["spec"]
    if spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield from _required(spec, "spec", "ports")


def _crd(obj: Object) -> Iterator[str]:
    spec = obj["spec"]
    yield from _required(spec, "spec", "group", "scope")
    yield from _required(spec["names"], "spec.names", "plural", "kind")
    expected_name = f"{spec['names'].get('plural')}.{spec.get('group')}"
    if obj["metadata"]["name"] != expected_name:
        yield f'metadata.name: Invalid value: "{obj["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield "spec.versions: Invalid value: must have exactly one version marked as storage version"
    for index, version in enumerate(versions):
        if not value_at(version, ("schema", "openAPIV3Schema")):
            yield f"spec.versions[{index}].schema.openAPIV3Schema: Required value: schemas are required"


_RULES: Mapping[tuple[str, str], Callable[[Object], Iterator[str]]] = {
    ("", "pods"): lambda obj: _pod_spec(obj["spec"], "spec"),
    ("", "configmaps"): _config_map,
    ("", "secrets"): _secret,
    ("", "services"): _service,
    ("batch", "jobs"): _job,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _crd,
    ("rbac.authorization.k8s.io", "rolebindings"): lambda obj: _required(obj["roleRef"], "roleRef", "kind", "name"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): lambda obj: _required(obj["roleRef"], "roleRef", "kind", "name"),
    ("storage.k8s.io", "storageclasses"): lambda obj: _required(obj, "", "provisioner"),
    ("apps", "deployments"): _workload,
    ("apps", "daemonsets"): _workload,
    ("apps", "statefulsets"): _workload,
    ("apps", "replicasets"): _workload,
}


def problems(resource: ServedResource, obj: Object) -> list[str]:
    """Return the validation errors of an object of a built-in kind, each as `PATH: REASON: …`; empty if it is valid."""
    rule = _RULES.get(resource.key)
    return [text.removeprefix(".") for text in rule(obj)] if rule else []


def change_problems(resource: ServedResource, new: Object, old: Object) -> list[str]:
    """Return an error, as `PATH: REASON: …`, for each change from `old` to `new` that the kind forbids; empty if there is none."""
    changed = [path for path in _IMMUTABLE.get(resource.key, ()) if value_at(new, path) != value_at(old, path)]
    problems = [f"{'.'.join(path)}: Invalid value: {value_at(new, path)}: field is immutable" for path in changed]
    if old.get("immutable") and any(new.get(part) != old.get(part) for part in ("data", "binaryData", "immutable")):
        problems.append("data: Forbidden: field is immutable when `immutable` is set")
    if resource.key == ("", "pods"):
        problems += _pod_change(new["spec"], old["spec"])
    runs = resource.key == ("batch", "jobs") and not old["spec"].get("suspend")
    if runs and new["spec"].get("template") != old["spec"].get("template"):
        problems.append("spec.template: Invalid value: field is immutable")
    return problems


def _mutable_cut(spec: Object) -> Object:
    cut = copy.deepcopy(spec)
    for key in ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"):
        cut.pop(key, None)
    for container in (*cut.get("containers", ()), *cut.get("initContainers", ())):
        container.pop("image", None)
        container.pop("imagePullPolicy", None)
    return cut


def _pod_change(new: Object, old: Object) -> list[str]:
    if new == old or _mutable_cut(new) == _mutable_cut(old):
        return []
    images = "`spec.containers[*].image`,`spec.initContainers[*].image`"
    others = "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions),`spec.terminationGracePeriodSeconds`"
    return [f"spec: Forbidden: pod updates may not change fields other than {images},{others}"]
