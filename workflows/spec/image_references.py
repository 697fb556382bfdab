"""Finds image references that float, such as `latest`, in Helm values and objects, wherever they are nested."""

from collections.abc import Iterator, Mapping
from typing import Any

from workflows.spec.fields import is_floating

_TAGS = ("tag", "version", "image_tag_version")
_PINS = (*_TAGS, "digest", "sha")


def is_floating_image(image: str) -> bool:
    """Return True if an image reference has neither a digest nor a fixed tag."""
    if "@sha256:" in image:
        return False
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return not colon or is_floating(tag)


def floating_images(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each tag, or whole reference, that means different images at different times.

    An `image` with a registry or folder and without a tag counts only if no key beside it pins one.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            here = f"{path}.{key}"
            if not isinstance(item, str):
                yield from floating_images(item, here)
            elif _is_floating_entry(key, item, value):
                yield here, item
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from floating_images(item, f"{path}[{number}]")


def _is_floating_entry(key: str, item: str, beside: Mapping[str, Any]) -> bool:
    if key in _TAGS:
        return item != "" and is_floating(item)  # an empty tag is the chart's own
    return key == "image" and is_floating_image(item) and _is_whole(item, beside)


def _is_whole(image: str, beside: Mapping[str, Any]) -> bool:
    """Return True if an image reference says all: it has a tag of its own, or a path and no pin beside it."""
    return ":" in image.rpartition("/")[2] or ("/" in image and not any(beside.get(pin) for pin in _PINS))
