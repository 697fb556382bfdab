"""What of the site's RKE2's own script removes, and a reset puts back.

Links at RKE2's paths: RKE2 writes by the usual name, and the folder lies on another disk. The script removes such a link, and what
it leads to stays: certificates, tokens and etcd's data of a cluster that is no more. So links are remembered before that script
runs, and are put back: like disks of the site they stay, and lead to nothing.

Files of repositories: on hosts of the RHEL family the script removes RKE2's packages, whoever installed them, and the files of the
repositories that the next bring-up takes rke2-selinux from.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import os

from ansible.module_utils import labels
from ansible.module_utils.rke2 import files, mounts

MARK = "/var/lib/.rke2-reset-begun"
"""There from before the first removal until nothing is left: a reset that was killed goes on where it was. It lies beside
/var/lib/rancher, which may be a link that RKE2's script removes."""
REPOSITORIES = "/etc/yum.repos.d/rancher-rke2*.repo"
"""What RKE2's script removes of them."""
_FILES = "files"
PARENT = os.path.dirname(mounts.DATA)
"""Its other folders are of others (K3s); what is RKE2's there is known by name."""
KNOWN = {
    mounts.DATA: ("agent", "bin", "data", "force-restart", "server", "storage"),
    mounts.DATA + "/server": ("*token", "cred", "db", "etc", "logs", "manifests", "static", "tls*", "*.sock"),
    mounts.DATA + "/server/db": ("etcd*", "snapshots", "reset-flag", "state.db*"),
    mounts.DATA + "/server/db/etcd": ("config", "member", "name", "tombstone*"),
    mounts.DATA + "/agent": ("bin", "containerd", "etc", "images", "logs", "pod-manifests", "*.crt", "*.key", "*.kubeconfig"),
    mounts.DATA + "/agent/containerd": ("bin", "containerd*", "io.containerd.*", "lib", "opt", "tmpmounts"),
    "/var/lib/kubelet": (
        *("*_pods_state", "*_manager_state", "checkpoints", "config*", "device-plugins", "image_manager", "pki", "plugins"),
        *("plugins_registry", "pod-resources", "pods", "seccomp", "userns", "volume*plugins"),
    ),
    "/var/log/pods": ("*_*_*",),
}
"""What RKE2, etcd, containerd and the kubelet make at these places."""


def links() -> dict:
    """Place → text of the link, where one leads to a folder."""
    return {path: os.readlink(path) for path in (PARENT, *mounts.PLACES) if os.path.islink(path) and os.path.isdir(path)}


def canonical(path: str) -> str:
    """The path as it would be without links: the kernel tells mounts and programs by where these lead to."""
    for place in sorted(links(), reverse=True):  # the inner one before the outer one
        real = os.path.realpath(place)
        if real != "/" and (path == real or path.startswith(real + "/")):
            return place + path[len(real) :]
    return path


def targets() -> list:
    """Where something is mounted, in the order of mounting, by canonical paths."""
    return [canonical(target) for target in mounts.targets()]


def refusal() -> str:
    """Why nothing may be removed: a link leads to where others keep things too; empty where none does."""
    for place in links():
        for name in strange(place, os.listdir(place)):
            real = os.path.realpath(place)
            said = "%s leads to %s, where %s lies, which RKE2 has not made: nothing was removed; move it away, or the link"
            return said % (place, real, name)
    return ""


def strange(place: str, names: list) -> list:
    """Those of the names in a place that RKE2 has not made, in order; of places that are not known, none."""
    known = (*KNOWN.get(place, ("*",)), mounts.OF_DISK)
    return [name for name in sorted(names) if not any(fnmatch.fnmatch(name, one) for one in known)]


def remember(path: str = MARK, repositories: str = REPOSITORIES) -> None:
    """Write down that a reset has begun, and which links and repositories there are."""
    before = _remembered(path)
    found = {one: [_text(one), os.stat(one).st_mode & 0o777] for one in glob.glob(repositories)}
    files.write(path, json.dumps({**before, **links(), _FILES: {**before.get(_FILES, {}), **found}}).encode(), 0o600)


def restore(path: str = MARK) -> None:
    """Put links and repositories back that are gone since; where something else is by now, that stays."""
    remembered = _remembered(path)
    kept = remembered.pop(_FILES, {})
    for place, text in sorted(remembered.items()):
        if not os.path.lexists(place):
            labels.folders(os.path.dirname(place))
            os.symlink(text, place)
    for place, (text, mode) in sorted(kept.items()):
        if not os.path.lexists(place):
            files.write(place, text.encode(errors="surrogateescape"), mode)


def _text(path: str) -> str:
    with open(path, errors="surrogateescape", newline="") as source:
        return source.read()


def _remembered(path: str) -> dict:
    try:
        with open(path) as source:
            return dict(json.load(source))
    except FileNotFoundError:
        return {}
