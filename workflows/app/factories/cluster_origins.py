"""Origins of objects without a namespace: what a rebuilt factory has again, because something makes it by itself.

Kubernetes, RKE2, the charts of the plan and controllers make hundreds of such objects. An object that no rule explains counts as
one that a person made. Sources of the rules: steps/docs/facts/cluster_objects.md.
"""

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]

KEPT_BY_CONTROLLERS: Final = frozenset(
    {
        "certificatesigningrequests",
        "componentstatuses",
        "csinodes",
        "ipaddresses",
        "nodes",
        "resourceslices",
        "storageversionmigrations",
        "storageversions",
        "volumeattachments",
    }
)
"""Resources that kubelets, drivers and controllers keep, and requests that end; `nodes` of metrics.k8s.io are among them."""
KEPT_BY_NETWORKS: Final = frozenset(
    {
        "blockaffinities",
        "ciliumidentities",
        "ciliumnodes",
        "clusterinformations",
        "ipamblocks",
        "ipamconfigs",
        "ipamhandles",
    }
)
"""Resources in which network plugins keep addresses; policies and other settings of people are not among them."""
RKE2_GROUPS: Final = frozenset({"helm.cattle.io", "k3s.cattle.io"})
"""API groups whose definitions RKE2 registers when it starts, and whose objects without a namespace it keeps."""
NETWORK_GROUPS: Final = frozenset({"cilium.io", "crd.projectcalico.org", "k8s.cni.cncf.io", "policy.networking.k8s.io"})
"""API groups whose definitions RKE2's network plugins bring, some from a folder of a chart that Helm does not annotate."""
ARGO_DEFINITIONS: Final = frozenset(
    f"{name}.argoproj.io"
    for name in (
        "clusterworkflowtemplates",
        "cronworkflows",
        "workflowartifactgctasks",
        "workfloweventbindings",
        "workflows",
        "workflowtaskresults",
        "workflowtasksets",
        "workflowtemplates",
    )
)
"""Definitions of Argo Workflows; other programs have some of the same group, and a factory installs none of those."""
RKE2_NAMES: Final = frozenset({"cloud-controller-manager", "kube-apiserver-kubelet-admin"})
"""Roles and bindings that RKE2 applies at its start without any label."""
DEFAULT_NAMES: Final = frozenset(
    {
        ("felixconfigurations", "default"),
        ("ippools", "default-ipv4-ippool"),
        ("ippools", "default-ipv6-ippool"),
        ("kubecontrollersconfigurations", "default"),
        ("servicecidrs", "kubernetes"),
    }
)
"""Objects that Kubernetes and network plugins make under a fixed name. Settings that a person changed in them are not seen."""
MANAGERS: Final = re.compile(
    r"kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|cloud-controller-manager|rke2-supervisor@.+"
)
"""Managers of fields that are programs of Kubernetes and RKE2; kubectl, Helm and consoles of people have others."""
_RELEASE, _RELEASE_SPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_OWNER_KIND, _OWNER_NAME = "objectset.rio.cattle.io/owner-gvk", "objectset.rio.cattle.io/owner-name"
_RBAC: Final = frozenset({"clusterroles", "clusterrolebindings"})


@dataclass(frozen=True, kw_only=True)
class ClusterObject:
    """An object without a namespace, as the rules look at it; `claims` are the (namespace, name) of all claims there are."""

    resource: str
    content: Object
    releases: Container[str]
    claims: Container[tuple[str, str]]

    @property
    def name(self) -> str:
        """Return its name."""
        return str(self._meta.get("name", ""))

    @property
    def _meta(self) -> Mapping[str, Any]:
        return self.content.get("metadata") or {}

    @property
    def spec(self) -> Mapping[str, Any]:
        """Return its spec; empty if it has none."""
        return self.content.get("spec") or {}

    @property
    def owners(self) -> list[Any]:
        """Return its owners, with which it goes."""
        return self._meta.get("ownerReferences") or []

    def mark(self, key: str) -> str:
        """Return an annotation or a label; empty if it has neither."""
        marks = {**(self._meta.get("labels") or {}), **(self._meta.get("annotations") or {})}
        return str(marks.get(key, ""))

    @property
    def managers(self) -> list[str]:
        """Return who set its fields, but for its status."""
        entries = self._meta.get("managedFields") or []
        return [str(entry.get("manager", "")) for entry in entries if entry.get("subresource") != "status"]


def _of_apf(item: ClusterObject) -> bool:
    kinds = ("flowschemas", "prioritylevelconfigurations")
    return item.resource in kinds and item.mark("apf.kubernetes.io/autoupdate-spec") == "true"


def _of_chart(item: ClusterObject) -> bool:
    release = item.mark(_RELEASE)
    return release in item.releases or (release.startswith("rke2-") and item.mark(_RELEASE_SPACE) == "kube-system")


def _of_manifest(item: ClusterObject) -> bool:
    """Return True for an object of RKE2's own manifests, or one that its helm-controller makes to install a chart of the plan."""
    owner, kind = item.mark(_OWNER_NAME), item.mark(_OWNER_KIND)
    is_chart = kind.endswith("Kind=HelmChart") and owner in item.releases
    return is_chart or (kind.endswith(("Kind=Addon", "Kind=HelmChart")) and owner.startswith("rke2-"))


def _of_definition(item: ClusterObject) -> bool:
    if item.resource != "customresourcedefinitions":
        return False
    return item.name in ARGO_DEFINITIONS or item.spec.get("group") in RKE2_GROUPS | NETWORK_GROUPS


def _of_rke2(item: ClusterObject) -> bool:
    group = str(item.content.get("apiVersion", "")).partition("/")[0]
    return group in RKE2_GROUPS or (item.resource in _RBAC and item.name in RKE2_NAMES)


def _of_claim(item: ClusterObject) -> bool:
    """Return True for a volume that a provisioner made, if its claim is there, or its bytes go with the claim."""
    if item.resource != "persistentvolumes" or not item.name.startswith("pvc-"):
        return False
    claim = item.spec.get("claimRef") or {}
    is_claimed = (claim.get("namespace"), claim.get("name")) in item.claims
    return is_claimed or item.spec.get("persistentVolumeReclaimPolicy") == "Delete"


def _of_snapshot(item: ClusterObject) -> bool:
    # those that people make for old snapshots name a snapshotHandle in its place
    return item.resource == "volumesnapshotcontents" and "volumeHandle" in (item.spec.get("source") or {})


OriginRule = Callable[[ClusterObject], bool]
RULES: Final[tuple[tuple[str, OriginRule], ...]] = (
    ("controllers and kubelets keep it", lambda item: item.resource in KEPT_BY_CONTROLLERS),
    ("the network plugin keeps addresses in it", lambda item: item.resource in KEPT_BY_NETWORKS),
    ("it goes and comes with its owner, which is compared", lambda item: bool(item.owners)),
    ("kube-apiserver makes it at its start", lambda item: bool(item.mark("kubernetes.io/bootstrapping"))),
    ("kube-apiserver keeps its spec", _of_apf),
    ("kube-apiserver registers it", lambda item: bool(item.mark("kube-aggregator.kubernetes.io/automanaged"))),
    ("its name is reserved for Kubernetes", lambda item: item.resource in _RBAC and item.name.startswith("system:")),
    ("its name is reserved for Kubernetes", lambda item: item.resource == "priorityclasses" and item.name.startswith("system-")),
    ("Kubernetes or the network plugin makes it under this name", lambda item: (item.resource, item.name) in DEFAULT_NAMES),
    ("a chart of the plan or of RKE2 brings it", _of_chart),
    ("a manifest of RKE2 brings it, or helm-controller for a chart", _of_manifest),
    ("RKE2 or a chart registers it", _of_definition),
    ("RKE2 applies it at its start", _of_rke2),
    ("it follows its claim, which is compared", _of_claim),
    ("the snapshot controller makes it for a snapshot, which is compared", _of_snapshot),
    ("programs of Kubernetes and RKE2 alone set its fields", lambda item: _all_of(MANAGERS, item.managers)),
)
"""Rules with their reasons, which say why an object is there again after a rebuild."""


def origin(item: ClusterObject) -> str:
    """Return why an object is there again after a rebuild; empty if nothing makes it by itself."""
    return next((reason for reason, rule in RULES if rule(item)), "")


def _all_of(pattern: re.Pattern[str], names: list[str]) -> bool:
    return bool(names) and all(pattern.fullmatch(name) for name in names)
