"""Types of stage image_layers: one layer, built or found in the cache, and the expectation of its gate."""

from typing import Final

from msgspec import Struct

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""


class Built(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate image_layers/layer: one layer, built now or found in the layer cache.

    `digest` is that of its content listing, `size` (bytes) and `files` are its additions to the root. `cached`: the layer existed
    and its content still matches its entry. `seconds` is the build time. `failed` is the part that failed (`packages`, `users`,
    `files`, `commands 2`, `services`), and `output` the end of its output. `installed` are the packages of the layer's root as
    `name=version`. `secrets_found` are places that contain the bytes of a build secret.
    """

    key: str
    digest: str = ""
    size: int = 0
    files: int = 0
    cached: bool = False
    seconds: float = 0.0
    failed: str = ""
    output: str = ""
    installed: tuple[str, ...] = ()
    secrets_found: tuple[str, ...] = ()


class LayerExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gate image_layers/layer: the layer's name, key, number of packages and budget in MiB (0: none)."""

    layer: str
    key: str
    packages: int
    budget_mib: int = 0
