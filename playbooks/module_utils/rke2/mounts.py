"""File systems at RKE2's paths: those that Kubernetes mounted are unmounted, those of the site stay, and are emptied in place."""

from __future__ import annotations

import contextlib
import os
import shutil

from ansible.module_utils.mountpoints import plain

DATA = "/var/lib/rancher/rke2"
PLACES = (
    DATA,
    DATA + "/server",
    DATA + "/server/db",
    DATA + "/server/db/etcd",
    DATA + "/agent",
    DATA + "/agent/containerd",
    "/var/lib/kubelet",
    "/var/log/pods",
)
"""Where a site mounts a disk for what RKE2 alone writes, and Kubernetes mounts nothing. Unmounting would keep old data for the next
boot. Whatever is mounted elsewhere below may be a volume of a pod or a share of others (etcd's snapshots): never look into it."""
DRIVER_ROOTS = ("/run/nvidia/driver", "/run/mellanox/drivers")
"""Where NVIDIA's driver containers mount their whole root once more. They unmount it where they end by themselves, and not where
they are killed; rke2-killall.sh does not know of it."""
OF_PODS = ("/run/k3s/", "/var/lib/kubelet/", "/run/netns/cni-", "/run/flannel/", "/run/calico/", "/run/cilium/", DATA + "/")
"""Below these Kubernetes and its network plugin mount. Calico and Cilium mount a cgroup2 for their BPF programs so that it outlives
their containers; rke2-killall.sh does not know of those."""
OF_DISK = "lost+found"
"""What belongs to a file system and not to who writes on it."""


def targets() -> list:
    """Where something is mounted, in the order of mounting."""
    with open("/proc/self/mounts") as source:
        return [plain(line.split()[1]) for line in source]


def within(path: str, mounted: list) -> list:
    """Those of the mounts that are at a path or below it."""
    return [target for target in mounted if target == path or target.startswith(path + "/")]


def driver_root(target: str) -> str:
    """The root of a driver container that a mount is, or lies in; empty for any other."""
    return next((root for root in DRIVER_ROOTS if within(root, [target])), "")


def of_pods(target: str) -> bool:
    """Whether a mount is of Kubernetes, its network plugin or a driver container."""
    return target.startswith(OF_PODS) or driver_root(target) != ""


def foreign(path: str, mounted: list) -> list:
    """Those at a path or below it that are no places of the site's disks: nothing may be removed through them."""
    return [target for target in within(path, mounted) if target not in PLACES]


def holds(path: str, kept: list) -> bool:
    """Whether something is at a path beside mount points that stay and the folders that lead to them."""
    if not within(path, kept):
        return os.path.lexists(path)
    try:
        return any(holds(inner, kept) for inner in _inside(path, kept))
    except OSError:
        return True  # a disk that cannot be read is not known to be empty


def clear(path: str, kept: list) -> None:
    """Remove a path and all in it but mount points that stay and the folders that lead to them."""
    with contextlib.suppress(OSError):
        if within(path, kept):
            for inner in _inside(path, kept):
                clear(inner, kept)
        elif os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _inside(path: str, kept: list) -> list:
    return [os.path.join(path, name) for name in sorted(os.listdir(path)) if name != OF_DISK or path not in kept]
