"""The spec: what a user writes in `cluster.yaml`, read into frozen models, with every error at once.

`load` reads `cluster.yaml`; `load_factory`, `load_stack` and `load_image` read the other three. All raise `SpecErrors` (exit
code 64). `json_schema` is for editors, `starter` is what `bringup init` writes, `OUT_OF_SCOPE` lists what is refused by name.
Compatibility rules are in `workflows.spec.compat`; `workflows.catalog.check` runs them with the catalog's releases.
"""

from workflows.spec.cluster import ClusterSpec
from workflows.spec.errors import Issue, SpecError, SpecErrors
from workflows.spec.fields import STAGES, SecretRef, StageName
from workflows.spec.image import ImageSpec, load_image
from workflows.spec.loading import load, load_as
from workflows.spec.machines import Machine
from workflows.spec.others import FactorySpec, StackSpec, load_factory, load_stack
from workflows.spec.ranges import BadRange, compress, expand
from workflows.spec.schema import json_schema
from workflows.spec.scope import OUT_OF_SCOPE, OutOfScope
from workflows.spec.starter import starter

__all__ = [
    "OUT_OF_SCOPE",
    "STAGES",
    "BadRange",
    "ClusterSpec",
    "FactorySpec",
    "ImageSpec",
    "Issue",
    "Machine",
    "OutOfScope",
    "SecretRef",
    "SpecError",
    "SpecErrors",
    "StackSpec",
    "StageName",
    "compress",
    "expand",
    "json_schema",
    "load",
    "load_as",
    "load_factory",
    "load_image",
    "load_stack",
    "starter",
]
