"""Rules about the machines' operating system: P18."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.spec.compat.registry import Finding, Platform, rule

ENFORCING = ("rhel", "rocky", "almalinux")
"""Distributions that are installed with SELinux enforcing."""


@rule("P18", "warning", later=("os_prep/nodes",), source="docs.rke2.io/security/selinux")
def selinux_is_said(platform: Platform) -> Iterator[Finding]:
    """Where a distribution comes with SELinux enforcing, the spec says its mode: RKE2's policy is brought for it."""
    os = platform.spec.os
    if os.distribution in ENFORCING and os.selinux is None:
        problem = f"{os.distribution} comes with SELinux enforcing, and without os.selinux nothing brings RKE2's policy for it"
        yield Finding("os.selinux", problem, "write os: {selinux: enforcing}, or permissive; where it is disabled, leave it out")
