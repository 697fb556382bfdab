"""Rules about what users override: P33 (values fit their charts), P34 (they leave what is needed) and P41 (kubelet settings)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from steps.contract.node_taints import from_text
from workflows.spec.cluster_spec import ClusterSpec, has_gpu_cluster, slurm_groups
from workflows.spec.compat.rule_table import Platform, ReleaseFacts, RuleFinding, rule
from workflows.spec.compat.value_shapes import ShapeComparison, ValueFlaw
from workflows.spec.errors import Severity
from workflows.spec.gpu_pools import mig_strategy, sharing_modes
from workflows.spec.parsing.document import value_at
from workflows.spec.parsing.loading import read

_WORDS = {
    "bool": "true or false without quotes (a template takes any text for true)",
    "number": "a number",
    "text": "text",
    "list": "a list",
    "map": "a group of keys",
}
_MOST_LISTED = 8


@rule("P33", "error", source="https://helm.sh/docs/chart_template_guide/values_files/")
def values_fit_their_charts(platform: Platform) -> Iterator[RuleFinding]:
    """Overrides use keys and types of the pinned chart, since Helm ignores unknown keys, and objects the fields of their kinds."""
    for release in platform.releases.values():
        written = platform.spec.overrides[release.id].values if release.id in platform.spec.overrides else {}
        if release.from_manifest:
            yield from _of_no_chart(platform.spec, release)
            continue
        unknown: list[str] = []
        for flaw in ShapeComparison().flaws(release.values, release.schema, ""):
            key = flaw.path.removeprefix(".")
            if flaw.flaw == "unknown":
                unknown += [key] if _is_written(written, key) else []
            else:
                yield _finding(
                    release, flaw, f"{'overrides' if _is_written(written, key) else 'catalog'}.{release.id}.values.{key}"
                )
        if unknown:
            yield _unverified(release, unknown)
        yield from _of_objects(release)


def _of_no_chart(spec: ClusterSpec, release: ReleaseFacts) -> Iterator[RuleFinding]:
    """Yield the keys of an override that only a chart has, for a component that is applied from a manifest."""
    override = spec.overrides.get(release.id)
    for field in ("values", "repo", "digest"):
        if override is not None and getattr(override, field):
            problem = f"{release.id} is applied from a manifest, not from a chart, so nothing would read this"
            yield RuleFinding(f"overrides.{release.id}.{field}", problem, "remove it; version says which manifest is applied")


def _is_written(values: Mapping[str, Any], key: str) -> bool:
    here: Any = values
    for part in key.split("[")[0].split("."):
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return True


def _finding(release: ReleaseFacts, flaw: ValueFlaw, path: str) -> RuleFinding:
    key = flaw.path.rpartition(".")[2]
    # the schema is that of the pinned version: another one may know the key
    severity: Severity | None = None if release.is_pinned else "warning"
    if flaw.flaw == "misspelt":
        problem = f"{release.id} {release.version} has no value {key} here, and Helm would ignore it"
        return RuleFinding(path, problem, f"did you mean {flaw.expected}?", severity)
    return RuleFinding(
        path, f"{key} has another type in {release.id} {release.version}", f"write {_WORDS[flaw.expected]}", severity
    )


def _unverified(release: ReleaseFacts, keys: list[str]) -> RuleFinding:
    more = f" and {len(keys) - _MOST_LISTED} more" if len(keys) > _MOST_LISTED else ""
    of = (
        f"the schema of {release.id} ({release.schema_source})" if release.schema_source else f"no schema of {release.id} is known:"
    )
    knows = f"{of} does not know" if release.schema_source else of
    problem = f"{knows} {', '.join(keys[:_MOST_LISTED])}{more}; a misspelt key would have no effect"
    fix = f"compare with the values of chart {release.id} {release.version}; the plan lists such keys as unverified"
    return RuleFinding(f"overrides.{release.id}.values", problem, fix, "warning")


def _of_objects(release: ReleaseFacts) -> Iterator[RuleFinding]:
    for item in release.objects:
        kind = f"{item.get('apiVersion')}/{item.get('kind')}"
        shape = release.kinds.get(kind)
        if shape is None:
            continue
        name = item.get("metadata", {}).get("name", "")
        for flaw in ShapeComparison().flaws(item.get("spec", {}), shape, "spec"):
            path = f"catalog.{release.id}.objects"
            where = f"{item.get('kind')} {name}: {flaw.path}"
            if flaw.flaw == "missing":
                yield RuleFinding(path, f"{where} lacks {flaw.expected}, which the API server requires", f"add {flaw.expected}")
            elif flaw.flaw == "type":
                yield RuleFinding(path, f"{where} has another type in its kind", f"write {_WORDS[flaw.expected]}")
            else:
                fix = f"did you mean {flaw.expected}?" if flaw.expected else "remove it"
                yield RuleFinding(path, f"{where} is no field of its kind, and the API server drops it", fix)


# ---- settings of the kubelet ---------------------------------------------------------------------------------------------------

_DURATION = re.compile(r"[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")
"""Durations of Go (https://pkg.go.dev/time#ParseDuration)."""
_FLAG_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "bool": (re.compile("1|t|T|TRUE|true|True|0|f|F|FALSE|false|False"), '"true" or "false"'),
    "number": (re.compile("[-+]?([0-9]+|0[xX][0-9A-Fa-f]+)"), "a number"),
    "duration": (_DURATION, "a number with a unit, as in 30s or 1h30m"),
}
"""Type of a flag → the words that Go reads for it (https://pkg.go.dev/strconv#ParseBool), and what to write."""


@cache
def _known_settings() -> Mapping[str, Any]:
    """Return the kubelet's flags by type, and the shape of its fields."""
    settings: Any = read(Path(__file__).with_name("kubelet.yaml"))[1].data
    return dict(settings)


@rule("P41", "error", source="https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/")
def kubelet_settings_are_known(platform: Platform) -> Iterator[RuleFinding]:
    """Flags and fields of the kubelet exist and have their types: it stops at wrong ones, and ignores unknown fields."""
    rke2 = platform.spec.rke2
    if rke2.kubelet_args or rke2.kubelet_config:
        yield from _flags(rke2.kubelet_args, _known_settings(), platform.kubernetes[1])
        yield from _fields(rke2.kubelet_config, _known_settings(), platform.kubernetes[1])


def _flags(written: Mapping[str, str], known: Mapping[str, Any], minor: int) -> Iterator[RuleFinding]:
    types = {flag: form for form, flags in known["flags"].items() for flag in flags}
    comparison = ShapeComparison()
    for flag, value in written.items():
        path = f"rke2.kubelet_args.{flag}"
        if flag not in types:
            near = comparison.similar(flag, types)
            if not near and minor not in known["minors"]:  # another minor may have flags that these do not have
                listed = known["source"].partition(",")[0]
                problem = f"{flag} is no flag of a kubelet in {listed}; one that does not know it does not start"
                yield RuleFinding(path, problem, "compare with the reference of your release", "warning")
            else:
                problem = f"a kubelet has no flag {flag}, and does not start with it"
                yield RuleFinding(path, problem, f"did you mean {near}?" if near else "remove it")
        elif (form := _FLAG_FORMS.get(types[flag])) is not None and not form[0].fullmatch(value):
            yield RuleFinding(path, f"a kubelet does not start with the value {value} of this flag", f"write {form[1]}")


def _fields(written: Mapping[str, Any], known: Mapping[str, Any], minor: int) -> Iterator[RuleFinding]:
    shape = {field: "text" if form == "duration" else form for field, form in known["fields"].items()}
    for flaw in ShapeComparison(strict=True).flaws(written, shape, ""):
        path, field = f"rke2.kubelet_config{flaw.path}", flaw.path.removeprefix(".")
        if flaw.flaw == "type":
            words = "it in quotes" if flaw.expected == "text" else _WORDS[flaw.expected].partition(" (")[0]
            words = _FLAG_FORMS["duration"][1] if known["fields"].get(field) == "duration" else words
            yield RuleFinding(path, f"{field} has another type, and a kubelet does not start with it", f"write {words}")
        elif flaw.flaw == "misspelt" and minor in known["minors"]:
            problem = f"KubeletConfiguration has no field {field}, and a kubelet ignores it"
            yield RuleFinding(path, problem, f"did you mean {flaw.expected}?")
        else:
            problem = (
                f"{field} is no field of KubeletConfiguration in {known['source'].partition(',')[0]}, and a kubelet would ignore it"
            )
            near = f"did you mean {flaw.expected}? Else " if flaw.flaw == "misspelt" else ""
            yield RuleFinding(path, problem, f"{near}compare with the reference of your release", "warning")
    for field, value in written.items():
        if known["fields"].get(field) == "duration" and isinstance(value, str) and not _DURATION.fullmatch(value):
            problem = f"{field} is {value}, and a kubelet does not start with it"
            yield RuleFinding(f"rke2.kubelet_config.{field}", problem, f"write {_FLAG_FORMS['duration'][1]}")


# ---- what the platform needs ---------------------------------------------------------------------------------------------------

_SOCKET = "/run/k3s/containerd/containerd.sock"
_RKE2S_OWN = {
    "container-runtime-endpoint": "RKE2 starts its own containerd, and a kubelet on another one finds no image and no CNI of RKE2",
    "image-service-endpoint": "RKE2 starts its own containerd, and a kubelet on another one finds no image and no CNI of RKE2",
    "containerd": "RKE2 starts its own containerd at this socket",
    "config": "RKE2 writes the kubelet's configuration itself (use rke2.kubelet_config)",
    "config-dir": "RKE2 writes the kubelet's configuration itself (use rke2.kubelet_config)",
    "kubeconfig": "RKE2 writes the kubelet's credentials itself",
    "pod-manifest-path": "RKE2's own etcd and API server are static pods of its folder",
    "cluster-dns": "RKE2 gives the cluster's DNS the tenth address of rke2.service_cidr",
    "cluster-domain": "the checks look up names in cluster.local",
    "cgroup-driver": "RKE2 sets the driver of its containerd, and kubelet and containerd must have the same",
    "node-labels": "it replaces the labels that RKE2 passes, those of the spec among them (use hosts.GROUP.labels)",
    "register-with-taints": "it replaces the taints that RKE2 passes, and the plan does not know these (use hosts.GROUP.taints)",
    "register-node": "a kubelet that does not register its node never joins the cluster",
    "hostname-override": "RKE2 names each node after its host, and every machine would get this one name",
    "node-ip": "RKE2 gives each node its own address, and every machine would get this one",
    "root-dir": "device plugins, Multus and storage drivers find the kubelet in /var/lib/kubelet (mount a disk there instead)",
}
"""Kubelet flags that RKE2 sets itself, with the reason why another value breaks the node."""
_FIELDS = {
    "containerRuntimeEndpoint": "container-runtime-endpoint",
    "imageServiceEndpoint": "image-service-endpoint",
    "staticPodPath": "pod-manifest-path",
    "clusterDNS": "cluster-dns",
    "clusterDomain": "cluster-domain",
    "cgroupDriver": "cgroup-driver",
    "registerWithTaints": "register-with-taints",
    "registerNode": "register-node",
}
"""Fields of KubeletConfiguration → the flags that they stand for."""
_DEFAULTS = {"register-node": "true", "root-dir": "/var/lib/kubelet", "cluster-domain": "cluster.local"}
"""Kubelet flag → the value that it has in every cluster of RKE2, which may be written out."""
_STARTUP_TAINT = "/agent-not-ready"
"""End of the keys of taints that an agent takes away once it is ready on a node.

Source: https://docs.cilium.io/en/stable/installation/taints/
"""


def _is_harmless(spec: ClusterSpec, flag: str, value: Any) -> bool:
    """Return True for a value that changes nothing, and for startup taints, if RKE2 passes no taints that they would replace.

    The taints of a host group must stay on its nodes, so startup taints have no place there.
    """
    if flag in _DEFAULTS:
        return str(value).lower() == _DEFAULTS[flag]
    if flag != "register-with-taints" or any(group.taints for group in spec.hosts.values()):
        return False
    if isinstance(value, str):
        keys = [from_text(text)["key"] for text in value.split(",")]
    else:
        keys = [str(taint.get("key")) if isinstance(taint, Mapping) else "" for taint in value or ()]
    return all(key.endswith(_STARTUP_TAINT) for key in keys)


@rule("P34", "error", source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html")
def values_leave_what_is_needed(platform: Platform) -> Iterator[RuleFinding]:
    """No override undoes what the platform needs: RKE2's containerd and kubelet settings, shared GPUs, storage class, CRDs."""
    spec = platform.spec
    for flag, reason in _RKE2S_OWN.items():
        if flag in spec.rke2.kubelet_args and not _is_harmless(spec, flag, spec.rke2.kubelet_args[flag]):
            yield RuleFinding(f"rke2.kubelet_args.{flag}", reason, "remove it")
    for field, flag in _FIELDS.items():
        if field in spec.rke2.kubelet_config and not _is_harmless(spec, flag, spec.rke2.kubelet_config[field]):
            yield RuleFinding(f"rke2.kubelet_config.{field}", _RKE2S_OWN[flag], "remove it")
    operator = platform.releases.get("gpu_operator")
    if operator is not None:
        yield from _containerd(operator)
        yield from _choices(operator)
        yield from _driver_release(spec)
    cluster = platform.releases.get("slurm")
    if cluster is not None:
        yield from _slurm_files(cluster)
    yield from _needed_values(spec, platform.releases)


def _containerd(operator: ReleaseFacts) -> Iterator[RuleFinding]:
    path, env = "overrides.gpu_operator.values.toolkit.env", operator.value("toolkit.env")
    entries = [entry for entry in env or () if isinstance(entry, Mapping)] if isinstance(env, list | tuple) else []
    variables = {str(entry.get("name")): str(entry.get("value")) for entry in entries}
    if "CONTAINERD_CONFIG" in variables:
        problem = "with CONTAINERD_CONFIG the toolkit writes RKE2's own config.toml, and RKE2 fails at its next restart"
        yield RuleFinding(path, f"{problem} (NVIDIA/gpu-operator#992)", "remove CONTAINERD_CONFIG; the socket alone is enough")
    socket = variables.get("CONTAINERD_SOCKET")
    if operator.value("toolkit.enabled") is not False and socket != _SOCKET:
        problem = f"RKE2's containerd listens on {_SOCKET}, and the toolkit would use {socket or 'the default of other systems'}"
        fix = f"keep {{name: CONTAINERD_SOCKET, value: {_SOCKET}}}: this list replaces that of the catalog"
        yield RuleFinding(path, problem, fix)
    for key, wanted in (("operator.defaultRuntime", "containerd"), ("operator.runtimeClass", "nvidia")):
        value = operator.value(key)
        if value not in (None, wanted):
            problem = f"RKE2 runs containerd, and checks ask for the runtime class nvidia: {value} fits neither"
            yield RuleFinding(f"overrides.gpu_operator.values.{key}", problem, f"remove it, or write {wanted}")


_NO_SYSTEMD = re.compile(
    r"^\s*(IgnoreSystemd(OnFailure)?\s*=\s*(yes|true|up|1)|CgroupPlugin\s*=\s*(disabled|cgroup/v1))\b", re.IGNORECASE | re.MULTILINE
)
"""Lines of cgroup.conf with which slurmd starts without systemd (https://slurm.schedmd.com/cgroup.conf.html)."""


def _slurm_files(cluster: ReleaseFacts) -> Iterator[RuleFinding]:
    """Yield the values of Slinky's chart that replace what the plan writes into slurm.conf and cgroup.conf."""
    path = "overrides.slurm.values"
    if cluster.value("controller.extraConf"):
        problem = (
            "the chart then ignores controller.extraConfMap, where the plan has GresTypes, TaskPlugin and the limits of slurm.qos"
        )
        yield RuleFinding(f"{path}.controller.extraConf", problem, "write its lines as keys of controller.extraConfMap")
    nodesets = cluster.value("nodesets")
    for name, nodeset in nodesets.items() if isinstance(nodesets, Mapping) else ():
        if isinstance(nodeset, Mapping) and nodeset.get("extraConf"):
            problem = "the chart then ignores extraConfMap of this node set, where the plan has its Gres, and Slurm knows no GPU"
            yield RuleFinding(f"{path}.nodesets.{name}.extraConf", problem, "write its words as keys of extraConfMap")
    files = cluster.value("configFiles")
    text = files.get("cgroup.conf") if isinstance(files, Mapping) else None
    if isinstance(text, str) and not _NO_SYSTEMD.search(text):
        problem = "pods of slurmd have no systemd, and slurmd ends at its start unless this file says IgnoreSystemd=yes"
        yield RuleFinding(f"{path}.configFiles", f"cgroup.conf: {problem}", "add the line IgnoreSystemd=yes, as the catalog has it")


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "mig.strategy": ("none", "single", "mixed"),
    "driver.kernelModuleType": ("auto", "open", "proprietary"),
    "daemonsets.updateStrategy": ("RollingUpdate", "OnDelete"),
}
"""Values of the GPU Operator's chart → what ClusterPolicy takes for them (enumerations of its CRD)."""


def _choices(operator: ReleaseFacts) -> Iterator[RuleFinding]:
    for key, choices in _CHOICES.items():
        value = operator.value(key)
        if value is not None and value not in choices:
            problem = f"the API server takes no ClusterPolicy with {key}: {value}"
            yield RuleFinding(f"overrides.gpu_operator.values.{key}", problem, f"write one of {', '.join(choices)}")


def _driver_release(spec: ClusterSpec) -> Iterator[RuleFinding]:
    """Yield a driver version in values that differs from the section's.

    Tags of precompiled images may have the branch alone, and a digest pins the image of the section's version.
    """
    override, accelerator = spec.overrides.get("gpu_operator"), spec.accelerator
    version = value_at(override.values, "driver.version") if override else None
    if override is None or accelerator is None or version is None or str(version) == accelerator.driver_version:
        return
    if accelerator.driver_version and re.fullmatch("sha256:[0-9a-f]{64}", str(version)):
        return
    precompiled = value_at(override.values, "driver.usePrecompiled") is True
    if precompiled and (accelerator.driver_version or str(version)).startswith(str(version)):
        return
    problem = f"accelerator.driver_version is {accelerator.driver_version or 'left out'}, and rules and checks read that alone"
    fix = f'remove it here, and write accelerator.driver_version: "{version}"'
    yield RuleFinding("overrides.gpu_operator.values.driver.version", problem, fix)


def _needed(spec: ClusterSpec) -> Iterator[tuple[str, str, Any, str]]:
    """Yield component, Helm value, the content that it must have, and why."""
    modes, storage = sharing_modes(spec), spec.base_services.storage
    yield "cert_manager", "crds.enabled", True, "without its CRDs cert-manager does not start"
    yield "argo_cd", "crds.install", True, "without its CRDs nothing can be delivered"
    yield "local_path_provisioner", "storageClass.create", True, "later stages claim volumes of its class"
    yield "local_path_provisioner", "storageClass.name", storage.storage_class, "the spec names the class in base_services.storage"
    yield "local_path_provisioner", "storageClass.defaultClass", True, "claims of the platform name no class"
    yield "dra_driver", "resources.gpus.enabled", True, "without it no GPU is a DRA device, and sharing.mode is dra"
    if "validation" in spec.enabled_stages():
        yield "gpu_operator", "dcgm.enabled", True, "stage validation asks its host engine for the diagnostics"
    yield "gpu_operator", "sandboxWorkloads.defaultWorkload", "container", "GPUs given to virtual machines are no resource of nodes"
    yield "gpu_operator", "platform.openshift", False, "RKE2 has none of the objects by which the operator runs on OpenShift"
    if not has_gpu_cluster(spec):  # rule P04 is about those with a GPUCluster
        yield "gpu_operator", "gfd.enabled", True, "checks and quotas read the labels of GPU Feature Discovery"
        yield "gpu_operator", "clusterPolicy.deployCR", True, "without a ClusterPolicy the operator installs nothing"
        yield "gpu_operator", "gpuCluster.deployCR", False, "the spec says operator_mode: cluster_policy"
    yield from _needed_by_slurm(spec)
    if (strategy := mig_strategy(spec)) is not None:
        yield "gpu_operator", "mig.strategy", strategy, "the spec says it in sharing.strategy"
        yield "gpu_operator", "migManager.enabled", True, "it cuts the GPUs"
    if {"time_slicing", "mps"} & set(modes):
        yield "gpu_operator", "devicePlugin.config.name", "device-plugin-config", "stage sharing turns on the shares that it holds"
        yield "gpu_operator", "devicePlugin.config.default", "whole", "shares are turned on by stage sharing, node by node"


def _needed_by_slurm(spec: ClusterSpec) -> Iterator[tuple[str, str, Any, str]]:
    """Yield component, Helm value, content and reason for the values of Slinky's chart that follow from the section slurm."""
    slurm, controlled = spec.slurm, "the section slurm says it, and checks expect it"
    yield "slurm", "controller.persistence.enabled", True, "without its volume slurmctld forgets all jobs when it restarts"
    for group in slurm_groups(spec):
        node_set = f"nodesets.{group.replace('_', '-')}"
        yield "slurm", f"{node_set}.enabled", True, controlled
        yield "slurm", f"{node_set}.scalingMode", "DaemonSet", "each machine of the group runs one slurmd"
    for partition in slurm.partitions:
        yield "slurm", f"partitions.{partition.name}.enabled", True, controlled
    yield "slurm", "loginsets.slinky.enabled", bool(slurm.login.replicas), controlled
    yield "slurm", "loginsets.slinky.replicas", slurm.login.replicas, "slurm.login.replicas says it"


def _needed_values(spec: ClusterSpec, releases: Mapping[str, ReleaseFacts]) -> Iterator[RuleFinding]:
    for name, key, wanted, why in _needed(spec):
        override = spec.overrides.get(name)
        value = value_at(override.values, key) if override else None
        if name in releases and value is not None and value != wanted:
            shown = str(wanted).lower() if isinstance(wanted, bool) else wanted
            yield RuleFinding(f"overrides.{name}.values.{key}", f"{key} must be {shown}: {why}", "remove it")
