"""Write the schemas of chart values and objects that the catalog ships: `python -m tests.chart_schemas` (see its README).

They are made of published default values and CRDs, which lie outside this repository (`tests/README.md`, data from outside).
"""

import copy
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from workflows import catalog
from workflows.spec.parsing.document import value_at

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[2] / "shared") / "crds"
FOLDER = Path(catalog.__file__).with_name("schemas")

CHARTS: Mapping[str, tuple[str, str]] = {
    "cert_manager": ("cert-manager-2026-08-22/values.yaml", "cert-manager/cert-manager 2d0d7f7f74 (main after v1.21.1)"),
    "dra_driver": ("k8s-dra-driver-gpu-2026-05-15/values.yaml", "NVIDIA/k8s-dra-driver-gpu 2240711378 (0.5.0-dev)"),
    "gpu_operator": ("gpu-operator-v26.7.0/values.yaml", "NVIDIA/gpu-operator v26.7.0"),
    "kai_scheduler": ("kai-scheduler-2026-08-07/values.yaml", "kai-scheduler/KAI-Scheduler d5bc503a14 (main after v0.17.0)"),
    "kueue": ("kueue-2026-08-22/values.yaml", "kubernetes-sigs/kueue ff69552e79 (main after v0.19.2)"),
    "network_operator": ("network-operator-2026-08-19/values.yaml", "Mellanox/network-operator b06827e085 (26.7.0-rc.1)"),
    "slurm": ("slurm-operator-2026-08-20/slurm-chart.values.yaml", "SlinkyProject/slurm-operator f2ed3fc532 (1.3.0-rc1)"),
    "slurm_operator": ("slurm-operator-2026-08-20/values.yaml", "SlinkyProject/slurm-operator f2ed3fc532 (1.3.0-rc1)"),
    "volcano": ("volcano-2026-08-20/values.yaml", "volcano-sh/volcano ed72c7c815 (main after v1.15.1)"),
}
"""Component → file of default values, and its source."""
_OF_SUNK = "coreweave/sunk-anywhere ca81a7a350: values for other clusters, not the charts' own"
_PLACES = ("base", "generic", "eks", "gke")
OVERLAID: Mapping[str, tuple[tuple[str, ...], str]] = {
    "sunk": (tuple(f"sunk-anywhere-2026/helm-values/{place}/sunk-values.yaml" for place in _PLACES), _OF_SUNK),
    "sunk_slurm": (tuple(f"sunk-anywhere-2026/helm-values/{place}/slurm-values.yaml" for place in _PLACES), _OF_SUNK),
}
"""Component → published files of values for a chart whose own values are not public, and their source. A key in none of them may
exist all the same, so the plan lists it as unverified.
"""
SUB_CHARTS = {"node-feature-discovery": "node-feature-discovery-2026-07-30/values.yaml"}
FREE_NAMES = {"slurm": {"nodesets": "nodesetDefaults", "loginsets": "loginsetDefaults", "partitions": "partitions.all"}}
"""Component → maps whose keys are names that users choose → the published entry that shows their shape."""
KINDS = (
    "kueue.x-k8s.io/v1beta2/ClusterQueue",
    "kueue.x-k8s.io/v1beta2/LocalQueue",
    "kueue.x-k8s.io/v1beta2/ResourceFlavor",
    "mellanox.com/v1alpha1/HostDeviceNetwork",
    "mellanox.com/v1alpha1/IPoIBNetwork",
    "mellanox.com/v1alpha1/MacvlanNetwork",
    "mellanox.com/v1alpha1/NicClusterPolicy",
    "nv-ipam.nvidia.com/v1alpha1/IPPool",
    "sriovnetwork.openshift.io/v1/SriovIBNetwork",
    "sriovnetwork.openshift.io/v1/SriovNetwork",
    "sriovnetwork.openshift.io/v1/SriovNetworkNodePolicy",
)
DELIVERED_KINDS = (
    "argoproj.io/v1alpha1/AppProject",
    "argoproj.io/v1alpha1/Application",
    "cert-manager.io/v1/Certificate",
    "cert-manager.io/v1/ClusterIssuer",
    "cert-manager.io/v1/Issuer",
    "helm.cattle.io/v1/HelmChart",
    "kubeflow.org/v2beta1/MPIJob",
    "nvidia.com/v1/ClusterPolicy",
    "scheduling.volcano.sh/v1beta1/Queue",
    "slinky.slurm.net/v1beta1/Accounting",
    "slinky.slurm.net/v1beta1/Controller",
    "slinky.slurm.net/v1beta1/LoginSet",
    "slinky.slurm.net/v1beta1/NodeSet",
    "slinky.slurm.net/v1beta1/RestApi",
    "slinky.slurm.net/v1beta1/Token",
)
"""Further kinds that trees of users hold. They are apart, because reading them takes longer than planning may."""
OF_KUBERNETES = {"affinity", "nodeAffinity", "tolerations", "nodeSelectorTerms", "containerResources", "resources", "env"}
"""Fields of Kubernetes' own types, which are not spelt out."""
OF_SLURM = {"configMap", "extraConfMap"}
"""Maps whose keys are those of slurm.conf, of which charts show some as examples."""

_COMMENTED = re.compile(r"^(\s*)#\s?([a-z][A-Za-z0-9]*):(?:\s|$)")
_KEY = re.compile(r"^(\s*)([A-Za-z][A-Za-z0-9_.-]*):(?:\s|$)")


def of_values(file: str) -> dict[str, Any]:
    """Return the schema of a chart's default values, with keys that the file only mentions in comments as `any`."""
    text = (DATA / file).read_text(encoding="utf-8")
    schema = _shape(yaml.load(text, Loader=yaml.CSafeLoader))
    for path in _commented(text):
        here = schema
        for key in path[:-1]:
            here = here.get(key, {}) if isinstance(here, dict) else {}
        if isinstance(here, dict) and here and "any" not in here:
            here.setdefault(path[-1], "any")
    return schema if isinstance(schema, dict) else {}


def _shape(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): "map" if key in OF_SLURM else _shape(inner) for key, inner in value.items()} or "map"
        case list():
            return "list"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case None:
            return "any"
        case _:
            return "text"


def _commented(text: str) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    stack: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := _COMMENTED.match(line):
            column = len(match[1])
            parents = [key for indent, key in stack if indent < column]
            paths.append((*parents, match[2]))
        elif match := _KEY.match(line):
            column = len(match[1])
            stack = [(indent, key) for indent, key in stack if indent < column] + [(column, match[2])]
    return paths


def of_overlays(files: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of everything that several files of values use, with names of node groups and scripts free."""
    schema: dict[str, Any] = {}
    for file in files:  # their comments are prose, not keys
        _unite(schema, _shape(yaml.load((DATA / file).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)))
    for path in ("compute.nodes", "compute.s6"):
        parent, _, name = path.rpartition(".")
        place = value_at(schema, parent)
        if isinstance(place, dict) and name in place:
            group: dict[str, Any] = {}
            for entry in place[name].values():
                _unite(group, entry if isinstance(entry, dict) else {})
            place[name] = {"*": group}
    return _opened(schema)


def _unite(schema: dict[str, Any], further: Mapping[str, Any]) -> None:
    for key, shape in further.items():
        present = schema.get(key)
        if isinstance(present, dict) and isinstance(shape, Mapping):
            _unite(present, shape)
        elif present is None or present == shape:
            schema[key] = copy.deepcopy(shape)
        else:  # null or an empty map in one file, a value in the other
            known = [one for one in (present, shape) if one not in ("any", "map")]
            schema[key] = known[0] if len(known) == 1 else "any"


def _opened(shape: Any, name: str = "") -> Any:
    """Return a shape with Kubernetes' own types, and maps of names that users choose, as `any`."""
    if name in OF_KUBERNETES | {"nodeSelector", "gpuTypes", "annotations", "enrootConfig", "nsscacheConfig", "partitionConfig"}:
        return "any"
    return {key: _opened(inner, key) for key, inner in shape.items()} if isinstance(shape, dict) else shape


def of_crd(schema: Mapping[str, Any], name: str = "") -> Any:
    """Return the shape of an OpenAPI schema; a list has the shape of its items, and a required key ends with `!`."""
    if name in OF_KUBERNETES or schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string"):
        return "any"
    if "properties" in schema:
        needed = schema.get("required", ())
        return {f"{key}{'!' * (key in needed)}": of_crd(inner, key) for key, inner in sorted(schema["properties"].items())}
    if schema.get("type") == "array":
        return [of_crd(schema["items"])]
    return {"boolean": "bool", "integer": "number", "number": "number", "string": "text"}.get(schema.get("type", ""), "map")


def pins(component: str) -> list[str]:
    """Return the versions at which the catalog and its overlays pin a component."""
    known = catalog.load()
    overlaid = (overlay.components[component].version for overlay in known.overlays.values() if component in overlay.components)
    return [version for version in (known.components[component].version, *overlaid) if version]


def chart(component: str) -> dict[str, Any]:
    """Return the schema file of a component as data."""
    file, source = CHARTS[component]
    values = of_values(file)
    for name, published in SUB_CHARTS.items():
        if name in values:
            values[name] = of_values(published)
    for name, example in FREE_NAMES.get(component, {}).items():
        values[name] = {"*": {"enabled": "bool", **copy.deepcopy(value_at(values, example))}}  # shared parts would be YAML anchors
    return {"pins": pins(component), "source": source, "values": values}


def overlaid(component: str) -> dict[str, Any]:
    """Return the schema file of a component whose chart publishes no values of its own."""
    files, source = OVERLAID[component]
    return {"pins": pins(component), "source": source, "partial": True, "values": of_overlays(files)}


def objects(kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema file of some kinds as data: GROUP/VERSION/KIND → source and shape."""
    found: dict[str, Any] = {}
    for file in sorted(DATA.glob("*/crds/*.yaml")):
        text = file.read_text(encoding="utf-8")
        if not any(f"kind: {kind.rpartition('/')[2]}\n" in text for kind in kinds):
            continue
        crd = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]
        for version in crd["versions"]:
            kind = f"{crd['group']}/{version['name']}/{crd['names']['kind']}"
            if kind in kinds:
                properties = version["schema"]["openAPIV3Schema"]["properties"]
                found[kind] = {"source": file.parts[-3], "spec": of_crd(properties["spec"])}
    return {kind: found[kind] for kind in kinds}


def texts() -> dict[str, str]:
    """Return file name → text of every schema file."""
    data = {f"{name}.yaml": chart(name) for name in CHARTS} | {"objects.yaml": {"kinds": objects(KINDS)}}
    data |= {"delivered_objects.yaml": {"kinds": objects(DELIVERED_KINDS)}}
    data |= {f"{name}.yaml": overlaid(name) for name in OVERLAID}
    return {name: yaml.safe_dump(content, sort_keys=False, width=130, default_flow_style=None) for name, content in data.items()}


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
