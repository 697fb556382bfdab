"""Contents of a live factory that a rebuild loses: objects and images that its spec does not bring, and bytes in volumes."""

import fnmatch
import os
from dataclasses import dataclass
from pathlib import Path

from steps.clients.kube.client import Kube
from steps.contract import plain_text
from steps.errors import StepError
from workflows.app.factories import factory_pipeline, project_volumes, registry_listing, registry_push, unplanned_objects
from workflows.app.factories.project_volumes import ProjectVolume
from workflows.app.factories.registry_listing import NotListed
from workflows.app.factories.registry_push import NotPushed, RegistryEndpoint
from workflows.app.factories.unplanned_objects import UnplannedObject
from workflows.engines.run_secrets import SecretMissing
from workflows.spec import FactorySpec

_MESSAGE = 300
MOST_NAMED = 50
"""Most objects, and most images, that are named; the others are counted."""


@dataclass(frozen=True, kw_only=True)
class UnplannedContents:
    """Objects, images and bytes in volumes that only the live factory has, and sentences about what could not be compared."""

    objects: tuple[UnplannedObject, ...] = ()
    volumes: tuple[ProjectVolume, ...] = ()
    images: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return what a rebuild loses, a line each."""
        lines = [item.sentence for item in self.objects[:MOST_NAMED]]
        lines += [volume.sentence for volume in self.volumes[:MOST_NAMED]]
        lines += [
            f"only in the registry: {plain_text.line(image)} as it is now; it is not built again"
            for image in self.images[:MOST_NAMED]
        ]
        counts = ((len(self.objects), "more object"), (len(self.volumes), "more volume"), (len(self.images), "more image"))
        for number, what in counts:
            more = number - MOST_NAMED
            lines += [f"only in the factory: {plain_text.count(more, what)}"] if more > 0 else []
        return tuple(lines)


def read(path: Path, spec: FactorySpec, kubeconfig: Path | None, registry: RegistryEndpoint | None = None) -> UnplannedContents:
    """Compare a live factory with its spec, which lies at `path`; `kubeconfig` opens it. `registry` is its own by default.

    What does not answer is named as not compared: a broken factory may be the reason for its rebuild.
    """
    if kubeconfig is None or not kubeconfig.exists():
        return UnplannedContents(uncompared=("objects, volumes and images of the factory: no run of this machine has built it",))
    uncompared: list[str] = []
    objects: tuple[UnplannedObject, ...] = ()
    volumes: tuple[ProjectVolume, ...] = ()
    images: tuple[str, ...] = ()
    try:
        kube = Kube.from_file(kubeconfig, who="factory rebuild")
        comparison = unplanned_objects.compare(spec, factory_pipeline.plan_of(path, spec), kube)
        objects = tuple(item for item in comparison.objects if not _is_restored(spec, item.key))
        uncompared += comparison.uncompared
        claimed = project_volumes.read(spec, kube)
        volumes = tuple(project_volumes.lost(spec, claimed))
        uncompared += project_volumes.uncompared(spec, claimed)
    except StepError as error:
        uncompared.append(f"objects and volumes of the factory: {plain_text.line(str(error))[:_MESSAGE]}")
    try:
        target = registry or registry_push.endpoint(spec, path.parent, os.environ)
        listed = registry_listing.unplanned_images(target, spec.registry.images)
        images = tuple(image for image in listed if not _is_restored(spec, f"images/{image}"))
        archives = {f"{image.name}:{image.tag}": path.parent / image.archive for image in spec.registry.images}
        digests = {reference: registry_push.archive_digest(archive) for reference, archive in archives.items()}
        images += registry_listing.overwritten_images(target, digests)
    except (NotListed, NotPushed, SecretMissing) as error:
        uncompared.append(f"images of the registry: {plain_text.line(str(error))[:_MESSAGE]}")
    return UnplannedContents(objects=objects, volumes=volumes, images=images, uncompared=tuple(uncompared))


def _is_restored(spec: FactorySpec, key: str) -> bool:
    """Return True if the spec says that the site brings this object or image back by itself."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in spec.rebuild.restored)
