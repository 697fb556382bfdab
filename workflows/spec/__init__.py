"""The spec of one cluster: what a user writes in `cluster.yaml`, read into frozen models with all errors at once.

`load` reads `cluster.yaml`; `load_factory` and `load_stack` read the factory and stack specs; node images have theirs in
`workflows.nodeimage`. All raise `SpecErrors`, exit code 64. `json_schema` returns the schema for editors, `starter` the text that
`bringup init` writes, and `OUT_OF_SCOPE` lists the keys that are refused by name. The compatibility rules are in
`workflows.spec.compat`; the catalog runs them with its releases.
"""

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.editor_schema import json_schema
from workflows.spec.errors import Issue, SpecError, SpecErrors
from workflows.spec.factory_spec import FactorySpec, load_factory
from workflows.spec.fields import SecretRef
from workflows.spec.loading import load, load_as
from workflows.spec.machines import Machine
from workflows.spec.out_of_scope import OUT_OF_SCOPE, OutOfScope
from workflows.spec.range_syntax import BadRange, expand
from workflows.spec.starter import starter

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
    "starter",
]
