"""What a Cilium that is gone has left in the kernel: its BPF programs, which their pins in the BPF file system tell."""

from __future__ import annotations

import glob

PINS = ("/sys/fs/bpf/cilium/*", "/sys/fs/bpf/tc/globals/cilium_*", "/run/cilium/bpffs/*/*")
"""Where Cilium pins programs, and maps that these share: 1.14 and newer, all, and where the first place is no BPF file system."""


def is_in_kernel(root: str = "") -> bool:
    """Whether pins of Cilium are there. To remove them is not enough: programs that older kernels attach without a link stay, and
    lead what pods send to Services of a cluster that is no more (cilium/cilium#17292). A boot ends all of them."""
    return any(glob.glob(root + pattern) for pattern in PINS)
