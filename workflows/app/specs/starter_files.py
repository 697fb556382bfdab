"""Write the files of `bringup init`: a starter spec, and the JSON Schema by which editors check and complete it."""

import json
from pathlib import Path

from workflows.app.run_options import UsageError
from workflows.spec.editor_schema import json_schema

TITLE = "bringup/v1 "
"""Start of the title of every schema that bringup writes; a file with another title belongs to somebody else."""


def write_starter(spec: Path, text: str, kind: str = "Cluster") -> str:
    """Write a spec and its JSON Schema beside it, and return both names as words of a sentence.

    The spec begins with the line by which YAML language servers (VS Code, Neovim, JetBrains) find its schema. A schema of another
    release of bringup is written over. Raises UsageError if another file has the schema's name.
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
        document = json.loads(path.read_text())
    except ValueError:
        return False
    return isinstance(document, dict) and str(document.get("title", "")).startswith(TITLE)
