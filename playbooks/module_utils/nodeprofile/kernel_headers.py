"""Headers of the running kernel: installed, or offered by a package repository of this machine. Nothing is changed.

A driver container builds its modules for the running kernel and fetches the headers from the distribution's repositories. A mirror
that keeps only the newest kernel no longer has those of an older one (NVIDIA/gpu-operator#85).
"""

from __future__ import annotations

import glob
import os

from ansible.module_utils.nodeprofile.item import OK, UNAVAILABLE, NodeAccess, item

NAME = "kernel headers"
LISTS = "/var/lib/apt/lists/*_Packages*"


def headers(node: NodeAccess, is_wanted: bool, manager: str, root: str = "") -> list:
    """Return, in a list, the setting result for headers of the running kernel; empty if nothing is built on this machine."""
    if not is_wanted:
        return []
    release = os.uname().release
    package = package_name(manager, release)
    want = "%s installed or offered" % (package or "headers of kernel %s" % release)
    if os.path.isdir(os.path.join(root + "/lib/modules", release, "build") + "/"):
        return [item(NAME, OK, want=want, after="installed")]
    if not package:
        return [item(NAME, UNAVAILABLE, want=want, why="no package manager is known for this distribution")]
    why = _why_not_offered(node, manager, package, release, root)
    return [item(NAME, UNAVAILABLE, want=want, why=why) if why else item(NAME, OK, want=want, after="offered")]


def package_name(manager: str, release: str) -> str:
    """Return the package that holds the headers of a kernel release; empty for an unknown package manager."""
    flavour = release.rpartition("-")[2] or "default"
    names = {"apt": "linux-headers-" + release, "dnf": "kernel-devel-" + release, "zypper": "kernel-%s-devel" % flavour}
    return names.get(manager, "")


def _why_not_offered(node: NodeAccess, manager: str, package: str, release: str, root: str) -> str:
    """Return why no repository offers a package; empty if one does."""
    missing = "no package repository of this machine offers %s" % package
    if manager == "apt":
        output = node.run("apt-cache", "policy", package)[1]
        candidates = [line.split(":", 1)[1].strip() for line in output.splitlines() if line.strip().startswith("Candidate:")]
        if candidates and candidates[0] != "(none)":
            return ""
        return missing if glob.glob(root + LISTS) else "this machine has no lists of packages: apt-get update, then play again"
    if manager == "dnf":
        code, output, error = node.run("dnf", "--quiet", "list", "--showduplicates", package)
        return "" if code == 0 and "kernel-devel" in output else _with_error(missing, error)
    # the package's release has one more number than the kernel's
    version = release.rpartition("-")[0]
    code, output, error = node.run("zypper", "--non-interactive", "search", "--details", "--match-exact", package)
    return "" if code == 0 and version in output else _with_error("%s of version %s" % (missing, version), error)


def _with_error(text: str, error: str) -> str:
    last = error.strip().splitlines()[-1:]
    return "%s (%s)" % (text, last[0][:200]) if last else text
