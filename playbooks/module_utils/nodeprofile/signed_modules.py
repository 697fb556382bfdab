"""Secure Boot, and whether the kernel loads only signed modules: drivers that are built on the machine are not signed."""

from __future__ import annotations

import re
from typing import Optional

from ansible.module_utils.nodeprofile.item import read_text

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""UEFI's variable: four bytes of attributes, then 1 if Secure Boot is on. A machine that booted by BIOS has no such file."""
EFI = "/sys/firmware/efi"
ENFORCED = "/sys/module/module/parameters/sig_enforce"
LOCKDOWN = "/sys/kernel/security/lockdown"
LOCKED_DOWN = ("integrity", "confidentiality")
"""Modes of lockdown in which the kernel loads no unsigned module (kernel_lockdown(7))."""


def secure_boot(root: str = "") -> Optional[bool]:
    """Return True if Secure Boot is on, False if it is off or the machine booted by BIOS, None if that cannot be read."""
    try:
        with open(root + SECURE_BOOT, "rb") as source:
            value = source.read(5)
    except OSError:
        return None if read_text(root + EFI + "/fw_platform_size") else False
    return value[4:] == b"\x01" if len(value) == 5 else None


def are_required(root: str = "") -> Optional[bool]:
    """Return True if the running kernel loads signed modules only; None if neither of its two files can be read."""
    try:
        enforced, lockdown = read_text(root + ENFORCED).strip(), read_text(root + LOCKDOWN)
    except OSError:
        return None
    mode = re.search(r"\[(\w+)\]", lockdown)
    if enforced == "Y" or (mode and mode.group(1) in LOCKED_DOWN):
        return True
    # without Secure Boot nothing turns either of them on by itself
    return False if enforced or mode or secure_boot(root) is False else None
