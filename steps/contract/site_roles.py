"""Roles of a site before and after stages: the archive that travels with a plan, what hosts show of a role, what is expected."""

import base64
import gzip
import hashlib
import zlib

from msgspec import Struct

from steps.contract.play import Played, RoleArchive

PLAYBOOK = "site_role"
LARGEST_BYTES = 8 << 20
"""Of an unpacked archive, beyond which it is none of ours."""


class Ran(Struct, frozen=True, kw_only=True):
    """The `observation` with which a host says that it came to the end of a role: name and digest of what ran."""

    role: str
    digest: str


class HostObservation(Played, frozen=True, kw_only=True, omit_defaults=True):
    """One host after the play."""

    ran: Ran | None = None


class Observation(Struct, frozen=True, kw_only=True):
    """All hosts of the play."""

    nodes: tuple[HostObservation, ...]


class Expectation(Struct, frozen=True, kw_only=True):
    """Which role each of these hosts must have come to the end of."""

    nodes: tuple[str, ...]
    role: str
    digest: str


class BadArchive(ValueError):
    """A file that is not the archive that its task names."""


def file_name(role: str) -> str:
    """The file of the tasks folder that holds a role."""
    return f"role_{role}.tar.gz.b64"


def gate(role: str) -> str:
    """What the gate of a role is called in plans and records."""
    return f"site_roles/{role}"


def digest(tar: bytes) -> str:
    """Digest of a role's content."""
    return f"sha256:{hashlib.sha256(tar).hexdigest()}"


def encode(tar: bytes) -> bytes:
    """An archive as text, which a ConfigMap takes."""
    return base64.encodebytes(gzip.compress(tar, mtime=0))


def decode(text: bytes, archive: RoleArchive) -> bytes:
    """The tar file. Raises BadArchive where it is not the one that the task names."""
    try:
        reader = zlib.decompressobj(wbits=31)
        tar = reader.decompress(base64.b64decode(text), LARGEST_BYTES)
    except (ValueError, zlib.error) as error:
        raise BadArchive(f"role {archive.name}: {archive.file} cannot be unpacked: {error}") from error
    if digest(tar) != archive.digest:
        raise BadArchive(f"role {archive.name}: {archive.file} is not the archive that the plan names")
    return tar
