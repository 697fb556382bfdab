"""Versions of the programs of this machine that unpack the packages of a layer, and put them in order.

The order in which packages are configured decides which number a user of theirs gets: another apt may choose another one, for the
same lock. No key has these versions, since keys are known before anything is built, and nothing is built anew for them: builders of
several versions that share a store would take layers from under each other, each time. They stand in the layer's entry; a build
that takes a layer which others made says so.
"""

from collections.abc import Mapping

from steps.clients.image import programs
from steps.contract.image import debian
from steps.contract.image.recipe import Layer


def versions(layer: Layer) -> dict[str, str]:
    """By name; none for a layer without packages. Raises BadTask where one is not installed."""
    return {name: programs.version(words) for name, words in debian.INSTALLERS.items()} if layer.packages else {}


def others(made_by: Mapping[str, str], have: Mapping[str, str]) -> str:
    """What made a layer where it is not what is here; empty where it is, or where that is not known."""
    return ", ".join(f"{name} {made_by[name]}, here {have[name]}" for name in have if made_by.get(name, have[name]) != have[name])
