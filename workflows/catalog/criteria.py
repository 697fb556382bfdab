"""Reduce a cluster spec to named facts such as `fabric: infiniband`, and match the criteria of catalog entries against them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from workflows.spec import ClusterSpec
from workflows.spec.accelerators import kubernetes
from workflows.spec.cluster_spec import gpu_groups, ingress_groups, keeping_taints, own_taints
from workflows.spec.gpu_pools import gpu_pools, mig_strategy, sharing_modes, uniform

Facts = Mapping[str, str]


def multus_owner(spec: ClusterSpec) -> str:
    """Return who installs Multus: `rke2`, `operator` (the NVIDIA Network Operator) or `none`.

    It must be one of them only, because two Multus DaemonSets would fight over /etc/cni/net.d.
    """
    if spec.fabric.kind != "none" and spec.fabric.multus is not None:
        return spec.fabric.multus
    if "multus" in spec.rke2.cni:
        return "rke2"
    return "operator" if spec.fabric.has_network else "none"


def argo_cd_owner(spec: ClusterSpec) -> str:
    """Return who installs the Argo CD that deploys the charts: `bringup` (this run), `site` (only verified here), or `none`.

    `none` means that the spec uses no Argo CD.
    """
    argo_cd = spec.delivery.argo_cd
    return "none" if argo_cd is None else "bringup" if argo_cd.install else "site"


def wants_peer_to_peer(spec: ClusterSpec) -> bool:
    """Return True if PCIe devices must reach each other directly: the spec's setting, else True for GPUs together with a fabric.

    Without a setting GB200 gives False, because it reaches its NICs over paths that need the ACS settings of its maker.
    """
    if spec.os.peer_to_peer is not None:
        return spec.os.peer_to_peer
    return (
        spec.accelerator is not None
        and spec.fabric.kind != "none"
        and not any(pool.accelerator.product == "GB200" for pool in gpu_pools(spec))
    )


def _yes(holds: object) -> str:
    return "yes" if holds else "no"


def _all(values: Iterable[str]) -> str:
    """Return the values of all pools, each once, with `+` between them (`H200+L40S`); `none` without pools."""
    return "+".join(dict.fromkeys(values)) or "none"


_FACTS: Mapping[str, Callable[[ClusterSpec], str]] = {
    "accelerator": lambda spec: _all(pool.accelerator.product for pool in gpu_pools(spec)),
    "gpu": lambda spec: _yes(spec.accelerator),
    "gpu_driver": lambda spec: spec.accelerator.driver if spec.accelerator else "none",
    "driver_version": lambda spec: "given" if spec.accelerator and spec.accelerator.driver_version else "chart",
    "operator_mode": lambda spec: spec.accelerator.operator_mode if spec.accelerator else "none",
    "peer_to_peer": lambda spec: _yes(wants_peer_to_peer(spec)),
    "fabric": lambda spec: spec.fabric.kind,
    "fabric_mode": lambda spec: spec.fabric.mode if spec.fabric.kind != "none" else "none",
    "fabric_mtu": lambda spec: "given" if spec.fabric.kind != "none" and spec.fabric.mtu else "unchanged",
    "fabric_driver": lambda spec: spec.fabric.driver if spec.fabric.kind != "none" else "none",
    "multus": multus_owner,
    "sharing": lambda spec: spec.sharing.mode if all(pool.sharing == spec.sharing for pool in gpu_pools(spec)) else "mixed",
    "shares": lambda spec: _yes(set(sharing_modes(spec)) & {"time_slicing", "mps"}),
    "mig": lambda spec: mig_strategy(spec) or "none",
    "gpu_taints": lambda spec: _yes(keeping_taints(spec, gpu_groups(spec)) or own_taints(spec)),
    "gang": lambda spec: spec.scheduler.gang,
    "quota": lambda spec: spec.scheduler.quota,
    "slurm": lambda spec: spec.slurm.kind,
    "slurm_accounting": lambda spec: _yes(spec.slurm.accounting),
    "slurm_login": lambda spec: _yes(spec.slurm.login.replicas),
    "slurm_home": lambda spec: "none" if spec.slurm.home is None else "nfs" if spec.slurm.home.server else "claim",
    "slurm_node": lambda spec: "given" if spec.slurm.node else "chart",
    "slurm_qos": lambda spec: _yes(spec.slurm.qos),
    "slurm_topology": lambda spec: spec.slurm.topology,
    "slurm_prolog": lambda spec: _yes(spec.slurm.prolog),
    "slurm_epilog": lambda spec: _yes(spec.slurm.epilog),
    "slurm_pyxis": lambda spec: spec.slurm.pyxis,
    "slurm_job_metrics": lambda spec: _yes(spec.slurm.job_metrics),
    "slurm_tokens": lambda spec: _yes(spec.slurm.tokens),
    "slurm_leaves_nodes": lambda spec: _yes(ingress_groups(spec)),
    "storage": lambda spec: spec.base_services.storage.provisioner,
    "cert_manager": lambda spec: _yes(spec.base_services.cert_manager),
    "monitoring_crds": lambda spec: _yes(spec.base_services.monitoring_crds),
    "ha": lambda spec: _yes(len(spec.servers) > 1),
    "delivery": lambda spec: spec.delivery.mode,
    "argo_cd": argo_cd_owner,
    "airgap": lambda spec: _yes(spec.airgap),
    "os": lambda spec: spec.os.distribution,
    "os_major": lambda spec: spec.os.version.partition(".")[0],
    "selinux": lambda spec: spec.os.selinux or "none",
    "firewall": lambda spec: spec.os.firewall,
    "cni": lambda spec: next((name for name in spec.rke2.cni if name != "multus"), "none"),
    "kubernetes": lambda spec: f"1.{kubernetes(spec.rke2.version)[1]}",
    "profile": lambda spec: spec.rke2.profile,
    "site": lambda spec: spec.site or "none",
}
DIMENSIONS = tuple(_FACTS)
"""The names of facts that criteria may use, such as `fabric`. Any other name is an error of the catalog."""


def facts(spec: ClusterSpec) -> Facts:
    """Return the fact of each dimension, as in `{"fabric": "infiniband", "gpu": "yes"}`; `none` for a section the spec omits."""
    spec = uniform(spec)
    return {dimension: read(spec) for dimension, read in _FACTS.items()}


def matches(criteria: Mapping[str, tuple[str, ...]], known: Facts) -> bool:
    """Return True if the spec's fact is among the accepted values in each dimension that the criteria name.

    A fact of several values, as the products of several GPU groups, matches if one of them is accepted.
    """
    return all(set(known[dimension].split("+")) & set(accepted) for dimension, accepted in criteria.items())
