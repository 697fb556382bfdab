"""Open the published tree of a command, the folder that nodes boot from; given by path, or by the image spec with that target."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.publishing import image_kind
from workflows.app import release_trees
from workflows.app.images import image_specs
from workflows.app.release_trees import NoTree, OpenedTree
from workflows.engines import run_secrets
from workflows.nodeimage import publish_targets
from workflows.nodeimage.image_spec import SIGN_KEY, ImageSpec
from workflows.spec.pipelines.publish_access import PUBLISH_KEY, PUBLISH_KNOWN_HOSTS, PublishSsh
from workflows.stages.host_access import SecretFile, secret_file

__all__ = ["NoTree", "OpenedTree", "TreeLogin", "opened", "signing_key"]
HINT = "name the folder that nodes boot from, or an image spec (image.yaml)"
_NOUN = "image"


class TreeLogin(Protocol):
    """A login to a boot server: the user's own key and name, or the spec's, whose key may be a Secret of the home cluster."""

    @property
    def ssh_key(self) -> Path | None:
        """Return the path of the user's own private key; None to use the spec's key."""

    @property
    def ssh_user(self) -> str:
        """Return the user's own login name on the boot server; empty to use the spec's."""

    def home_key(self, ssh: PublishSsh, key: SecretFile) -> bytes:
        """Return the spec's private key from a Secret of the home cluster. Raises SecretMissing."""


@contextmanager
def opened(tree: str, image: str, login: TreeLogin) -> Iterator[OpenedTree[PublishTarget]]:
    """Open a published tree in this context; `tree` is its folder, an image's folder in it, or an image spec. Raises NoTree."""
    path = Path(tree)
    if path.is_dir():
        root, name = release_trees.root_and_product(path, image)
        place = PublishTarget(root=str(root), url="")
        with image_kind.connect(place, path) as transport:
            yield OpenedTree(transport=transport, place=place, product=name, noun=_NOUN, hint=HINT)
        return
    if not path.is_file():
        raise NoTree(f"{tree!r} is neither a folder nor a file", HINT)
    with _of_spec(path, image, login) as opened_tree:
        yield opened_tree


def signing_key(tree: str, own: Path | None) -> AbstractContextManager[Path | None]:
    """Return a context manager with the publisher's private key: the user's own file, else that of the spec in `publish.sign`."""
    return release_trees.signing_key(tree, own, _sign_key)


def _sign_key(path: Path) -> SecretFile | None:
    sign = image_specs.load(path).publish.sign
    return secret_file(SIGN_KEY, sign) if sign else None


@contextmanager
def _of_spec(path: Path, image: str, login: TreeLogin) -> Iterator[OpenedTree[PublishTarget]]:
    spec = image_specs.load(path)
    place = replace(publish_targets.publish_target(spec), key="")
    place = replace(place, user=login.ssh_user) if place.host and login.ssh_user else place
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        for name, data in _secrets(spec, path.parent, login).items():
            release_trees.write_secret(Path(folder), name, data)
        with image_kind.connect(place, Path(folder)) as transport:
            yield OpenedTree(transport=transport, place=place, product=image, noun=_NOUN, hint=HINT)


def _secrets(spec: ImageSpec, folder: Path, login: TreeLogin) -> dict[str, bytes]:
    """Return the contents of the SSH key and known_hosts files by file name; empty if the tree is on this machine."""
    ssh = spec.publish.ssh
    if ssh is None:
        return {}
    known_hosts = SecretFile(name=PUBLISH_KNOWN_HOSTS, path=ssh.known_hosts)
    own_key = SecretFile(name=PUBLISH_KEY, path=str(login.ssh_key.absolute())) if login.ssh_key is not None else None
    key = own_key or secret_file(PUBLISH_KEY, ssh.key)
    files = [file for file in (key, known_hosts) if not file.secret]
    contents = run_secrets.read_secrets(files, folder, os.environ)
    return contents | ({key.name: login.home_key(ssh, key)} if key.secret else {})
