"""Open the published tree of a command, the folder that nodes boot from; given by path, or by the image spec with that target."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from steps.clients.releases.release_tree import ALL, ReleaseTree
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract import release_layout
from steps.nodeimage.contract import boot_tree
from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.publishing import image_kind
from workflows.app.images import image_specs
from workflows.engines import run_secrets
from workflows.nodeimage import image_plan
from workflows.nodeimage.image_spec import SIGN_KEY, ImageSpec
from workflows.spec.publish_access import PUBLISH_KEY, PUBLISH_KNOWN_HOSTS, PublishSsh
from workflows.stages.host_access import SecretFile, secret_file


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


class NoTree(ValueError):
    """Error for an argument that leads to no published tree or image; the message says why, `hint` what to do."""

    hint = "name the folder that nodes boot from, or an image spec (image.yaml)"


class OpenedTree(Struct, frozen=True, kw_only=True):
    """A published tree with an open transport to it, its publish target, and the image chosen on the command line (empty: all)."""

    transport: TreeTransport
    place: PublishTarget
    image: str

    def looks(self, *, digests: bool = False) -> tuple[ReleaseTree, ...]:
        """Return the content of each chosen image in the tree, with `digests` also the files' digests.

        Raises NoTree if there is no image.
        """
        paths = (ALL,) if digests else ()
        names = (self.image,) if self.image else self.transport.look(boot_tree.BOOT).products
        release_trees = tuple(self.transport.look(name, paths) for name in names)
        if not release_trees or not any(tree.versions or tree.current for tree in release_trees):
            raise NoTree(f"{self.transport.where} holds no published image" + (f" {self.image}" if self.image else ""))
        return release_trees

    def only(self) -> str:
        """Return the name of the only or chosen image.

        Raises NoTree if it is not in the tree, or if none is chosen among several.
        """
        names = self.transport.look(boot_tree.BOOT).products
        if self.image in names or (not self.image and len(names) == 1):
            return self.image or names[0]
        raise NoTree(f"{self.transport.where} holds {', '.join(names) or 'no image'}: say with --image which is meant")


@contextmanager
def opened(tree: str, image: str, login: TreeLogin) -> Iterator[OpenedTree]:
    """Open a published tree in this context; `tree` is its folder, an image's folder in it, or an image spec. Raises NoTree."""
    path = Path(tree)
    if path.is_dir():
        inner = path.absolute()
        below = (inner / release_layout.VERSIONS).is_dir()
        root, name = (inner.parent, inner.name) if below else (inner, image)
        place = PublishTarget(root=str(root), url="")
        with image_kind.connect(place, path) as transport:
            yield OpenedTree(transport=transport, place=place, image=name)
        return
    if not path.is_file():
        raise NoTree(f"{tree!r} is neither a folder nor a file")
    with _of_spec(path, image, login) as opened_tree:
        yield opened_tree


@contextmanager
def signing_key(tree: str, own: Path | None) -> Iterator[Path | None]:
    """Open the publisher's private key in this context: the user's own file, else that of the spec in `publish.sign`.

    Yield None where there is none on this machine: a rollback in need must not wait for a key.
    """
    path = Path(tree)
    if own is not None or not path.is_file():
        yield own
        return
    sign = image_specs.load(path).publish.sign
    file = secret_file(SIGN_KEY, sign) if sign else None
    try:
        contents = run_secrets.read_secrets([file], path.parent, os.environ) if file and not file.secret else {}
    except run_secrets.SecretMissing:
        contents = {}
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        yield _kept(Path(folder), SIGN_KEY, contents[SIGN_KEY]) if contents else None


def _kept(folder: Path, name: str, data: bytes) -> Path:
    """Write a secret to a file in a folder and return its path; the mode is set before the secret is in the file."""
    file = folder / name
    file.touch(mode=0o600)
    file.write_bytes(data)
    return file


@contextmanager
def _of_spec(path: Path, image: str, login: TreeLogin) -> Iterator[OpenedTree]:
    spec = image_specs.load(path)
    place = replace(image_plan.publish_target(spec), key="")
    place = replace(place, user=login.ssh_user) if place.host and login.ssh_user else place
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        for name, data in _secrets(spec, path.parent, login).items():
            _kept(Path(folder), name, data)
        with image_kind.connect(place, Path(folder)) as transport:
            yield OpenedTree(transport=transport, place=place, image=image)


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
