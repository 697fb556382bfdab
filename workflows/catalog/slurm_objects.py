"""Objects that Slurm needs beside its charts: the claim of a shared /home, and ConfigMaps with SUNK's scripts and files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from workflows.catalog.model import PlannedRelease
from workflows.catalog.slurm_values import ETC_CONFIG_MAP, HOME_CLAIM, script_maps
from workflows.spec import ClusterSpec

Object = dict[str, Any]

CLUSTER = ("slurm", "sunk_slurm")
"""Ids of the releases that install a Slurm cluster, of Slinky and of SUNK."""
STORAGE, SCRIPTS = "slurm-storage", "slurm-scripts"


@dataclass(frozen=True, slots=True)
class SupportingObjects:
    """Kubernetes objects that a stage needs beside its charts; `name` is that of their Application.

    `is_first`: they must exist before the release of the cluster. A volume claim may wait for the first pod that uses it, so that a
    release which waited for the claim would wait forever.
    """

    name: str
    namespace: str
    objects: tuple[Object, ...]
    is_first: bool


def supporting_objects(spec: ClusterSpec, releases: Iterable[PlannedRelease]) -> tuple[SupportingObjects, ...]:
    """Return the objects that Slurm's charts of these releases need; empty if none of them installs a Slurm cluster."""
    cluster = next((release for release in releases if release.id in CLUSTER), None)
    if cluster is None:
        return ()
    scripts, claims = tuple(_scripts(spec, cluster)), tuple(_claims(spec, cluster))
    every = (
        SupportingObjects(SCRIPTS, cluster.namespace, scripts, is_first=True),
        SupportingObjects(STORAGE, cluster.namespace, claims, is_first=False),
    )
    return tuple(entry for entry in every if entry.objects)


def _scripts(spec: ClusterSpec, cluster: PlannedRelease) -> Iterable[Object]:
    # Slinky's chart makes the ConfigMaps of its values, and a wrapper has templates of its own
    if cluster.id != "sunk_slurm" or spec.slurm.layout == "wrapper":
        return
    for _, name, scripts in (*script_maps(spec), ("", ETC_CONFIG_MAP, spec.slurm.config_files)):
        if scripts:
            meta = {"name": name, "namespace": cluster.namespace}
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(scripts)}


def _claims(spec: ClusterSpec, cluster: PlannedRelease) -> Iterable[Object]:
    home = spec.slurm.home
    if home is not None and home.storage_class:
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": HOME_CLAIM, "namespace": cluster.namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": home.storage_class,
                "resources": {"requests": {"storage": home.size}},
            },
        }
