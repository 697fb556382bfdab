"""Repositories of packages that no distribution has: a file for dnf, unless the site has brought one of its own."""

from __future__ import annotations

import glob

from ansible.module_utils.nodeprofile import files
from ansible.module_utils.nodeprofile.item import FAILED, OK, Item, Node, item, read_text

THERE = "there"
UNKNOWN = "none is known for this release of the distribution: write os.rke2_repository.baseurl"


def repositories(node: Node, wanted: dict) -> list:
    """Package → its repository: `id` and `keys` as its file has them, `path` of that file, and `unless`, a pattern of files by
    which a site brings the package itself. A machine that has the package needs none: dnf fails where it does not reach one."""
    return [_repository(node, package, entry) for package, entry in sorted(wanted.items())]


def _repository(node: Node, package: str, entry: dict) -> Item:
    name = "repository of " + package
    if not read_text(entry["path"]).startswith(files.OURS):
        others = sorted(glob.glob(entry["unless"]))
        if others:
            return item(name, OK, want=THERE, after="%s, which is not bringup's" % others[0])
        if node.run("rpm", "--query", package)[0] == 0:
            return item(name, OK, want=THERE, after="not needed: the package is installed")
    if not entry["keys"].get("baseurl"):
        return item(name, FAILED, want=THERE, before="absent", after="absent", why=UNKNOWN)
    return files.whole(node, name, entry["path"], _content(entry))


def _content(entry: dict) -> str:
    rows = ["%s=%s" % pair for pair in sorted(entry["keys"].items())]
    return "".join(row + "\n" for row in [files.OURS, "[%s]" % entry["id"], *rows])
