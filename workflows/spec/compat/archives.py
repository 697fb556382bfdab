"""Rule P23 about image archives, which bring images to machines without a registry."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.spec.compat.kubernetes import TRAEFIK_SINCE
from workflows.spec.compat.rule_table import Platform, RuleFinding, rule
from workflows.spec.sections.infrastructure import Rke2Settings

_LEGACY, _ALL = ("core", "canal"), "all is the archive of core and canal"
_RELEASES = "docker.io"
"""Registry that RKE2's own images name."""
_PUBLIC = ("docker.io", "ghcr.io", "quay.io", "registry.k8s.io", "gcr.io", "nvcr.io", "public.ecr.aws")
"""Registries on the internet. Any other registry is taken for one of the site."""


@rule("P23", "warning", source="https://github.com/rancher/rke2/blob/master/scripts/build-images")
def archives_hold_what_starts(platform: Platform) -> Iterator[RuleFinding]:
    """Image archives for machines without a registry hold every image that starts there."""
    # No archive of an RKE2 release holds all images, and none holds those of bringup's checks or of kube-vip. What the folder
    # rke2.artifacts contains is not known from a spec.
    rke2 = platform.spec.rke2
    if not rke2.images and not rke2.artifacts:
        return
    yield from _of_release(platform)
    own = [name for name in rke2.images if "." in name]  # a file name; archives of a release are named without their endings
    if own and not rke2.artifacts:
        problem = f"{own[0]} is an archive of your own, and the spec does not say where machines have it"
        yield RuleFinding(
            "rke2.images", problem, "write artifacts: /FOLDER, with it and the release's files, on each machine", "error"
        )
    if not own:
        yield from _of_no_release(platform)


def _of_release(platform: Platform) -> Iterator[RuleFinding]:
    rke2 = platform.spec.rke2
    if rke2.artifacts or _is_mirrored(rke2, _RELEASES):
        return
    archives = set(rke2.images) | (set(_LEGACY) if "all" in rke2.images else set())
    needed = ["core", *rke2.cni, *_ingress_archive(platform)]
    if missing := [name for name in needed if name not in archives]:
        problem = (
            f"no image archive holds the images of {', '.join(missing)}: machines load them from a registry at their first start"
        )
        fix = f"add {', '.join(missing)} to images, or give them a mirror (registry_mirror)"
        yield RuleFinding("rke2.images", f"{problem} ({_ALL})" if "all" in rke2.images else problem, fix)


def _ingress_archive(platform: Platform) -> list[str]:
    """Return the ingress controller in a list if it has its own archive; empty for the default one, whose images are in core."""
    controller = platform.spec.rke2.ingress_controller
    in_core = "traefik" if platform.kubernetes >= TRAEFIK_SINCE else "ingress-nginx"
    return [] if controller in (None, "none", in_core) else [controller]


def _of_no_release(platform: Platform) -> Iterator[RuleFinding]:
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
            yield RuleFinding(path, problem, fix)


def _registry(image: str) -> str:
    """Return the registry of an image name; docker.io if the name has none."""
    first, slash, _ = image.partition("/")
    return first if slash and (set(".:") & set(first) or first == "localhost") else "docker.io"


def _is_mirrored(rke2: Rke2Settings, registry: str) -> bool:
    entries = (rke2.registries.get(name) for name in (registry, "*"))
    return bool(rke2.registry_mirror) or any(entry is not None and entry.endpoints for entry in entries)
