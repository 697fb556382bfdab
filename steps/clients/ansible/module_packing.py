"""Packs an Ansible module and its imports into one script, so that hosts compile only these and not Ansible's library."""

import base64
import json
import re
import zlib
from pathlib import Path

_HELPERS = ("rke2_status", "rke2_nodes")
_RKE2 = (*_HELPERS, "rke2_config", "rke2_release", "rke2_supervisor")
MODULES = {
    "os_prep": ("node_profile",),
    "identify": ("cluster_identity",),
    "host_processes": ("host_processes",),
    "rke2_server": (*_RKE2, "rke2_snapshot"),
    "rke2_agent": _RKE2,
    "rke2_server_rollback": (*_RKE2, "rke2_snapshot", "rke2_rollback"),
    "rke2_agent_rollback": (*_RKE2, "rke2_rollback"),
    "rke2_reset": (*_HELPERS, "rke2_traces"),
}
"""Playbook → modules that are packed for it: all of bringup's own that it uses."""

SHARED = "ansible.module_utils"
BASIC = f"{SHARED}.basic"
REPLACED = (BASIC, f"{SHARED}.urls")
"""Parts of Ansible's library for which playbooks/packed/ has a replacement of the same name."""

# a syntax tree of each part would take most of the time of a packing
_IMPORT = re.compile(rf"^ *from ({re.escape(SHARED)}[\w.]*) import (\([^)]*\)|[^\n(]*)$", re.MULTILINE)


def modules(playbooks: Path, playbook: str) -> dict[str, str]:
    """Return file name → script of each module that is packed for a playbook. Raises ValueError (see `packed_module`)."""
    return {f"{name}.py": packed_module(playbooks, name) for name in MODULES.get(playbook, ())}


def packed_module(playbooks: Path, name: str) -> str:
    """Return an Ansible module and its imports as one script.

    Raises ValueError if it needs more of Ansible's library than playbooks/packed/basic.py has.
    """
    texts = {"__main__": (playbooks / "library" / f"{name}.py").read_text()}
    todo = {BASIC: playbooks / "packed" / "basic.py", **_imports(playbooks, texts["__main__"])}
    while todo:
        part, path = todo.popitem()
        if part not in texts:
            texts[part] = path.read_text()
            todo |= _imports(playbooks, texts[part])
    parts = base64.b64encode(zlib.compress(json.dumps(texts, sort_keys=True).encode(), 9)).decode()
    start = (playbooks / "packed" / "start.py").read_text()
    return start.replace("@PARTS@", parts).replace("@NAME@", name)


def _imports(playbooks: Path, text: str) -> dict[str, Path]:
    """Return name → path of each part of module_utils that a text imports. Raises ValueError for one of Ansible's own."""
    parts: dict[str, Path] = {}
    for module, imported in _IMPORT.findall(text):
        names = [module, *(f"{module}.{name}" for name in re.findall(r"(?:^|[(,])\s*(\w+)", imported))]
        here = {part: path for part in names if (path := _path(playbooks, part)) is not None}
        if not here:
            raise ValueError(f"{module} is Ansible's own: a module that needs it cannot be packed")
        parts |= here
    return parts


def _path(playbooks: Path, part: str) -> Path | None:
    """Return the path of the source of a part of module_utils; None if it is not one of bringup's."""
    if part in REPLACED:
        return playbooks / "packed" / f"{part.rpartition('.')[2]}.py"
    place = playbooks.joinpath("module_utils", *part.removeprefix(SHARED).strip(".").split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
