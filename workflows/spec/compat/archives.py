"""The rule about images that come to machines by archives: P23."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.spec.access import Rke2
from workflows.spec.compat.kubernetes import TRAEFIK_SINCE
from workflows.spec.compat.registry import Finding, Platform, rule

_LEGACY, _ALL = ("core", "canal"), "all is the archive of core and canal"
_RELEASES = "docker.io"
"""The registry of RKE2's own images."""
_PUBLIC = ("docker.io", "ghcr.io", "quay.io", "registry.k8s.io", "gcr.io", "nvcr.io", "public.ecr.aws")
"""Registries of the internet; one that is named otherwise is the site's own."""


@rule("P23", "warning", source="rancher/rke2 scripts/build-images")
def archives_hold_what_starts(platform: Platform) -> Iterator[Finding]:
    """Archives that bring images to machines without a registry are those of all that starts there: none holds every image, and no
    release has those of checks and of kube-vip. What is in the folder rke2.artifacts no spec knows."""
    rke2 = platform.spec.rke2
    if not rke2.images and not rke2.artifacts:
        return
    yield from _of_release(platform)
    own = [name for name in rke2.images if "." in name]  # a file name: a release's archives are named without their endings
    if own and not rke2.artifacts:
        problem = f"{own[0]} is an archive of your own, which no release has, and nothing says where machines have it"
        yield Finding("rke2.images", problem, "write artifacts: /FOLDER, with it and the release's files, on each machine", "error")
    if not own:
        yield from _of_no_release(platform)


def _of_release(platform: Platform) -> Iterator[Finding]:
    rke2 = platform.spec.rke2
    if rke2.artifacts or _is_mirrored(rke2, _RELEASES):
        return
    held = set(rke2.images) | (set(_LEGACY) if "all" in rke2.images else set())
    needed = ["core", *rke2.cni, *_ingress_archive(platform)]
    if missing := [name for name in needed if name not in held]:
        problem = f"no archive of images has those of {', '.join(missing)}: machines load them from a registry at their first start"
        fix = f"add {', '.join(missing)} to images, or give them a mirror (registry_mirror)"
        yield Finding("rke2.images", f"{problem} ({_ALL})" if "all" in rke2.images else problem, fix)


def _ingress_archive(platform: Platform) -> list[str]:
    """The ingress controller where it has an archive of its own: not the release's own choice, whose images are in core."""
    wanted = platform.spec.rke2.ingress_controller
    in_core = "traefik" if platform.kubernetes >= TRAEFIK_SINCE else "ingress-nginx"
    return [] if wanted in (None, "none", in_core) else [wanted]


def _of_no_release(platform: Platform) -> Iterator[Finding]:
    """Where the spec names an archive of the site's own, the play sees that it is there."""
    rke2 = platform.spec.rke2
    images = {"check_image": platform.spec.check_image}
    if rke2.virtual_address is not None:
        images["rke2.virtual_address.image"] = rke2.virtual_address.image
    for path, image in images.items():
        registry = _registry(image)
        if registry in _PUBLIC and not _is_mirrored(rke2, registry):
            problem = f"{image} is in no archive of a release: machines load it from {registry}"
            fix = (
                f"have an archive with it in {rke2.artifacts or 'a folder of each machine (rke2.artifacts)'}, its sha256 in "
                "sha256sum-site-amd64.txt there (-arm64), and its file name in rke2.images; or a mirror (rke2.registry_mirror)"
            )
            yield Finding(path, problem, fix)


def _registry(image: str) -> str:
    """The registry of an image's name."""
    first, slash, _ = image.partition("/")
    return first if slash and (set(".:") & set(first) or first == "localhost") else "docker.io"


def _is_mirrored(rke2: Rke2, registry: str) -> bool:
    entries = (rke2.registries.get(name) for name in (registry, "*"))
    return bool(rke2.registry_mirror) or any(entry is not None and entry.endpoints for entry in entries)
