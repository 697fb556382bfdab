"""Publication and rollback of a node image, and the observation of the release folder by which a publication's gate judges."""

from collections.abc import Mapping
from pathlib import Path

from steps.clients.releases import preflight, publication, release_rollback, release_signatures, usage
from steps.clients.releases.publication import PublishOutcome, PublishRequest, Say
from steps.clients.releases.release_kind import files_found
from steps.clients.releases.release_rollback import PointerSwitch
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract import attestation
from steps.contract.attestation import RunIdentity
from steps.nodeimage.contract import boot_tree, image_manifest
from steps.nodeimage.contract.boot_tree import PublishTarget, Tested
from steps.nodeimage.contract.image_tests import ImageTestResult
from steps.nodeimage.publishing import boot_signatures, external_links, image_kind, image_provenance, image_release, image_versions
from steps.nodeimage.publishing.image_release import ImageRelease
from steps.stages.image_publish.contract import Published

Results = Mapping[str, list[ImageTestResult]]


def stage(
    assembled: Path, target: PublishTarget, results: Results, run: RunIdentity, *, origin: str = "", secrets: Path = Path()
) -> ImageRelease:
    """Return the packed image in a folder, ready to be published to a target. Raises BadTask if the folder holds no image.

    If the target has a key for iPXE, it is in the folder `secrets`, and kernel and initrd get signatures.

    Its manifest gets `origin`, which is where the recipe came from, and the outcomes of `results`. Statements say which run made
    and tested it. None of these makes a new version.
    """
    until = boot_signatures.certificate_end(target, secrets)
    tested = Tested(origin=origin, results=dict(results), attested=True, signed_until=until)
    image = image_release.load(assembled, tested)
    statements = image_provenance.statements(image.manifest, image.data, tested, run)
    return image_release.stage_release(image, target, tested, {**statements, **boot_signatures.sign(assembled, target, secrets)})


def publish(request: PublishRequest, say: Say) -> Published:
    """Publish an image to its target, on this machine or by SSH, and return what is there afterwards. Raises a StepError."""
    with image_kind.connect(request.target, request.secrets) as transport:
        return publish_through(transport, request, say)


def publish_through(transport: TreeTransport, request: PublishRequest, say: Say) -> Published:
    """Publish an image through an open transport, and return what is there afterwards. Raises a StepError."""
    return _observed(request, publication.publish(transport, request, say))


def _observed(request: PublishRequest, done: PublishOutcome) -> Published:
    """Return the observation of a publication for its gate, from the release folder as it was read back."""
    tree, kind, version = done.tree, request.release.kind, done.tree.current
    added, removed, changed = image_versions.package_changes(tree, done.before, version)
    scripts, images = image_versions.scripts(tree, version), external_links.entry_images(tree)
    files, listed = files_found(tree, version), kind.files_of(tree, version)
    provenance = tree.contents.get(tree.version_path(version, attestation.PROVENANCE_FILE), b"")
    # Scripts of machines may be thousands: sound ones are left out of the evidence.
    machine_files = {f"{boot_tree.BOOT}/{name}{boot_tree.SCRIPT}" for name in scripts if boot_tree.is_machine(name)}
    sound = {file for file in set(files) & set(listed) if file.name in machine_files}
    led = {name: (named, images.get(name)) == (version, tree.product) for name, named in scripts.items()}
    tested = image_versions.published_test_results(tree, version)
    return Published(
        version=version,
        origin=tested.origin,
        signed_until=tested.signed_until,
        manifest=tree.manifest_digest(version),
        before=done.before,
        found=tuple(file for file in files if file not in sound),
        listed=tuple(file for file in listed if file not in sound),
        scripts={name: named for name, named in scripts.items() if not boot_tree.is_machine(name)},
        unchanged=done.unchanged,
        incoming=tree.unfinished,
        outside=tuple(link.sentence for link in preflight.external_links(kind, tree)),
        signature=release_signatures.state(kind, tree, version, request.target.signers),
        versions=tree.versions,
        removed=done.removed,
        packages_added=added,
        packages_removed=removed,
        packages_changed=changed,
        entries=tuple(name for name, image in images.items() if image == tree.product and not boot_tree.is_machine(name)),
        lost=tuple(name for name in scripts if boot_tree.is_machine(name) and not led[name]),
        in_use=usage.in_use(kind, tree),
        provenance=attestation.attested_digest(provenance, image_manifest.MANIFEST),
        wrong_statements=tuple(f"{problem.place} {problem.why}" for problem in image_provenance.problems(tree, version)),
    )


class ImageRollback(PointerSwitch, frozen=True, kw_only=True):
    """Outcome of a rollback; `elsewhere` is the address from which nodes fetch the version, if the folder has another one now."""

    elsewhere: str = ""


def roll_back(
    transport: TreeTransport, image: str, version: str, actor: str, signers: tuple[str, ...] = (), key: Path | None = None
) -> ImageRollback:
    """Make a version current, without one that which was current before, and return the outcome (see `release_rollback.roll_back`).

    Raises BadTask for a version that is not there. Raises Refused for one that is not whole, that nodes of a group could not boot,
    or, if it is not named, that nodes fetch from another address.
    """
    done = release_rollback.roll_back(image_kind.image_kind(), transport, image, version, actor, signers, key)
    address, here = external_links.version_url(done.tree, done.to), external_links.url_of(done.tree)
    elsewhere = address if address and here and address != here else ""
    return ImageRollback(
        to=done.to,
        before=done.before,
        by=done.by,
        signature=done.signature,
        elsewhere=elsewhere,
        statement=done.statement,
    )
