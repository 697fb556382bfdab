"""Facts about GPU products, drivers and RKE2 releases that rules and gates need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Product:
    """A GPU product with the facts that rules and gates need.

    `label` is the label `nvidia.com/gpu.product` of whole GPUs; `mig` maps each MIG profile to its instances per GPU (source:
    assets/state-mig-manager/0400_configmap.yaml of NVIDIA/gpu-operator). Bandwidth floors are in `catalog/floors.yaml`.
    """

    name: str
    label: str
    nvswitch: bool
    mig: Mapping[str, int] = field(default_factory=dict)
    least_driver: tuple[int, ...] = (535,)
    link_gb_s: float = 900.0
    """NVLink (else PCIe) bandwidth of one GPU in GB/s, both directions together: no bus bandwidth is above it.

    Source: data sheets at https://www.nvidia.com/en-us/data-center/nvlink/
    """
    pcie_generation: int = 5
    """Generation of the GPU's PCIe link of 16 lanes; 0 if its CPU is reached by NVLink-C2C instead.

    Source: data sheets at https://www.nvidia.com/en-us/data-center/products/
    """
    nvlinks: int = 18
    """NVLinks of one GPU; 0 without, and where bridges are optional (https://www.nvidia.com/en-us/data-center/nvlink/)."""
    half_tflops: float = 989.5
    """Peak of the tensor cores at half precision without sparsity in TFLOPS: no GEMM is faster.

    Source: data sheets at https://www.nvidia.com/en-us/data-center/products/
    """
    joins_nodes: bool = False
    """NVLink can join the GPUs of several nodes (NVL72 racks), so that the fabric's ports do not limit what nodes exchange.

    Source: https://www.nvidia.com/en-us/data-center/gb200-nvl72/
    """


def _mig(smallest: str, *others: str) -> dict[str, int]:
    counts = {"1": 4, "2": 3, "3": 2, "4": 1, "7": 1}
    return {smallest: 7, **{profile: counts[profile[0]] for profile in others}}


HOST_GB_S = {0: 450.0, 3: 16.0, 4: 32.0, 5: 64.0, 6: 128.0}
"""PCIe generation of 16 lanes → GB/s in one direction; 0 stands for NVLink-C2C.

Sources: https://pcisig.com/specifications and https://www.nvidia.com/en-us/data-center/nvlink-c2c/
"""

PRODUCTS: Mapping[str, Product] = {
    product.name: product
    for product in (
        Product(
            "A100-40GB",
            "NVIDIA-A100-SXM4-40GB",
            True,
            _mig("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
            link_gb_s=600.0,
            pcie_generation=4,
            nvlinks=12,
            half_tflops=312.0,
        ),
        Product(
            "A100-80GB",
            "NVIDIA-A100-SXM4-80GB",
            True,
            _mig("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
            link_gb_s=600.0,
            pcie_generation=4,
            nvlinks=12,
            half_tflops=312.0,
        ),
        Product(
            "H100",
            "NVIDIA-H100-80GB-HBM3",
            True,
            _mig("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
        ),
        Product(
            "H100-NVL",
            "NVIDIA-H100-NVL",
            False,
            _mig("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "7g.94gb"),
            link_gb_s=600.0,
            nvlinks=0,
            half_tflops=835.0,
        ),
        Product("H200", "NVIDIA-H200", True, _mig("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")),
        Product(
            "B200",
            "NVIDIA-B200",
            True,
            _mig("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
            least_driver=(570, 133, 20),
            link_gb_s=1800.0,
            half_tflops=2250.0,
        ),
        Product(
            "GB200",
            "NVIDIA-GB200",
            True,
            _mig("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "7g.186gb"),
            least_driver=(570, 133, 20),
            link_gb_s=1800.0,
            pcie_generation=0,
            half_tflops=2500.0,
            joins_nodes=True,
        ),
        Product(
            "B300",
            "NVIDIA-B300-SXM6-AC",
            True,
            _mig("1g.34gb", "1g.67gb", "2g.67gb", "3g.135gb", "7g.269gb"),
            least_driver=(580,),
            link_gb_s=1800.0,
            pcie_generation=6,
            half_tflops=2500.0,
        ),
        Product("L40S", "NVIDIA-L40S", False, link_gb_s=64.0, pcie_generation=4, nvlinks=0, half_tflops=362.0),
    )
}
"""Accelerators by their names in a spec. The labels of H100-NVL, B200, GB200 and B300 are not verified; a spec can override them.
"""

DRIVER_BRANCHES = (535, 580, 595, 610)
"""Driver branches that GPU Operator 26.x carries.

Source: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/platform-support.html
"""

_RKE2 = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-(alpha|beta|rc)(\d+))?\+rke2r(\d+)\Z")

NEWEST_PATCH = {33: 13, 34: 10, 35: 7, 36: 3}
"""Kubernetes minor → newest patch release that this version of bringup knows an RKE2 release of.

Source: release notes at https://docs.rke2.io/release-notes/v1.35.X
"""

CONTAINERD_2_1 = {33: (1, 33, 5), 34: (1, 34, 1)}
"""First patch release of a Kubernetes minor that ships containerd 2.1; every RKE2 release from 1.35 on does.

Source: release notes at https://docs.rke2.io/release-notes/v1.34.X
"""


def kubernetes(version: str) -> tuple[int, int, int]:
    """Return the Kubernetes version in an RKE2 version: `v1.35.7+rke2r1` → (1, 35, 7); (0, 0, 0) if it cannot be read."""
    match = _RKE2.match(version)
    return (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)


def is_prerelease(version: str) -> bool:
    """Return True for an alpha, beta or release candidate of RKE2."""
    match = _RKE2.match(version)
    return bool(match and match[4])


def has_containerd_2_1(version: str) -> bool:
    """Return True if an RKE2 release ships containerd 2.1 or later, which NRI needs."""
    release = kubernetes(version)
    return release >= CONTAINERD_2_1.get(release[1], (1, 35, 0))


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version for comparison: `v26.3.3` → (26, 3, 3), `595.91.07` → (595, 91, 7); () for none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()
