"""A reset empties disks of the site where they are mounted, and never looks into what Kubernetes mounted or others share."""

from pathlib import Path

import pytest
from ansible.module_utils.rke2 import rke2_mounts


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder of RKE2 that also holds, in two places, the `lost+found` of a file system."""
    for path in ("agent/images/core.tar", "server/db/etcd/member", "server/token", "server/db/lost+found/part", "lost+found/part"):
        (tmp_path / "rke2" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "rke2" / path).touch()
    return tmp_path / "rke2"


def test_without_a_disk_of_the_site_the_path_goes(data: Path) -> None:
    assert rke2_mounts.has_content(str(data), ["/", "/var"])
    rke2_mounts.remove_content(str(data), ["/", "/var"])
    assert not data.exists()
    assert not rke2_mounts.has_content(str(data), ["/", "/var"])
    rke2_mounts.remove_content(str(data), [])


@pytest.mark.parametrize(
    ("disks", "left"),
    [
        (["."], ["lost+found", "lost+found/part"]),
        (["server/db"], ["server", "server/db", "server/db/lost+found", "server/db/lost+found/part"]),
        (
            [".", "server/db"],
            ["lost+found", "lost+found/part", "server", "server/db", "server/db/lost+found", "server/db/lost+found/part"],
        ),
        (["server/db/etcd"], ["server", "server/db", "server/db/etcd"]),
    ],
)
def test_a_disk_of_the_site_stays_and_counts_as_nothing_once_it_is_empty(data: Path, disks: list[str], left: list[str]) -> None:
    kept = ["/", *(str(data / disk) for disk in disks)]
    if disks == ["server/db/etcd"]:
        (data / "server/db/etcd/member").unlink()
        (data / "server/db/etcd/member").mkdir()
    assert rke2_mounts.has_content(str(data), kept)
    rke2_mounts.remove_content(str(data), kept)
    assert sorted(str(path.relative_to(data)) for path in data.rglob("*")) == left
    assert not rke2_mounts.has_content(str(data), kept)
    (data / left[-1]).parent.joinpath("again").touch()
    assert rke2_mounts.has_content(str(data), kept) is ("lost+found" not in left[-1])


def test_a_link_goes_and_what_it_leads_to_stays(data: Path, tmp_path: Path) -> None:
    (tmp_path / "of-others").mkdir()
    (tmp_path / "of-others/file").touch()
    (data / "server/db/link").symlink_to(tmp_path / "of-others")
    rke2_mounts.remove_content(str(data), [str(data / "server/db")])
    assert not (data / "server/db/link").is_symlink()
    assert (tmp_path / "of-others/file").exists()


def test_a_link_of_the_site_stays_and_leads_to_nothing(data: Path, tmp_path: Path) -> None:
    (data / "server/db").rename(tmp_path / "disk")
    (data / "server/db").symlink_to(tmp_path / "disk")
    kept = [str(data / "server/db")]
    assert rke2_mounts.has_content(str(data), kept)
    rke2_mounts.remove_content(str(data), kept)
    assert not rke2_mounts.has_content(str(data), kept)
    assert sorted(path.name for path in data.rglob("*")) == ["db", "server"]
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["lost+found"]


@pytest.mark.parametrize(
    "volume",
    [
        "/var/lib/kubelet/pods/1f3c/volumes/kubernetes.io~csi/pvc-7/mount",
        "/var/lib/kubelet/plugins/kubernetes.io/csi/driver/globalmount",
        "/var/lib/kubelet/pods",
        "/var/lib/rancher/rke2/server/db/snapshots",
        "/var/lib/rancher/rke2/agent/images",
        "/var/lib/rancher/rke2/storage/pvc-7",
    ],
)
def test_nothing_is_removed_through_volumes_of_pods_and_shares_of_others(volume: str) -> None:
    mounted = ["/", *rke2_mounts.SITE_DISKS, volume]
    path = next(place for place in ("/var/lib/kubelet", rke2_mounts.DATA) if volume.startswith(place))
    assert rke2_mounts.foreign_mounts(path, mounted) == [volume]
    assert rke2_mounts.foreign_mounts(path, ["/", *rke2_mounts.SITE_DISKS]) == []
