"""Templates of containerd's configuration that an earlier installation left below RKE2's data folder. Nothing is changed.

RKE2 makes containerd's configuration from such a template instead of its own, so that runtimes, registries and proxies of the plan
never reach containerd. A template that begins with RKE2's own by `{{ template "base" . }}` only adds to it
(https://docs.rke2.io/advanced#configuring-containerd).
"""

from __future__ import annotations

import os
import re

from ansible.module_utils.nodeprofile.item import FAILED, OK, Item, item, read_text

NAME = "containerd templates"
NONE = "none"
EXTENDS = re.compile(r"\{\{-?\s*template\s+[\"`]base[\"`]")


def templates(paths: list, root: str = "") -> list:
    """Return, in a list, the setting result for containerd templates at `paths`; an empty list without paths."""
    return [_result(paths, root)] if paths else []


def _result(paths: list, root: str) -> Item:
    present = [path for path in paths if os.path.exists(root + path)]
    replacing = [path for path in present if not EXTENDS.search(read_text(root + path))]
    if replacing:
        why = "RKE2 writes containerd's configuration from it, and leaves out runtimes and registries of the plan"
        return item(NAME, FAILED, want=NONE, before=", ".join(replacing), after=", ".join(replacing), why=why)
    why = "%s adds to RKE2's own configuration" % ", ".join(present) if present else ""
    return item(NAME, OK, want=NONE, after=NONE, why=why)
