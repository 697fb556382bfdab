"""Clients of one file server in tests of publishing: a node that boots, and a publisher that waits for its turn."""

import traceback
from functools import partial
from pathlib import Path

from steps.contract.canonical import digest_bytes
from steps.errors import StepError, StoreBusy
from steps.nodeimage.publishing import external_links, image_publication
from steps.nodeimage.publishing.image_kind import local_tree
from tests.hosts.hostlab.waiting import until
from tests.unit.clients.published.published_trees import order, place

SECONDS = 60.0
MOST = 9
"""Versions at a time: none is removed while the slowest reader has it."""


def booted(root: Path) -> str:
    """The version that a node is led to, of which all is as it was published."""
    version = external_links.named_version((root / "compute/current/boot/gpu.ipxe").read_text(), "compute")
    folder = root / "compute/versions" / version
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ", 1)
        assert digest_bytes((folder / name).read_bytes()) == f"sha256:{digest}", f"{version}/{name}"
    return version


def publish_all(root: Path, sources: list[Path], log: Path, who: str) -> None:
    """Publish one after another, each as soon as nobody else publishes."""

    def say(what: str) -> None:
        """Told twice by who has the lock: as the copy begins, and when all is done but for the lock."""
        with log.open("a") as file:
            file.write(f"{who}\n")

    def done(source: Path) -> bool:
        try:
            image_publication.publish_through(local_tree(root), order(place(root, keep=MOST), source), say)
        except StoreBusy:
            return False
        except StepError:
            traceback.print_exc()  # whose process ends without a word
            raise
        return True

    for source in sources:
        assert until(partial(done, source), SECONDS)


def turns(log: str) -> list[tuple[str, str]]:
    """Return for each publication who began it and who reported its end."""
    said = log.split()
    return list(zip(said[::2], said[1::2], strict=True))
