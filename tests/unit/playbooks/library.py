"""Ansible modules of ours, loaded from where Ansible finds them."""

import importlib.util
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).parents[3] / "playbooks" / "library"


def loaded(name: str) -> Any:
    """The module of this name, anew."""
    found = importlib.util.spec_from_file_location(name, LIBRARY / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
