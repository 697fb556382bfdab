"""Stage image_publish: the published tree read back, and what it must be."""

from msgspec import Struct

from steps.contract.image.manifest import Part


class Published(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tree after publishing, read back from where nodes read. `version` is what the pointer names, `before` what it named;
    `manifest` the digest of that version's manifest, `found` the files there, `listed` those of its manifest; `scripts` are the
    boot scripts by group → the version that all their paths name (empty: paths of several, or of none); `unchanged`: this image
    was published already and nothing was written; `incoming` what an earlier attempt left half copied; `outside` paths or links
    of the tree that lead out of it, but for those of older versions; `signature` is `good`, `bad`, `none` or `unknown`
    (nobody to trust)."""

    version: str
    manifest: str = ""
    before: str = ""
    found: tuple[Part, ...] = ()
    listed: tuple[Part, ...] = ()
    scripts: dict[str, str] = {}
    unchanged: bool = False
    incoming: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    signature: str = "none"
    versions: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    packages_added: tuple[str, ...] = ()
    packages_removed: tuple[str, ...] = ()
    packages_changed: tuple[str, ...] = ()
    """Against the version that was published before: `name=version`, and `name old → new`."""
    problem: str = ""
    entries: tuple[str, ...] = ()
    """Groups whose ROOT/boot/GROUP.ipxe leads to the pointer of this image."""
    in_use: tuple[str, ...] = ()
    """Versions that nodes reported to run: they stay, however many there are."""
    lost: tuple[str, ...] = ()
    """Machines that the version has a script for, and that are not led to it (of whole ones neither script nor digest is told)."""
    origin: str = ""
    """Where the recipe of the version came from when it was published."""


class Wanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The groups whose scripts must be there, whether the manifest must be signed, and how many versions stay at most."""

    groups: tuple[str, ...]
    signed: bool = False
    keep: int = 3
