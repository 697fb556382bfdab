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
        ("", "componentstatuses"),
        ("", "nodes"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("internal.apiserver.k8s.io", "storageversions"),
        ("metrics.k8s.io", "nodes"),
        ("networking.k8s.io", "ipaddresses"),
        ("resource.k8s.io", "resourceslices"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "volumeattachments"),
        ("storagemigration.k8s.io", "storageversionmigrations"),
    }
)
"""Resources by API group that kubelets, drivers and controllers keep, and requests that end."""
KEPT_BY_NETWORKS: Final = frozenset(
    {
        ("cilium.io", "ciliumidentities"),
        ("cilium.io", "ciliumnodes"),
        *(
            (group, resource)
            for group in ("crd.projectcalico.org", "projectcalico.org")
            for resource in ("blockaffinities", "clusterinformations", "ipamblocks", "ipamconfigs", "ipamhandles")
        ),
        ("operator.tigera.io", "tigerastatuses"),
    }
)
"""Resources by API group in which network plugins keep addresses and their state; settings of people are not among them."""
RKE2_GROUPS: Final = frozenset({"helm.cattle.io", "k3s.cattle.io"})
"""API groups whose definitions RKE2 registers when it starts, and whose objects without a namespace it keeps."""
NETWORK_GROUPS: Final = frozenset(
    {
        "cilium.io",
        "crd.projectcalico.org",
        "k8s.cni.cncf.io",
        "operator.tigera.io",
        "policy.networking.k8s.io",
        "projectcalico.org",
    }
)
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
RKE2_NAMES: Final = frozenset(
    {
        "cloud-controller-manager",
        "kube-apiserver-kubelet-admin",
        "system:k3s-controller",
        "system:kube-proxy",
        "system:rke2-controller",
    }
)
"""Roles and bindings that RKE2 applies at its start without any label."""
PACKAGED_CHARTS: Final = frozenset(
    {
        "harvester-cloud-provider",
        "harvester-csi-driver",
        "rancher-vsphere-cpi",
        "rancher-vsphere-csi",
        *(
            f"rke2-{name}"
            for name in (
                "calico",
                "calico-crd",
                "canal",
                "cilium",
                "coredns",
                "flannel",
                "ingress-nginx",
                "metrics-server",
                "multus",
                "ovirt-csi-driver",
                "runtimeclasses",
                "snapshot-controller",
                "snapshot-controller-crd",
                "snapshot-validation-webhook",
                "traefik",
                "traefik-crd",
            )
        ),
    }
)
"""Charts that RKE2 brings as manifests of its own; each is a release of this name in kube-system."""
DEFAULT_ROLES: Final = frozenset({"admin", "cluster-admin", "edit", "view"})
"""Roles and bindings that kube-apiserver makes under names that are not reserved; a copy of one keeps its label."""
DEFAULT_NAMES: Final = frozenset(
    {
        ("networking.k8s.io", "servicecidrs", "kubernetes"),
        *(
            (group, resource, name)
            for group in ("crd.projectcalico.org", "projectcalico.org")
            for resource, name in (
                ("felixconfigurations", "default"),
                ("ippools", "default-ipv4-ippool"),
                ("ippools", "default-ipv6-ippool"),
                ("kubecontrollersconfigurations", "default"),
                ("tiers", "adminnetworkpolicy"),
                ("tiers", "baselineadminnetworkpolicy"),
                ("tiers", "default"),
                ("tiers", "kube-admin"),
                ("tiers", "kube-baseline"),
            )
        ),
    }
)
"""Objects that Kubernetes and network plugins make under a fixed name. Settings that a person changed in them are not seen."""
MANAGERS: Final = re.compile(
    r"kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|cloud-controller-manager|rke2-supervisor@.+"
)
"""Managers of fields that are programs of Kubernetes and RKE2; kubectl, Helm and consoles of people have others."""
NETWORK_MANAGERS: Final = re.compile(rf"{MANAGERS.pattern}|operator|kube-controllers|calico-.+")
"""Managers of fields in Calico's own groups; `operator` is the name of the program of tigera-operator."""
_CALICO_GROUPS: Final = frozenset({"crd.projectcalico.org", "operator.tigera.io", "projectcalico.org"})
_PROVISIONED: Final = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PROVISIONER: Final = "pv.kubernetes.io/provisioned-by"
_BOOTSTRAPPING: Final = "kubernetes.io/bootstrapping"
_SYSTEM: Final = "kube-system"
_RELEASE, _RELEASE_SPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_OWNER_KIND, _OWNER_NAME = "objectset.rio.cattle.io/owner-gvk", "objectset.rio.cattle.io/owner-name"
_OWNER_SPACE: Final = "objectset.rio.cattle.io/owner-namespace"
_RBAC: Final = frozenset({"clusterroles", "clusterrolebindings"})


@dataclass(frozen=True, kw_only=True)
class ClusterObject:
    """An object without a namespace, as the rules look at it.

    `group` is the API group of its resource, empty for the core. `releases` are the (namespace, name) of the plan's releases,
    `charts` those of their HelmCharts, `claims` those of all claims there are.
    """

    group: str
    resource: str
    content: Object
    releases: Container[tuple[str, str]]
    charts: Container[tuple[str, str]]
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


def _of_bootstrap(item: ClusterObject) -> bool:
    """Return True for a default of kube-apiserver. Its label alone proves nothing, because copies of a default have it too."""
    if not item.mark(_BOOTSTRAPPING):
        return False
    return _all_of(MANAGERS, item.managers) or (item.resource in _RBAC and _is_default_role(item))


def _is_default_role(item: ClusterObject) -> bool:
    # people may edit a default, which is there again after a rebuild; a copy has no manager that is a program of Kubernetes
    is_reserved = item.name.startswith("system:")
    return item.name in DEFAULT_ROLES or (is_reserved and (not item.managers or any(map(MANAGERS.fullmatch, item.managers))))


def _of_chart(item: ClusterObject) -> bool:
    place = (item.mark(_RELEASE_SPACE), item.mark(_RELEASE))
    return place in item.releases or _is_packaged(*place)


def _of_manifest(item: ClusterObject) -> bool:
    """Return True for an object of RKE2's own manifests, or one that its helm-controller makes to install a chart of the plan."""
    place, kind = (item.mark(_OWNER_SPACE), item.mark(_OWNER_NAME)), item.mark(_OWNER_KIND)
    is_chart = kind.endswith("Kind=HelmChart") and place in item.charts
    return is_chart or (kind.endswith(("Kind=Addon", "Kind=HelmChart")) and _is_packaged(*place))


def _is_packaged(namespace: str, name: str) -> bool:
    return namespace == _SYSTEM and name in PACKAGED_CHARTS


def _of_definition(item: ClusterObject) -> bool:
    if item.resource != "customresourcedefinitions":
        return False
    return item.name in ARGO_DEFINITIONS or item.spec.get("group") in RKE2_GROUPS | NETWORK_GROUPS


def _of_rke2(item: ClusterObject) -> bool:
    return item.group in RKE2_GROUPS or (item.resource in _RBAC and item.name in RKE2_NAMES)


def _of_calico(item: ClusterObject) -> bool:
    return item.group in _CALICO_GROUPS and _all_of(NETWORK_MANAGERS, item.managers)


def _of_claim(item: ClusterObject) -> bool:
    """Return True for a volume that a provisioner made, if its claim is there, or its bytes go with the claim."""
    if item.resource != "persistentvolumes" or not item.mark(_PROVISIONER) or not _PROVISIONED.fullmatch(item.name):
        return False
    claim = item.spec.get("claimRef") or {}
    is_claimed = (claim.get("namespace"), claim.get("name")) in item.claims
    return is_claimed or item.spec.get("persistentVolumeReclaimPolicy") == "Delete"


def _of_snapshot(item: ClusterObject) -> bool:
    # those that people make for old snapshots name a snapshotHandle in its place
    return item.resource == "volumesnapshotcontents" and "volumeHandle" in (item.spec.get("source") or {})


OriginRule = Callable[[ClusterObject], bool]
RULES: Final[tuple[tuple[str, OriginRule], ...]] = (
    ("controllers and kubelets keep it", lambda item: (item.group, item.resource) in KEPT_BY_CONTROLLERS),
    ("the network plugin keeps its state in it", lambda item: (item.group, item.resource) in KEPT_BY_NETWORKS),
    ("it goes and comes with its owner, which is compared", lambda item: bool(item.owners)),
    ("kube-apiserver makes it at its start", _of_bootstrap),
    ("kube-apiserver keeps its spec", _of_apf),
    ("kube-apiserver registers it", lambda item: bool(item.mark("kube-aggregator.kubernetes.io/automanaged"))),
    ("its name is reserved for Kubernetes", lambda item: item.resource == "priorityclasses" and item.name.startswith("system-")),
    (
        "Kubernetes or the network plugin makes it under this name",
        lambda item: (item.group, item.resource, item.name) in DEFAULT_NAMES,
    ),
    ("a chart of the plan or of RKE2 brings it", _of_chart),
    ("a manifest of RKE2 brings it, or helm-controller for a chart", _of_manifest),
    ("RKE2 or a chart registers it", _of_definition),
    ("RKE2 applies it at its start", _of_rke2),
    ("Calico or its operator makes it", _of_calico),
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
