"""Links and repository files of the site that RKE2's uninstall script removes and a reset restores.

A site may link RKE2's paths to another disk. The script removes the link and leaves its target, with certificates, tokens and
etcd's data of a cluster that is gone. Links are therefore recorded before the script runs and restored afterwards; like disks of
the site they stay, and their targets are emptied.

On the RHEL family the script also removes RKE2's packages and the repository files from which the next bring-up installs
rke2-selinux.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import os

from ansible.module_utils import atomic_files, selinux_labels
from ansible.module_utils.rke2 import rke2_mounts

MARK = "/var/lib/.rke2-reset-begun"
"""Marker file of a reset that has begun. It is outside /var/lib/rancher, which may be a link that RKE2's script removes."""
REPOSITORIES = "/etc/yum.repos.d/rancher-rke2*.repo"
"""Repository files that RKE2's script removes."""
_FILES = "files"
PARENT = os.path.dirname(rke2_mounts.DATA)
"""The folder /var/lib/rancher, which also holds other programs' folders (K3s). RKE2's own are known by name."""
RKE2_NAMES = {
    rke2_mounts.DATA: ("agent", "bin", "data", "force-restart", "server", "storage"),
    rke2_mounts.DATA + "/server": ("*token", "cred", "db", "etc", "logs", "manifests", "static", "tls*", "*.sock"),
    rke2_mounts.DATA + "/server/db": ("etcd*", "snapshots", "reset-flag", "state.db*"),
    rke2_mounts.DATA + "/server/db/etcd": ("config", "member", "name", "tombstone*"),
    rke2_mounts.DATA + "/agent": ("bin", "containerd", "etc", "images", "logs", "pod-manifests", "*.crt", "*.key", "*.kubeconfig"),
    rke2_mounts.DATA + "/agent/containerd": ("bin", "containerd*", "io.containerd.*", "lib", "opt", "tmpmounts"),
    "/var/lib/kubelet": (
        *("*_pods_state", "*_manager_state", "checkpoints", "config*", "device-plugins", "image_manager", "pki", "plugins"),
        *("plugins_registry", "pod-resources", "pods", "seccomp", "userns", "volume*plugins"),
    ),
    "/var/log/pods": ("*_*_*",),
}
"""Path → the names that RKE2, etcd, containerd and the kubelet create there."""


def links() -> dict:
    """Return path → link text for those of RKE2's paths that the site made a link to a folder."""
    return {path: os.readlink(path) for path in (PARENT, *rke2_mounts.SITE_DISKS) if os.path.islink(path) and os.path.isdir(path)}


def canonical(path: str) -> str:
    """Return RKE2's path for a link's target or a path below it, because the kernel reports mounts and programs by such targets.

    Other paths are returned unchanged.
    """
    for place in sorted(links(), reverse=True):  # the inner one before the outer one
        real = os.path.realpath(place)
        if real != "/" and (path == real or path.startswith(real + "/")):  # else every path would become RKE2's
            return place + path[len(real) :]
    return path


def targets() -> list:
    """Return all mount points by RKE2's paths (see `canonical`), in the order of mounting."""
    return [canonical(target) for target in rke2_mounts.targets()]


def refusal() -> str:
    """Return why a reset may remove nothing: one of RKE2's links leads to a folder with other people's data. Empty if none does."""
    for place in links():
        for name in foreign_names(place, os.listdir(place)):
            real = os.path.realpath(place)
            message = "%s leads to %s, where %s lies, which RKE2 has not made: nothing was removed; move it away, or the link"
            return message % (place, real, name)
    return ""


def foreign_names(place: str, names: list) -> list:
    """Return those names in one of RKE2's folders that RKE2 does not create, sorted; empty for a folder not in RKE2_NAMES."""
    known = (*RKE2_NAMES.get(place, ("*",)), rke2_mounts.LOST_FOUND)
    return [name for name in sorted(names) if not any(fnmatch.fnmatch(name, pattern) for pattern in known)]


def begin_reset(path: str = MARK, repositories: str = REPOSITORIES) -> None:
    """Write the marker file of a reset, with the site's present links and repository files."""
    before = _remembered(path)  # an interrupted reset has removed these already
    repository_files = {file: [_text(file), os.stat(file).st_mode & 0o777] for file in glob.glob(repositories)}
    mark = {**before, **links(), _FILES: {**before.get(_FILES, {}), **repository_files}}
    atomic_files.write(path, json.dumps(mark).encode(), 0o600)


def restore(path: str = MARK) -> None:
    """Restore the links and repository files that the marker file records and that are missing. Existing files stay."""
    remembered = _remembered(path)
    kept = remembered.pop(_FILES, {})
    for place, text in sorted(remembered.items()):
        if not os.path.lexists(place):
            selinux_labels.make_folders(os.path.dirname(place))
            os.symlink(text, place)
    for place, (text, mode) in sorted(kept.items()):
        if not os.path.lexists(place):
            atomic_files.write(place, text.encode(errors="surrogateescape"), mode)


def _text(path: str) -> str:
    with open(path, errors="surrogateescape", newline="") as source:
        return source.read()


def _remembered(path: str) -> dict:
    try:
        with open(path) as source:
            return dict(json.load(source))
    except FileNotFoundError:
        return {}
