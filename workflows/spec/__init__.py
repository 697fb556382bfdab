"""The spec of one cluster: what a user writes in `cluster.yaml`, read into frozen models with all errors at once.

`load` reads `cluster.yaml`; `load_factory` and `load_stack` read the factory and stack specs; node images have theirs in
`workflows.nodeimage`. All raise `SpecErrors`, exit code 64. `json_schema` returns the schema for editors, and `OUT_OF_SCOPE` lists
the keys that are refused by name. The compatibility rules are in `workflows.spec.compat`; the catalog runs them with its releases.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from workflows.spec.errors import Issue, SpecError, SpecErrors

if TYPE_CHECKING:
    from workflows.spec.cluster_loading import load
    from workflows.spec.cluster_spec import ClusterSpec
    from workflows.spec.editor_schema import json_schema
    from workflows.spec.fields import SecretRef
    from workflows.spec.machines import Machine
    from workflows.spec.parsing.loading import load_as
    from workflows.spec.parsing.out_of_scope import OUT_OF_SCOPE, OutOfScope
    from workflows.spec.pipelines.factory_spec import FactorySpec, load_factory
    from workflows.spec.range_syntax import BadRange, expand

__all__ = [
    "OUT_OF_SCOPE",
    "BadRange",
    "ClusterSpec",
    "FactorySpec",
    "Issue",
    "Machine",
    "OutOfScope",
    "SecretRef",
    "SpecError",
    "SpecErrors",
    "expand",
    "json_schema",
    "load",
    "load_as",
    "load_factory",
]

_MODULES: Final = {
    "ClusterSpec": "cluster_spec",
    "json_schema": "editor_schema",
    "FactorySpec": "pipelines.factory_spec",
    "load_factory": "pipelines.factory_spec",
    "SecretRef": "fields",
    "load": "cluster_loading",
    "load_as": "parsing.loading",
    "Machine": "machines",
    "OUT_OF_SCOPE": "parsing.out_of_scope",
    "OutOfScope": "parsing.out_of_scope",
    "BadRange": "range_syntax",
    "expand": "range_syntax",
}
"""Names of this package that are imported when they are first used: commands about stacks need no models of clusters."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return a name of this package from the module that has it (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
