"""Rules about what the files say: placeholders, secrets, images, Jobs, and fields of kinds whose schemas the catalog has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workflows.catalog.chart_schemas import delivered_kind_schemas
from workflows.gitops_check import secret_rules
from workflows.gitops_check.delivery_tree import DeliveredObject, DeliveryTree, mapping, sequence
from workflows.gitops_check.gitops_findings import GitopsFinding, UncheckedPart, finding
from workflows.gitops_check.ownership_rules import OwnedObject
from workflows.gitops_check.placeholder_values import is_placeholder
from workflows.gitops_check.yaml_stream import Path, StreamDocument
from workflows.spec.compat.value_shapes import ShapeComparison

_LONGEST = 400
"""Characters of a value in which placeholders are sought: longer ones are scripts and prose."""
_POD_PATHS: Mapping[str, Path] = {
    "Pod": ("spec",),
    "Deployment": ("spec", "template", "spec"),
    "StatefulSet": ("spec", "template", "spec"),
    "DaemonSet": ("spec", "template", "spec"),
    "ReplicaSet": ("spec", "template", "spec"),
    "NodeSet": ("spec", "template", "spec"),
    "Job": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
"""Kind → path of its pod spec."""
_WORDS = {"bool": "true or false", "number": "a number", "text": "text", "list": "a list", "map": "a group of keys"}
_HOOKS = ("argocd.argoproj.io/hook", "helm.sh/hook")
_SYNC_OPTIONS = "argocd.argoproj.io/sync-options"


# ---- placeholders and secrets ---------------------------------------------------------------------------------------------------


def text_findings(tree: DeliveryTree) -> Iterator[GitopsFinding]:
    """Yield placeholders and secrets of every document: objects, values, and data of generators."""
    seen: set[int] = set()
    files = [(entry.path, entry.document) for entry in (*tree.manifests, *tree.kustomizations.values())]
    files += [(file.path, file.document) for file in tree.other]
    files += [(file.path, file.document) for chart in tree.charts.values() for file in chart.values.values()]
    files += [(chart.chart_file, chart.document) for chart in tree.charts.values()]
    for path, document in files:
        if id(document) not in seen:
            seen.add(id(document))
            yield from _placeholders(path, document)
            yield from secret_rules.secret_findings(path, document)
    yield from secret_rules.secret_objects(tree)


def _placeholders(path: str, document: StreamDocument) -> Iterator[GitopsFinding]:
    for place, value in _leaves(document.data):
        if not isinstance(value, str) or len(value) > _LONGEST:
            continue
        if "\n" not in value and is_placeholder(value):
            words = f"{'.'.join(map(str, place))} still holds a placeholder"
            yield finding("placeholder", (path, document.line(*place)), words, "write the site's own value", value=value)


def _leaves(data: Any) -> Iterator[tuple[Path, Any]]:
    stack: list[tuple[Path, Any]] = [((), data)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, Mapping):
            stack += [((*place, str(key)), inner) for key, inner in item.items()]
        elif isinstance(item, list):
            stack += [((*place, number), inner) for number, inner in enumerate(item)]
        else:
            yield place, item


# ---- pods -----------------------------------------------------------------------------------------------------------------------


def pod_spec(manifest: DeliveredObject) -> tuple[Path, Mapping[str, Any]]:
    """Return the path and the pod spec of a workload; an empty path if the object has none."""
    path = _POD_PATHS.get(manifest.kind, ())
    here: Any = manifest.data
    for part in path:
        here = mapping(here).get(str(part))
    return (path, here) if path and isinstance(here, Mapping) else ((), {})


def image_findings(manifests: Iterable[DeliveredObject]) -> Iterator[GitopsFinding]:
    """Yield a finding for each image of a pod without a tag, with `latest`, and without a digest."""
    for manifest in manifests:
        path, spec = pod_spec(manifest)
        for group in ("initContainers", "containers"):
            for number, container in enumerate(map(mapping, sequence(spec.get(group)))):
                image = str(container.get("image") or "")
                if _image_floats(image):
                    where = manifest.where(*path, group, number, "image")
                    words = f"{manifest.kind} {manifest.name} runs whatever the registry has under this name when a pod starts"
                    yield finding("image-floats", where, words, "write a tag or, better, a digest", value=image)


def _image_floats(image: str) -> bool:
    if not image or "@sha256:" in image or "{{" in image:
        return False
    _, _, tag = image.rpartition("/")[2].partition(":")
    return tag in ("", "latest")


def image_value_findings(tree: DeliveryTree) -> Iterator[GitopsFinding]:
    """Yield a finding for each image of Helm values whose tag is `latest`."""
    files = [*tree.other, *(file for chart in tree.charts.values() for file in chart.values.values())]
    for file in files:
        for place, value in _leaves(file.document.data):
            names = [str(part) for part in place]
            is_tag = bool(names) and names[-1].lower() in ("tag", "imagetag") and value == "latest"
            is_image = bool(names) and names[-1].lower() == "image" and isinstance(value, str) and value.endswith(":latest")
            if is_tag or is_image:
                words = f"{'.'.join(names)}: the image is whatever the registry has when a pod starts"
                yield finding(
                    "image-floats", (file.path, file.document.line(*place)), words, "write a tag of a release", value=value
                )


_GANGS = {
    "MPIJob": "mpiReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "JobSet": "replicatedJobs",
    "LeaderWorkerSet": "replicas",
}
_QUEUES = ("kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name", "kai.scheduler/queue", "runai/queue")


def gang_findings(manifests: Iterable[DeliveredObject]) -> Iterator[GitopsFinding]:
    """Yield a finding for each job of several pods that neither a queue nor a gang scheduler places as a whole."""
    for manifest in manifests:
        if manifest.kind not in _GANGS or _GANGS[manifest.kind] not in manifest.spec:
            continue
        labels = {**mapping(manifest.metadata.get("labels")), **manifest.annotations}
        names_scheduler = any(place and place[-1] in ("schedulerName", "schedulingPolicy") for place, _ in _leaves(manifest.spec))
        has_policy = "schedulingPolicy" in mapping(manifest.spec.get("runPolicy"))
        if not names_scheduler and not has_policy and not any(queue in labels for queue in _QUEUES):
            words = f"pods of {manifest.kind} {manifest.name} may be placed in part, and those placed hold their GPUs for ever"
            fix = "name a queue of Kueue by its label, or set schedulerName to a gang scheduler (volcano, kai-scheduler)"
            yield finding("gang-missing", manifest.where("kind"), words, fix)


# ---- Jobs -----------------------------------------------------------------------------------------------------------------------


def job_findings(owned: Iterable[OwnedObject]) -> Iterator[GitopsFinding]:
    """Yield a finding for each Job that an Application applies as an ordinary object: its template is immutable."""
    for entry in owned:
        manifest = entry.manifest
        if manifest.kind != "Job" or manifest.group != "batch":
            continue
        options = manifest.annotations.get(_SYNC_OPTIONS, "")
        is_replaced = any(f"{word}=true" in options or f"{word}=true" in entry.application.options for word in ("Replace", "Force"))
        is_hook = any(hook in manifest.annotations for hook in _HOOKS)
        if not is_replaced and not is_hook and not manifest.metadata.get("generateName"):
            words = f"Job {manifest.name}: a change is refused (immutable), and the sync of {entry.application.name} fails"
            fix = (
                "make it a hook (argocd.argoproj.io/hook: Sync, hook-delete-policy: BeforeHookCreation), "
                f"or annotate {_SYNC_OPTIONS}: Force=true,Replace=true"
            )
            yield finding("immutable-job", manifest.where("kind"), words, fix, value=manifest.name)


# ---- schemas of kinds -----------------------------------------------------------------------------------------------------------


_APPLICATION, _APPLICATION_SET = "argoproj.io/v1alpha1/Application", "argoproj.io/v1alpha1/ApplicationSet"


def schema_findings(manifests: Iterable[DeliveredObject]) -> Iterator[GitopsFinding | UncheckedPart]:
    """Yield findings about fields of custom resources whose CRDs the catalog has; kinds without one are unchecked."""
    kinds = {kind: entry["spec"] for kind, entry in delivered_kind_schemas().items()}
    unknown: dict[str, str] = {}
    for manifest in manifests:
        kind = f"{manifest.data.get('apiVersion')}/{manifest.kind}"
        if kind in kinds:
            yield from _fields(manifest, manifest.data.get("spec", {}), kinds[kind], "spec")
        elif kind == _APPLICATION_SET:
            template = mapping(mapping(manifest.spec.get("template")).get("spec"))
            yield from _fields(manifest, template, kinds[_APPLICATION], "spec.template.spec")
        elif "." in manifest.group and not manifest.group.endswith(".k8s.io"):
            unknown.setdefault(kind, manifest.path)
    yield from (UncheckedPart(path, f"no schema of {kind} is known: its fields are not compared") for kind, path in unknown.items())


def _fields(manifest: DeliveredObject, value: Any, shape: Any, at: str) -> Iterator[GitopsFinding]:
    name = f"{manifest.kind} {manifest.name}"
    for flaw in ShapeComparison().flaws(value, shape, at):
        path = tuple(int(part) if part.isdigit() else part for part in re.split(r"\.|\[|\]\.?", flaw.path) if part)
        where = manifest.where(*path)
        if flaw.flaw == "missing":
            words = f"{name}: {flaw.path} lacks {flaw.expected}, which the API server requires"
            yield finding("field-missing", where, words, f"add {flaw.expected}")
        elif flaw.flaw == "type":
            words = f"{name}: {flaw.path} has another type in its kind"
            yield finding("field-type", where, words, f"write {_WORDS.get(flaw.expected, flaw.expected)}")
        else:
            words = f"{name}: {flaw.path} is no field of its kind, and the API server drops or refuses it"
            fix = f"did you mean {flaw.expected}?" if flaw.expected else "remove it"
            yield finding("field-unknown", where, words, fix, value=path[-1])
