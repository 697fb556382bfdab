"""Images in this machine's store: the use case of `bringup image diff`. It imports no model of specs, which take long to load."""

from pathlib import Path

from steps.nodeimage.contract.image_difference import ImageDifference
from steps.nodeimage.files import image_comparison
from workflows.engines.folders import StateFolder

IMAGES = "images"
"""Folder of the store with the files that image builds make and reuse."""


def compare(before: str, after: str, tree: Path | None) -> ImageDifference:
    """Return the difference of two images, each named as `image_comparison.find` describes. Raises BadTask."""
    images = StateFolder.of_environment().store / IMAGES
    return image_comparison.compare(image_comparison.find(before, images, tree), image_comparison.find(after, images, tree))
