"""Finds in a driver container's log why it ended: headers, package repositories, modules in use, Secure Boot, the compiler; pure.

Wordings: https://github.com/NVIDIA/gpu-driver-container (ubuntu24.04/nvidia-driver, rhel9/nvidia-driver), the package managers that
it calls, and nvidia-installer.
"""

from steps.contract.plain_text import line
from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.stages.shared import reader_host
from steps.stages.shared.reader_errors import find, pattern, short

_RUNTIME, _SETTING, _PATH = FailureClass.RUNTIME, CauseRank.SETTING, CauseRank.PATH
_HEADERS = (
    "offer the headers of this kernel (uname -r on the node) in the package repository of the driver container "
    "(driver.repoConfig), boot a kernel whose headers it has, or use precompiled drivers"
)
_REPOSITORIES = "give the driver container a way to its package repositories: proxy, mirror (driver.repoConfig) or entitlement"
_SIGNED = "enroll the key that signs the modules, use signed precompiled drivers, or switch Secure Boot off"

_PATTERNS = (
    *(
        pattern(
            needle,
            r"(?P<what>[^\n]*)",
            _RUNTIME,
            "headers of the running kernel cannot be had: {what}",
            _SETTING,
            next_step=_HEADERS,
        )
        for needle in (
            "Could not resolve Linux kernel version",
            "Could not locate Linux kernel version string",
            "Unable to locate package linux-headers-",
            "Couldn't find any package by glob 'linux-headers-",
            "No match for argument: kernel-",
            "Unable to find a match: kernel-",
            "No provider of 'kernel-default-devel",
            "Unable to find the kernel source tree",
            "Unable to resolve RHEL version from kernel version",
        )
    ),
    *(
        pattern(
            needle,
            r"(?P<what>[^\n]*)",
            _RUNTIME,
            "package repositories are not reached: {what}",
            _PATH,
            next_step=_REPOSITORIES,
        )
        for needle in (
            "Failed to update package cache",
            "failed to reach RHEL package repositories",
            "failed to update the dnf metadata cache",
            "RHEL entitlement may be improperly deployed",
            "Temporary failure resolving",
            "Could not connect to",
        )
    ),
    *(
        pattern(
            needle,
            r"(?P<what>[^\n]*)",
            _RUNTIME,
            "the kernel refuses the module's signature: {what}",
            _SETTING,
            next_step=_SIGNED,
        )
        for needle in ("Key was rejected by service", "Required key not available")
    ),
    pattern(
        "nouveau",
        r"(?P<what>[^\n]*(?:Nouveau kernel driver is currently in use|nouveau[^\n]*in use)[^\n]*)",
        _RUNTIME,
        "nouveau holds the GPUs: {what}",
        _SETTING,
        next_step="see stage os_prep: nouveau on its deny list, a new initramfs, and a reboot",
    ),
    pattern(
        "driver is in use",
        r"(?P<what>[^\n]*)",
        _RUNTIME,
        "another driver is loaded and in use: {what}",
        _SETTING,
        next_step="end what uses the GPUs on the node (fuser -v /dev/nvidia*), or set accelerator.driver: host if it has its own",
    ),
    *(
        pattern(
            needle,
            r"(?P<what>[^\n]*)",
            _RUNTIME,
            "the kernel module cannot be built: {what}",
            CauseRank.OPERATION,
            next_step="compare the driver branch with the kernel: an older branch does not build for a newer kernel",
        )
        # the installer also names this step while it goes well
        for needle in ('performing the step: "Building kernel modules"', "unable to build the NVIDIA kernel module", "gcc: error")
    ),
    *reader_host.PATTERNS,
)


def cause(log: str) -> ToolError | None:
    """Return the first cause that the log of a driver container names; None if no rule knows any of its lines."""
    return next(iter(find(log, _PATTERNS)), None)


def last_words(log: str) -> str:
    """Return the cause that a log names, else its last line, as it stands; empty without a log."""
    known = cause(log)
    if known is not None:
        return known.cause
    lines = [text for text in log.splitlines() if text.strip()]
    return short(line(lines[-1])) if lines else ""
