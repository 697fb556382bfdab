"""Names that RKE2 and the kubelet create: a reset refuses no host because of them where a link of the site leads elsewhere."""

import pytest
from ansible.module_utils.rke2 import rke2_mounts, site_paths

KUBELET = (
    *("actuated_pods_state", "allocated_pods_state", "checkpoints", "config.yaml", "cpu_manager_state", "device-plugins"),
    *("dra_manager_state", "image_manager", "memory_manager_state", "pki", "plugins", "plugins_registry", "pod-resources", "pods"),
)
"""Folders and files of a kubelet of Kubernetes 1.35, where it keeps records of the images it has pulled."""


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("/var/lib/kubelet", KUBELET),
        (rke2_mounts.DATA, ("agent", "bin", "data", "force-restart", "server")),  # after `rke2 certificate rotate`
        (rke2_mounts.DATA + "/server/db/etcd", ("config", "member", "name", "lost+found")),
    ],
)
def test_what_is_rke2s_own_is_known(place: str, names: tuple[str, ...]) -> None:
    assert site_paths.foreign_names(place, list(names)) == []
    assert site_paths.foreign_names(place, ["photos", *names, "backup"]) == ["backup", "photos"]


def test_of_what_others_have_made_too_nothing_is_said() -> None:
    assert site_paths.foreign_names("/srv/of/the/site", ["photos"]) == []
