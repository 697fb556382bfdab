"""The facts of a spec in the dimensions of the catalog, and the matching of criteria against them."""

from __future__ import annotations

from collections.abc import Mapping

from workflows.spec import ClusterSpec
from workflows.spec.accelerators import kubernetes

Facts = Mapping[str, str]


def facts(spec: ClusterSpec) -> Facts:
    """Return the value of each dimension for a spec; `none` for an absent section."""
    gpu, fabric = spec.accelerator, spec.fabric
    return {
        "accelerator": gpu.product if gpu else "none",
        "gpu": "yes" if gpu else "no",
        "gpu_driver": gpu.driver if gpu else "none",
        "driver_version": "given" if gpu and gpu.driver_version else "chart",
        "operator_mode": gpu.operator_mode if gpu else "none",
        "peer_to_peer": "yes" if wants_peer_to_peer(spec) else "no",
        "fabric": fabric.kind,
        "fabric_mode": fabric.mode if fabric.kind != "none" else "none",
        "fabric_driver": fabric.driver if fabric.kind != "none" else "none",
        "multus": multus_owner(spec),
        "sharing": spec.sharing.mode,
        "gang": spec.scheduler.gang,
        "quota": spec.scheduler.quota,
        "slurm": spec.slurm.kind,
        "slurm_accounting": "yes" if spec.slurm.accounting else "no",
        "slurm_login": "yes" if spec.slurm.login.replicas else "no",
        "storage": spec.base_services.storage.provisioner,
        "cert_manager": "yes" if spec.base_services.cert_manager else "no",
        "monitoring_crds": "yes" if spec.base_services.monitoring_crds else "no",
        "ha": "yes" if len(spec.servers) > 1 else "no",
        "delivery": spec.delivery.mode,
        "argo_cd": argo_cd_owner(spec),
        "airgap": "yes" if spec.airgap else "no",
        "os": spec.os.distribution,
        "os_major": spec.os.version.partition(".")[0],
        "selinux": spec.os.selinux or "none",
        "firewall": spec.os.firewall,
        "cni": next((name for name in spec.rke2.cni if name != "multus"), "none"),
        "kubernetes": f"1.{kubernetes(spec.rke2.version)[1]}",
        "profile": spec.rke2.profile,
        "site": spec.site or "none",
    }


DIMENSIONS = (
    "accelerator",
    "gpu",
    "gpu_driver",
    "driver_version",
    "operator_mode",
    "peer_to_peer",
    "fabric",
    "fabric_mode",
    "fabric_driver",
    "multus",
    "sharing",
    "gang",
    "quota",
    "slurm",
    "slurm_accounting",
    "slurm_login",
    "storage",
    "cert_manager",
    "monitoring_crds",
    "ha",
    "delivery",
    "argo_cd",
    "airgap",
    "os",
    "os_major",
    "selinux",
    "firewall",
    "cni",
    "kubernetes",
    "profile",
    "site",
)
"""The dimensions that criteria may name. Any other name is an error of the catalog."""


def multus_owner(spec: ClusterSpec) -> str:
    """Return who installs Multus: `rke2`, `operator` or `none`. Two Multus DaemonSets would fight over /etc/cni/net.d."""
    if spec.fabric.kind != "none" and spec.fabric.multus is not None:
        return spec.fabric.multus
    if "multus" in spec.rke2.cni:
        return "rke2"
    return "operator" if spec.fabric.has_network else "none"


def argo_cd_owner(spec: ClusterSpec) -> str:
    """Return whose Argo CD delivers: `bringup` (installed by this run), `site` (verified only) or `none`."""
    argo_cd = spec.delivery.argo_cd
    return "none" if argo_cd is None else "bringup" if argo_cd.install else "site"


def wants_peer_to_peer(spec: ClusterSpec) -> bool:
    """Return True if devices must reach each other directly: as the spec says, else GPUs and NICs of a fabric.

    GB200 is left out by default: it reaches its NICs over paths that need the ACS settings of its maker.
    """
    if spec.os.peer_to_peer is not None:
        return spec.os.peer_to_peer
    return spec.accelerator is not None and spec.fabric.kind != "none" and spec.accelerator.product != "GB200"


def matches(criteria: Mapping[str, tuple[str, ...]], known: Facts) -> bool:
    """Return True if each dimension of the criteria accepts the fact of the spec."""
    return all(known[dimension] in accepted for dimension, accepted in criteria.items())
