"""Tests of node images as data, and their results. A test may run in the sandbox, on the booted node, or on both."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

SANDBOX_SECONDS: Final = 1.0
"""Seconds that a test in the sandbox should take. A test that takes longer passes and is reported: a busy machine is slower."""


class Where(StrEnum):
    """Place where a test of an image runs: in the sandbox, on the booted node, or both."""

    SANDBOX = "sandbox"
    BOOT = "boot"
    BOTH = "both"


class ImageTest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test of an image: a shell script (`/bin/sh -e`) that must end with 0, or a built-in `check` (see `BuiltinCheck`).

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
    """Names of the built-in checks, which read the root file system and run nothing in it; a test's `arguments` go to its check."""

    SERVICES_ENABLED = "services_enabled"
    """Each of the systemd units in the arguments is enabled."""
    PATHS_PRESENT = "paths_present"
    PATHS_ABSENT = "paths_absent"
    """None of the paths in the arguments exists; `*` works as in a shell."""
    PACKAGES_PRESENT = "packages_present"
    """Each of the packages in the arguments is installed completely."""
    PACKAGES_ABSENT = "packages_absent"
    LINKS_RESOLVE = "links_resolve"
    """No symbolic link below the folders in the arguments is dangling; arguments after `!` are tolerated links."""
    NOT_WORLD_WRITABLE = "not_world_writable"
    """Below the folders in the arguments no file is world-writable, and no folder is without the sticky bit."""
    NO_HOST_IDENTITY = "no_host_identity"
    """No SSH host key, machine-id, random seed or DHCP lease is left behind."""
    SIZE_BUDGET = "size_budget"
    """The root file system has at most as many MiB as the argument says."""
    MODULES_PRESENT = "modules_present"
    """The kernel of the image has the modules in the arguments."""
    SETUID = "setuid"
    """Exactly the files in the arguments are setuid or setgid."""


class ImageTestOutcome(StrEnum):
    """Outcome of a test. `timeout`: it did not end within its time limit; `error`: it could not be run at all."""

    PASS = "pass"
    FAIL = "fail"
    TIMEOUT = "timeout"
    ERROR = "error"


class ImageTestResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one test of an image; `output` is the end of its output, in one line of at most 400 characters."""

    name: str
    outcome: ImageTestOutcome
    seconds: float = 0.0
    output: str = ""


class ExpectedTest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Test that a gate expects to have passed, with the incident behind it and the next step if it did not."""

    name: str
    incident: str = ""
    next_step: str = ""
