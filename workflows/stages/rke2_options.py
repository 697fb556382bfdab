"""Variables of the role rke2 for the optional settings of a spec; settings that the spec leaves open are left out."""

from __future__ import annotations

from typing import Any

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.infrastructure import Rke2Settings
from workflows.spec.rke2_parts import registry_secrets
from workflows.stages.os_prep import node_profile
from workflows.stages.stage import Object

PLAY_SECONDS = 3600
"""Shortest time limit of a play.

Servers join one by one (etcd takes one learner at a time), and the first pulls or imports 2 GB of images. A shard of 50 agents
joins in batches of `join_batch`, each within about ten minutes.
"""
READY_SECONDS = 900
"""Longest time in seconds until a host is ready, images included (`playbooks/roles/rke2/defaults`)."""


def variables(rke2: Rke2Settings) -> Object:
    """Return the options that differ from the role's defaults."""
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
    result = {key: value for key, value in plain.items() if value}
    if rke2.etcd_snapshots != default.etcd_snapshots:
        result |= {"rke2_snapshot_schedule": rke2.etcd_snapshots.schedule, "rke2_snapshots_kept": rke2.etcd_snapshots.keep}
    if rke2.virtual_address:
        result["rke2_virtual_address"] = rke2.virtual_address.model_dump()
    return result


def further(spec: ClusterSpec) -> Object:
    """Return further keys of RKE2's config.yaml: SELinux labels where it enforces, and no fallback to registries behind mirrors."""
    node = node_profile(spec)
    labelled = node.get("selinux") == "enforcing" and "rhel" in node["system"]["ids"]
    config = {"selinux": True} if labelled else {}
    config |= {} if spec.rke2.registry_fallback else {"disable-default-registry-endpoint": True}
    return {"rke2_config": config} if config else {}


def secret_variables(rke2: Rke2Settings) -> dict[str, str]:
    """Return role variable → secret file for the credentials and certificates of registries."""
    return {f"rke2_{file}": file for file, _, _, _ in registry_secrets(rke2.registries)}


def _registries(rke2: Rke2Settings) -> Object:
    """Return registries as the role takes them: `secrets` names the variable that holds each part, never its content."""
    secrets: dict[str, dict[str, str]] = {}
    for file, registry, part, _ in registry_secrets(rke2.registries):
        secrets.setdefault(registry, {})[part] = f"rke2_{file}"
    return {name: _registry(name, rke2, secrets.get(name, {})) for name in sorted(rke2.registries)}


def _registry(name: str, rke2: Rke2Settings, secrets: dict[str, str]) -> Object:
    registry = rke2.registries[name]
    settings: dict[str, Any] = {
        "endpoints": list(registry.endpoints),
        "rewrite": dict(registry.rewrite),
        "username": registry.username,
        "insecure": registry.insecure,
        "secrets": secrets,
    }
    return {key: value for key, value in settings.items() if value}


def play_seconds(rke2: Rke2Settings, batches: int) -> int:
    """Return the time limit of a play in seconds: each batch may wait for draining and until its hosts are ready."""
    return max(PLAY_SECONDS, batches * (rke2.drain_seconds + READY_SECONDS))
