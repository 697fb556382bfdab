"""A user's folder with an image spec, and the home cluster whose pods build that image: `bringup image build`, here and there.

What Argo's controller does between a Workflow and its pods is `step_pods`' part. Pods reach no mirror, so the archive of packages
is laid into their store, as an earlier build would have left it.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors import pod_home
from actors.step_pods import Pods
from kubelab.lab import Cluster

from tests.boot.pipeline.site import PUBLISH, Site, digests
from workflows.engines.local.run_state import RunState as Run

SPACE, USER = "images", 8737
ARGO = "4.1.2"
FIRMWARE = ["bios", "uefi"]
POD_SECONDS = 400.0
"""Of a pod that boots emulated machines on a busy machine."""
LEVEL = "pod-security.kubernetes.io/enforce"


@dataclass(frozen=True)
class Played:
    """A build: its pods, and the run as it ended."""

    pods: Pods
    run: Run


@dataclass(frozen=True)
class Argo:
    """Builds on a home cluster, all into the store `store`."""

    cluster: Cluster
    site: Site
    store: Path

    def build(self, *words: str) -> Played:
        """A build as the command submits it, played to its end by pods."""
        there = ("--engine", "argo", "--no-wait", "--argo-version", ARGO, "--namespace", SPACE)
        self.site.run("image", "build", *words, *there, "--home-kubeconfig", str(self.cluster.plane.kubeconfig))
        (found,) = [one for one in self._listed("workflows") if not one["metadata"].get("annotations", {}).get("played")]
        name, wanted = found["metadata"]["name"], found["spec"]["workflowTemplateRef"]["name"]
        self.cluster.plane.kubectl("-n", SPACE, "annotate", f"workflow/{name}", "played=yes")
        (template,) = [one for one in self._listed("workflowtemplates") if one["metadata"]["name"] == wanted]
        pods = Pods(self.cluster.plane, self.cluster.node, template, name, patience=POD_SECONDS)
        return Played(pods, pods.play(lambda stage: {}))

    @property
    def images(self) -> Path:
        """Return the folder in which builds keep layers and images."""
        return self.store / "images"

    def packed(self, key: str) -> dict[str, str]:
        """Digests of the files of an image that pods packed."""
        return digests(self.images / "assembled" / key)

    def _listed(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.cluster.plane.kubectl("-n", SPACE, "get", kind, "-o", "json"))["items"]
        return found


def make(cluster: Cluster, folder: Path, ssh: Mapping[str, Any]) -> Argo:
    """The user's folder with a locked spec that publishes over SSH, and a namespace of home that may take builders."""
    publish = PUBLISH | {"root": str(folder / "published"), "ssh": ssh}
    site = Site(folder, publish=publish, boot={"firmware": FIRMWARE, "memory_mib": 1536, "timeout": "5m"})
    site.lock()
    store, plane = cluster.node.folder / "image-store", cluster.plane
    store.mkdir(mode=0o700)
    os.chown(store, USER, USER)
    shutil.copytree(site.images / "archive", store / "images/archive")
    plane.kubectl("create", "namespace", SPACE)
    plane.kubectl("label", "namespace", SPACE, f"{LEVEL}=privileged")
    pod_home.apply(plane, *pod_home.volume(store, SPACE))
    return Argo(cluster, site, store)


def remove(cluster: Cluster) -> None:
    """Take away what `make` made in the cluster."""
    cluster.plane.kubectl("delete", f"namespace/{SPACE}", f"pv/{SPACE}-store", "--timeout=90s")
