"""The files that `bringup init` writes: a starter spec, and beside it the JSON Schema that editors check and complete it by."""

import json
from pathlib import Path

from workflows.app.run_options import UsageError
from workflows.spec.editor_schema import json_schema

TITLE = "bringup/v1 "
"""Begin of the title of every schema of ours: a file with another one is somebody else's."""


def write_starter(spec: Path, text: str, kind: str = "Cluster") -> str:
    """Write a spec and its schema, and return both names as words of a sentence.

    The spec begins with the line by which YAML language servers (VS Code, Neovim, JetBrains) find its schema. A schema of another
    release of bringup is written over. Raises UsageError where another file has the schema's name.
    """
    path = spec.parent / f"{kind.lower()}.schema.json"
    if path.exists() and not _is_ours(path):
        raise UsageError(f"{path} is no schema of bringup's, and an editor needs one of that name beside {spec.name}: move it away")
    # https://github.com/redhat-developer/yaml-language-server#using-inlined-schema
    spec.write_text(f"# yaml-language-server: $schema={path.name}\n{text}")
    path.write_text(json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n")
    return f"{spec} and {path.name}"


def _is_ours(path: Path) -> bool:
    try:
        found = json.loads(path.read_text())
    except ValueError:
        return False
    return isinstance(found, dict) and str(found.get("title", "")).startswith(TITLE)
