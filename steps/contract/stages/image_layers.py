"""Stage image_layers: what one layer came to, built now or found in the cache."""

from msgspec import Struct


class Built(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A layer of the cache. `digest` is that of its content listing, `size` bytes and `files` entries that it adds to the root;
    `cached`: it was there, and its content is still what its entry says; `seconds` of building; `failed` is the part that failed
    (`packages`, `users`, `files`, `commands 2`, `services`), with the end of what it said in `output`; `installed` are the packages
    that the layer's root has, `name=version`; `secrets_found` are places where a build secret's bytes stand."""

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


class Wanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The layer by name and key, how many packages its root must have, and its budget in MiB (0: none)."""

    layer: str
    key: str
    packages: int
    budget_mib: int = 0
