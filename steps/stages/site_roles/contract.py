"""Types for a site's own Ansible roles: the archive that travels with a plan, observations of hosts, and expectations."""

import base64
import gzip
import hashlib
import zlib

from msgspec import Struct

from steps.contract.host_play import Played, RoleArchive

PLAYBOOK = "site_role"
LARGEST_BYTES = 8 << 20
"""Most bytes of an unpacked archive; a larger one is rejected."""


class Ran(Struct, frozen=True, kw_only=True):
    """Name and digest of the site's Ansible role that ran to its end on a host, as the host reports it."""

    role: str
    digest: str


class RoleHost(Played, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of one host after the play of a site's role: how the play ended, and the role that ran to its end, if one did."""

    ran: Ran | None = None


class RoleObservation(Struct, frozen=True, kw_only=True):
    """Observation of a site role's gate: one entry for each host of the play."""

    nodes: tuple[RoleHost, ...]


class RoleExpectation(Struct, frozen=True, kw_only=True):
    """Expectation of a site role's gate: the hosts, and the role that each of them must have run to its end."""

    nodes: tuple[str, ...]
    role: str
    digest: str


class BadArchive(ValueError):
    """Raised for a file that is not the role archive which its task names."""


def file_name(role: str) -> str:
    """Return the name of the file in the tasks folder that holds a role's archive."""
    return f"role_{role}.tar.gz.b64"


def gate(role: str) -> str:
    """Return the id of a role's gate in plans and records, `site_roles/ROLE`."""
    return f"site_roles/{role}"


def digest(tar: bytes) -> str:
    """Return `sha256:…` over a role's tar archive."""
    return f"sha256:{hashlib.sha256(tar).hexdigest()}"


def encode(tar: bytes) -> bytes:
    """Return a tar archive as base64 of gzip, because a ConfigMap holds text."""
    return base64.encodebytes(gzip.compress(tar, mtime=0))


def decode(text: bytes, archive: RoleArchive) -> bytes:
    """Return the tar archive from its base64 text. Raise BadArchive if it cannot be unpacked or its digest is not the task's."""
    try:
        # wbits 31 is gzip; the bound below stops a decompression bomb
        reader = zlib.decompressobj(wbits=31)
        tar = reader.decompress(base64.b64decode(text), LARGEST_BYTES)
    except (ValueError, zlib.error) as error:
        raise BadArchive(f"role {archive.name}: {archive.file} cannot be unpacked: {error}") from error
    if digest(tar) != archive.digest:
        raise BadArchive(f"role {archive.name}: {archive.file} is not the archive that the plan names")
    return tar
