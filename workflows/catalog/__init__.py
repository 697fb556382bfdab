"""The catalog: charts, pins, values and overlays as data, and what a spec makes of them."""

from workflows.catalog.checking import check, require
from workflows.catalog.loader import Catalog, load
from workflows.catalog.model import Component, KubernetesRange, Layer, Overlay, Release
from workflows.catalog.resolve import resolve

__all__ = ["Catalog", "Component", "KubernetesRange", "Layer", "Overlay", "Release", "check", "load", "require", "resolve"]
