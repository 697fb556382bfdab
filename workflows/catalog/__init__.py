"""The catalog: Helm charts, pinned versions, values and overlays as data, resolved with a spec into planned releases."""

from workflows.catalog.loader import Catalog, load
from workflows.catalog.model import Component, KubernetesRange, Overlay, PlannedRelease, ValuesLayer
from workflows.catalog.resolve import check, further_errors, require, resolve, unverified_values

__all__ = [
    "Catalog",
    "Component",
    "KubernetesRange",
    "Overlay",
    "PlannedRelease",
    "ValuesLayer",
    "check",
    "further_errors",
    "load",
    "require",
    "resolve",
    "unverified_values",
]
