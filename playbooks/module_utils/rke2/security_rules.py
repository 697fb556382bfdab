"""Registration of RKE2's files with SELinux (labels) and fapolicyd (trusted folders).

RKE2's installer does both (restorecon and setup_fapolicy_rules in install.sh). A release that is only unpacked starts in the wrong
domain, or not at all.
"""

from __future__ import annotations

import os
from typing import Callable

from ansible.module_utils import atomic_files

SELINUX = "/sys/fs/selinux/enforce"
RULES = "/etc/fapolicyd/rules.d/80-rke2.rules"
"""fapolicyd's rules file for RKE2, with the name that RKE2's installer gives it, so that its uninstaller removes it."""
PLACES = ("/var/lib/rancher/", "/opt/cni/", "/run/k3s/", "/var/lib/kubelet/")


class GuardRefusal(Exception):
    """Error: SELinux or fapolicyd refused a change; the text says which command failed."""


def register_files(paths: list, run: Callable[[list], tuple], root: str = "") -> None:
    """Restore the SELinux labels of installed files and make fapolicyd trust RKE2's folders, where either is in use.

    `run` runs a command and returns exit code, output and error. Raises GuardRefusal.
    """
    if paths and os.path.exists(root + SELINUX):
        _must(run, ["restorecon", *paths])
    if not os.path.isdir(os.path.dirname(root + RULES)) or run(["systemctl", "is-active", "fapolicyd"])[0] != 0:
        return
    text = "".join("allow perm=any all : dir=%s\n" % place for place in PLACES)
    if atomic_files.read(root + RULES) != text:
        atomic_files.write(root + RULES, text.encode(), 0o644)
        try:
            _must(run, ["fagenrules", "--load"])
            _must(run, ["systemctl", "restart", "fapolicyd"])
        except GuardRefusal:
            os.unlink(root + RULES)  # it is in force for nobody, and is told again
            raise


def _must(run: Callable[[list], tuple], command: list) -> None:
    code, output, error = run(command)
    if code != 0:
        raise GuardRefusal("%s ended with %d: %s" % (" ".join(command[:2]), code, (error or output).strip()[-300:]))
