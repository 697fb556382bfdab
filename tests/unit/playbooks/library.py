"""Ansible modules of ours, loaded from where Ansible finds them."""

import importlib.util
from pathlib import Path
from typing import Any

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
LIBRARY = PLAYBOOKS / "library"


def loaded(name: str, folder: str = "library") -> Any:
    """The module of this name in a folder of `playbooks`, anew."""
    found = importlib.util.spec_from_file_location(name, LIBRARY.with_name(folder) / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
