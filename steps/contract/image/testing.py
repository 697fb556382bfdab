"""Tests of a node image as data, and what they came to: the same test runs in the sandbox and on the booted node."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

SANDBOX_SECONDS: Final = 1.0
"""What a test in a sandbox is to take at most. Longer ones are told and no failure: a test's own `seconds` end what hangs, on a
busy machine and on an emulated node too."""


class Where(StrEnum):
    """Where a test runs."""

    SANDBOX = "sandbox"
    BOOT = "boot"
    BOTH = "both"


class ImageTest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test: a shell script (`/bin/sh -e`) that must end with 0, or a `check` that the builder brings (see `Check`).

    `incident` says in one sentence what went wrong once where this was not tested. `next_step` is what to do when it fails.
    `seconds` bounds it. A script runs as root in the image's own root, read-only, with an empty /tmp, without network (sandbox).
    """

    name: str
    incident: str
    run: str = ""
    check: str = ""
    arguments: tuple[str, ...] = ()
    where: Where = Where.SANDBOX
    seconds: float = SANDBOX_SECONDS
    next_step: str = ""


class Check(StrEnum):
    """Checks that read the root instead of running something in it; `arguments` are theirs."""

    SERVICES_ENABLED = "services_enabled"
    """Units, each enabled."""
    PATHS_PRESENT = "paths_present"
    PATHS_ABSENT = "paths_absent"
    """Paths; `*` as in a shell."""
    PACKAGES_PRESENT = "packages_present"
    """Package names, installed completely."""
    PACKAGES_ABSENT = "packages_absent"
    LINKS_RESOLVE = "links_resolve"
    """No dangling symlink below the folders; arguments after `!` are tolerated ones."""
    NOT_WORLD_WRITABLE = "not_world_writable"
    """No world-writable file or folder without sticky bit below the folders."""
    NO_HOST_IDENTITY = "no_host_identity"
    """No SSH host key, no machine-id, no random seed, no lease left behind."""
    SIZE_BUDGET = "size_budget"
    """MiB of the root at most."""
    MODULES_PRESENT = "modules_present"
    """Kernel modules that the image's kernel has."""
    SETUID = "setuid"
    """Exactly these files may be setuid or setgid."""


class Outcome(StrEnum):
    """How a test ended. `timeout`: not within its seconds; `error`: it could not be run at all."""

    PASS = "pass"
    FAIL = "fail"
    TIMEOUT = "timeout"
    ERROR = "error"


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one test came to; `output` is the end of what it said, in one line of at most 400 characters."""

    name: str
    outcome: Outcome
    seconds: float = 0.0
    output: str = ""
