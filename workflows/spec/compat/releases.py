"""Rules about the planned releases themselves: P07, P13, P14, P15."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workflows.spec.accelerators import numbers
from workflows.spec.compat.rule_table import Platform, RuleFinding, rule
from workflows.spec.fields import is_floating
from workflows.spec.gpu_pools import uses_dra
from workflows.spec.image_references import floating_images, is_floating_image

_SHORT_COMMIT = re.compile(r"(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,39}\Z")
_SUPPORTED_LEAST = (26, 3)
_RDMA_REGRESSION = ((26, 3, 0), (26, 3, 2))
"""First and last GPU Operator release that injects every RDMA device into GPU pods (NVIDIA/gpu-operator#2525)."""


@rule(
    "P07",
    "error",
    source="https://github.com/Mellanox/network-operator-docs/blob/main/docs/getting-started-kubernetes.rst",
    later=("gpu_operator/control", "network_operator/control"),
)
def exactly_one(platform: Platform) -> Iterator[RuleFinding]:
    """A cluster has exactly one Node Feature Discovery, at most one Multus, and one GPU device plugin unless DRA replaces it."""
    if "gpu_operator" not in platform.releases:
        return
    finders = _providers(platform, "nfd")
    if len(finders) != 1:
        problem = f"{', '.join(finders) or 'nobody'} would install node feature discovery; there must be one"
        yield RuleFinding("overrides", problem, "keep gpu_operator nfd.enabled: true and network_operator nfd.enabled: false")
    plugins = _providers(platform, "device_plugin")
    if len(plugins) > 1:
        problem = f"{', '.join(plugins)} would advertise the same GPUs twice"
        yield RuleFinding("overrides", problem, "keep one device plugin")
    elif not plugins and not uses_dra(platform.spec):
        yield RuleFinding("overrides", "nobody would advertise the GPUs", "keep gpu_operator devicePlugin.enabled: true")
    yield from _one_multus(platform)


def _providers(platform: Platform, capability: str) -> list[str]:
    return [release.id for release in platform.releases.values() if capability in release.provides]


def _one_multus(platform: Platform) -> Iterator[RuleFinding]:
    fabric, bundled = platform.spec.fabric, "multus" in platform.spec.rke2.cni
    if fabric.kind == "none" or fabric.multus is None:
        return
    if fabric.multus == "operator" and bundled:
        yield RuleFinding(
            "fabric.multus", "RKE2's cni list and the Network Operator would both install Multus", "leave fabric.multus out"
        )
    if fabric.multus == "rke2" and not bundled:
        yield RuleFinding("fabric.multus", "RKE2 does not install Multus: its cni list has none", "write cni: [multus, canal]")


@rule("P13", "error", source="https://argo-cd.readthedocs.io/en/stable/user-guide/best_practices/")
def no_floating_versions(platform: Platform) -> Iterator[RuleFinding]:
    """Every version, image tag and Git revision is fixed, and never means different things at different times."""
    argo_cd = platform.spec.delivery.argo_cd
    if argo_cd is not None and is_floating(argo_cd.revision):
        problem = f"revision {argo_cd.revision} means different things at different times"
        yield RuleFinding("delivery.argo_cd.revision", problem, "write a tag or a commit")
    elif argo_cd is not None:
        yield from _moving_revision(argo_cd.revision, argo_cd.branch)
    for release in platform.releases.values():
        if is_floating(release.version):
            yield RuleFinding(f"overrides.{release.id}.version", f"version {release.version} floats", "write one exact version")
    for name, override in platform.spec.overrides.items():
        for path, value in floating_images(override.values, f"overrides.{name}.values"):
            yield RuleFinding(path, f"image tag {value} floats", "write one exact tag, or a digest")
    for path, image in (("validation.image", platform.spec.validation.image), ("check_image", platform.spec.check_image)):
        if is_floating_image(image):
            yield RuleFinding(path, f"image {image} has no fixed tag", "write the image with its tag or digest")


def _moving_revision(revision: str, branch: str) -> Iterator[RuleFinding]:
    path = "delivery.argo_cd.revision"
    if revision == branch or revision.startswith("refs/"):
        yield RuleFinding(path, f"revision {revision} is a branch, which moves with every commit", "write a tag or a commit")
    elif _SHORT_COMMIT.match(revision):
        yield RuleFinding(path, f"{revision} looks like a shortened commit, which may come to mean several", "write all 40 digits")


@rule("P14", "error", source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/life-cycle-policy.html")
def operator_line(platform: Platform) -> Iterator[RuleFinding]:
    """The GPU Operator release is supported, and an upgrade skips no major release (`plan --against` checks the latter)."""
    operator = platform.releases.get("gpu_operator")
    if operator is None:
        return
    version, path = numbers(operator.version), "overrides.gpu_operator.version"
    if version < _SUPPORTED_LEAST:
        yield RuleFinding(path, f"GPU Operator {operator.version} is past its end of support", "use v26.3.3", "warning")
    if "network_operator" in platform.releases and _RDMA_REGRESSION[0] <= version <= _RDMA_REGRESSION[1]:
        problem = f"GPU Operator {operator.version} injects every RDMA device into GPU pods"
        yield RuleFinding(path, problem, "use v26.3.3")


@rule("P15", "warning", source="https://docs.rke2.io/install/airgap")
def pinned_by_digest(platform: Platform) -> Iterator[RuleFinding]:
    """Every chart has a digest. A site without internet needs all of them, and a mirror for every image."""
    for release in platform.releases.values():
        if release.other_digests:
            problem = f"chart {release.id} {release.version} has two digests: {', '.join((release.digest, *release.other_digests))}"
            yield RuleFinding(
                f"overrides.{release.id}.digest", problem, "find out which chart the repository holds, and keep one", "error"
            )
    charts = [release for release in platform.releases.values() if not release.from_manifest and not release.digest]
    if platform.spec.airgap is None:
        if charts:
            named = ", ".join(release.id for release in charts)
            yield RuleFinding("overrides", f"pinned by version alone, without a digest: {named}", "write digest: sha256:… for each")
        return
    if platform.spec.rke2.registry_mirror is None:
        problem = "the nodes would pull from registries they cannot reach"
        yield RuleFinding("rke2.registry_mirror", problem, f"write {platform.spec.airgap.registry}", "error")
    for release in charts:
        problem = f"chart {release.id} {release.version} has no digest"
        yield RuleFinding(f"airgap.digests.{release.id}", problem, "write sha256:…", "error")
    for release in platform.releases.values():
        if release.from_manifest:
            problem = f"{release.id} is a manifest on the internet, which this site cannot reach"
            yield RuleFinding("stages", problem, f"put it on the servers and leave {release.id} out, or mirror it")
