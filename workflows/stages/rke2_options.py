"""Variables of the role rke2 for what a spec may say beside the basics; what it leaves open is left out."""

from __future__ import annotations

from typing import Any

from workflows.spec.access import Rke2
from workflows.spec.cluster import ClusterSpec
from workflows.spec.rke2_parts import registry_secrets
from workflows.stages.os_prep import node_profile
from workflows.stages.stage import Object

PLAY_SECONDS = 3600
"""Servers join one by one (etcd takes one learner at a time), the first pulls or imports 2 GB of images; a shard of 50 agents joins
in batches of `join_batch`, each within about ten minutes. Small batches and upgrades may take longer."""
READY_SECONDS = 900
"""Longest time until a host is ready, images included (`playbooks/roles/rke2/defaults`)."""


def variables(rke2: Rke2) -> Object:
    """The options that are not the role's defaults."""
    default = type(rke2).model_construct()
    plain = {
        "rke2_source": rke2.source,
        "rke2_images": list(rke2.images),
        "rke2_kubelet_config": dict(rke2.kubelet_config),
        "rke2_audit": rke2.audit if rke2.audit != default.audit else None,
        "rke2_upgrade_batch": rke2.upgrade_batch if rke2.upgrade_batch != default.upgrade_batch else None,
        "rke2_drain_seconds": rke2.drain_seconds if rke2.drain_seconds != default.drain_seconds else None,
        "rke2_registries": _registries(rke2),
    }
    found = {key: value for key, value in plain.items() if value}
    if rke2.etcd_snapshots != default.etcd_snapshots:
        found |= {"rke2_snapshot_schedule": rke2.etcd_snapshots.schedule, "rke2_snapshots_kept": rke2.etcd_snapshots.keep}
    if rke2.virtual_address:
        found["rke2_virtual_address"] = rke2.virtual_address.model_dump()
    return found


def further(spec: ClusterSpec) -> Object:
    """Further keys of config.yaml: where SELinux enforces, containers get labels (elsewhere there is none to tell of); where
    mirrors alone may be asked, containerd gets no endpoint of a registry itself (peers §4)."""
    node = node_profile(spec)
    labelled = node.get("selinux") == "enforcing" and "rhel" in node["system"]["ids"]
    said = {"selinux": True} if labelled else {}
    said |= {} if spec.rke2.registry_fallback else {"disable-default-registry-endpoint": True}
    return {"rke2_config": said} if said else {}


def secret_variables(rke2: Rke2) -> dict[str, str]:
    """Variable → secret file of what registries ask for."""
    return {f"rke2_{file}": file for file, _, _, _ in registry_secrets(rke2.registries)}


def _registries(rke2: Rke2) -> Object:
    """Registries as the role takes them: `secrets` says which variable holds which part, never what it is."""
    secrets: dict[str, dict[str, str]] = {}
    for file, registry, part, _ in registry_secrets(rke2.registries):
        secrets.setdefault(registry, {})[part] = f"rke2_{file}"
    return {name: _registry(name, rke2, secrets.get(name, {})) for name in sorted(rke2.registries)}


def _registry(name: str, rke2: Rke2, secrets: dict[str, str]) -> Object:
    one = rke2.registries[name]
    found: dict[str, Any] = {
        "endpoints": list(one.endpoints),
        "rewrite": dict(one.rewrite),
        "username": one.username,
        "insecure": one.insecure,
        "secrets": secrets,
    }
    return {key: value for key, value in found.items() if value}


def play_seconds(rke2: Rke2, batches: int) -> int:
    """Longest time of a play: it waits batch after batch until each is ready, and before an upgrade until it is drained."""
    return max(PLAY_SECONDS, batches * (rke2.drain_seconds + READY_SECONDS))
