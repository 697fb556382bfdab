"""What guards of the host must know of RKE2: SELinux the labels of its files, fapolicyd where its programs lie.

RKE2's own installer does both (install.sh: restorecon, setup_fapolicy_rules); a release that is only unpacked starts in the wrong
domain, or not at all.
"""

from __future__ import annotations

import os
from typing import Callable

from ansible.module_utils.rke2 import files

SELINUX = "/sys/fs/selinux/enforce"
RULES = "/etc/fapolicyd/rules.d/80-rke2.rules"
"""The name that RKE2's installer gives it, and its uninstaller removes."""
PLACES = ("/var/lib/rancher/", "/opt/cni/", "/run/k3s/", "/var/lib/kubelet/")


class Refused(Exception):
    """A guard did not take what it was told; the text says which."""


def tell(paths: list, run: Callable[[list], tuple], root: str = "") -> None:
    """Let them know once these files are in their places. `run` runs a command: exit code, output, error. Raises Refused."""
    if paths and os.path.exists(root + SELINUX):
        _must(run, ["restorecon", *paths])
    if not os.path.isdir(os.path.dirname(root + RULES)) or run(["systemctl", "is-active", "fapolicyd"])[0] != 0:
        return
    text = "".join("allow perm=any all : dir=%s\n" % place for place in PLACES)
    if _read(root + RULES) != text:
        files.write(root + RULES, text.encode(), 0o644)
        try:
            _must(run, ["fagenrules", "--load"])
            _must(run, ["systemctl", "restart", "fapolicyd"])
        except Refused:
            os.unlink(root + RULES)  # it is in force for nobody, and is told again
            raise


def _must(run: Callable[[list], tuple], command: list) -> None:
    code, said, error = run(command)
    if code != 0:
        raise Refused("%s ended with %d: %s" % (" ".join(command[:2]), code, (error or said).strip()[-300:]))


def _read(path: str) -> str:
    try:
        with open(path) as source:
            return source.read()
    except OSError:
        return ""
