"""Mounts at RKE2's paths. Mounts made by Kubernetes are unmounted; disks of the site stay mounted and are emptied."""

from __future__ import annotations

import contextlib
import os
import shutil

from ansible.module_utils.mount_table import decode_path

DATA = "/var/lib/rancher/rke2"
SITE_DISKS = (
    DATA,
    DATA + "/server",
    DATA + "/server/db",
    DATA + "/server/db/etcd",
    DATA + "/agent",
    DATA + "/agent/containerd",
    "/var/lib/kubelet",
    "/var/log/pods",
)
"""Paths where a site may mount a disk for RKE2's own data and where Kubernetes mounts nothing.

Unmounting such a disk would keep old data for the next boot. Any other mount below may be a pod's volume or a share of others (such
as etcd's snapshots) and must never be entered.
"""
DRIVER_ROOTS = ("/run/nvidia/driver", "/run/mellanox/drivers")
"""Second mounts of the root of NVIDIA's driver containers, which stay if those are killed; rke2-killall.sh does not know them."""
POD_MOUNTS = ("/run/k3s/", "/var/lib/kubelet/", "/run/netns/cni-", "/run/flannel/", "/run/calico/", "/run/cilium/", DATA + "/")
"""Prefixes of mounts by Kubernetes and its network plugin, with the cgroup2 that Calico and Cilium leave behind."""
LOST_FOUND = "lost+found"
"""The folder that a file system itself makes in its root; it is never removed."""


def targets() -> list:
    """Return all mount points in the order of mounting."""
    with open("/proc/self/mounts") as source:
        return [decode_path(line.split()[1]) for line in source]


def mounts_below(path: str, mounted: list) -> list:
    """Return those of the mount points `mounted` that are the path or lie below it."""
    return [target for target in mounted if target == path or target.startswith(path + "/")]


def driver_root(target: str) -> str:
    """Return the driver container's root (one of DRIVER_ROOTS) that contains this mount point; empty for any other mount."""
    return next((root for root in DRIVER_ROOTS if mounts_below(root, [target])), "")


def is_of_pods(target: str) -> bool:
    """Return True if a mount point is of Kubernetes, its network plugin or a driver container, by its path."""
    return target.startswith(POD_MOUNTS) or driver_root(target) != ""


def foreign_mounts(path: str, mounted: list) -> list:
    """Return the mount points at a path or below it that are no disks for RKE2's data; nothing may be removed through them."""
    return [target for target in mounts_below(path, mounted) if target not in SITE_DISKS]


def has_content(path: str, kept: list) -> bool:
    """Return True if a path exists and has anything besides the paths in `kept` and the folders that lead to them."""
    if not mounts_below(path, kept):
        return os.path.lexists(path)
    try:
        return any(has_content(inner, kept) for inner in _inside(path, kept))
    except OSError:
        return True  # a disk that cannot be read is not known to be empty


def remove_content(path: str, kept: list) -> None:
    """Remove a path and everything in it except the paths in `kept` and the folders that lead to them. What fails stays."""
    with contextlib.suppress(OSError):
        if mounts_below(path, kept):
            for inner in _inside(path, kept):
                remove_content(inner, kept)
        elif os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _inside(path: str, kept: list) -> list:
    return [os.path.join(path, name) for name in sorted(os.listdir(path)) if name != LOST_FOUND or path not in kept]
