"""Tests of a node image as data, and their results: the same test runs in the sandbox and on the booted node."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

SANDBOX_SECONDS: Final = 1.0
"""Seconds that a test in the sandbox should take. A longer one is reported but passes, because a busy machine is slower."""


class Where(StrEnum):
    """Place where a test runs."""

    SANDBOX = "sandbox"
    BOOT = "boot"
    BOTH = "both"


class ImageTest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test: a shell script (`/bin/sh -e`) that must end with 0, or a built-in `check` (see `Check`).

    `incident` says in one sentence what went wrong when this was not tested, `next_step` what to do if the test fails, and
    `seconds` is its time limit. A script runs as root in the read-only root of the image, with an empty /tmp and, in the sandbox,
    no network.
    """

    name: str
    incident: str
    run: str = ""
    check: str = ""
    arguments: tuple[str, ...] = ()
    where: Where = Where.SANDBOX
    seconds: float = SANDBOX_SECONDS
    next_step: str = ""


class BuiltinCheck(StrEnum):
    """Built-in checks, which read the root and run nothing in it; `arguments` of the test are theirs."""

    SERVICES_ENABLED = "services_enabled"
    """Each of these units is enabled."""
    PATHS_PRESENT = "paths_present"
    PATHS_ABSENT = "paths_absent"
    """None of these paths exists; `*` works as in a shell."""
    PACKAGES_PRESENT = "packages_present"
    """Each of these packages is installed completely."""
    PACKAGES_ABSENT = "packages_absent"
    LINKS_RESOLVE = "links_resolve"
    """No symbolic link below the folders is dangling; arguments after `!` are tolerated links."""
    NOT_WORLD_WRITABLE = "not_world_writable"
    """No file below the folders is world-writable, and no folder without sticky bit."""
    NO_HOST_IDENTITY = "no_host_identity"
    """No SSH host key, machine-id, random seed or DHCP lease is left behind."""
    SIZE_BUDGET = "size_budget"
    """The root has at most this many MiB."""
    MODULES_PRESENT = "modules_present"
    """The kernel of the image has these modules."""
    SETUID = "setuid"
    """Exactly these files are setuid or setgid."""


class ImageTestOutcome(StrEnum):
    """Outcome of a test. `timeout`: it did not end within its seconds; `error`: it could not be run at all."""

    PASS = "pass"
    FAIL = "fail"
    TIMEOUT = "timeout"
    ERROR = "error"


class ImageTestResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one test; `output` is the end of its output, in one line of at most 400 characters."""

    name: str
    outcome: ImageTestOutcome
    seconds: float = 0.0
    output: str = ""


class ExpectedTest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Test that must have passed, with the incident behind it and the next step if it did not."""

    name: str
    incident: str = ""
    next_step: str = ""
