"""Types of stage image_publish: the published tree, read back, and the expectation of its gate."""

from typing import Final

from msgspec import Struct

from steps.contract.release_layout import ReleaseFile

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""


class Published(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate image_publish/tree: the published release folder, read back from where nodes read it.

    `version` is the version that the pointer names, `before` the one that it named before. `manifest` is the digest of that
    version's manifest, `found` are its files, `listed` those of its manifest. `scripts` maps each group to the version that all
    paths of its boot script name; empty if they name several or none. `unchanged`: this image was published already, and nothing
    was written. `incoming` are half copied files of an earlier attempt. `outside` are paths or links that lead out of the tree,
    except those of older versions. `signature` is `good`, `bad`, `none`, or `unknown` if no signer is trusted.
    """

    version: str
    manifest: str = ""
    before: str = ""
    found: tuple[ReleaseFile, ...] = ()
    listed: tuple[ReleaseFile, ...] = ()
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
    """Changes against the version published before; entries are `name=version`, or `name old → new` for changed packages."""
    problem: str = ""
    entries: tuple[str, ...] = ()
    """Groups whose entry script ROOT/boot/GROUP.ipxe leads to the pointer of this image."""
    in_use: tuple[str, ...] = ()
    """Versions that nodes report to run; they are kept, whatever their number."""
    lost: tuple[str, ...] = ()
    """Machines that have a boot script in this version, but that no entry script leads to it."""
    origin: str = ""
    """Origin of the version's recipe at the time it was published."""
    signed_until: str = ""
    """End of the certificate by which iPXE verifies the version's kernel and initrd; empty if iPXE verifies nothing."""
    provenance: str = ""
    """Digest of the manifest that the version's provenance is about; empty without provenance that can be read."""
    wrong_statements: tuple[str, ...] = ()
    """Sentences about statements (provenance, test results) that are missing, or about something else than this version."""

    @property
    def present(self) -> tuple[ReleaseFile, ...]:
        """Return the files of the version."""
        return self.found


class PublishedExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gate image_publish/tree: groups with boot scripts, signature if wanted, number of versions to keep."""

    groups: tuple[str, ...]
    signed: bool = False
    keep: int = 3
