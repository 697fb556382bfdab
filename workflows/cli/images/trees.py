"""Published trees that commands look at: by the path of one, or by the image spec that says where it lies."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from steps.clients.published.operations import Transport
from steps.clients.published.tree import ALL, Tree
from steps.contract.image import published
from steps.contract.image.published import Place

if TYPE_CHECKING:
    from workflows.spec.image import ImageSpec


class NoTree(ValueError):
    """What a command line names is no published tree; the message says why, `hint` what to do."""

    hint = "name the folder that nodes boot from, or an image spec (image.yaml)"


class Opened(Struct, frozen=True, kw_only=True):
    """A way to a tree, the place that it is, and the image that the command line chose (empty: all)."""

    transport: Transport
    place: Place
    image: str

    def looks(self, *, digests: bool = False) -> tuple[Tree, ...]:
        """Every image that was asked for. Raises NoTree where there is none."""
        wanted = (ALL,) if digests else ()
        names = (self.image,) if self.image else self.transport.look(published.BOOT).images
        found = tuple(self.transport.look(name, wanted) for name in names)
        if not found or not any(tree.versions or tree.current for tree in found):
            raise NoTree(f"{self.transport.where} holds no published image" + (f" {self.image}" if self.image else ""))
        return found

    def only(self) -> str:
        """The one image that is meant. Raises NoTree where the line does not say which."""
        names = self.transport.look(published.BOOT).images
        if self.image in names or (not self.image and len(names) == 1):
            return self.image or names[0]
        raise NoTree(f"{self.transport.where} holds {', '.join(names) or 'no image'}: say with --image which is meant")


@contextmanager
def opened(tree: str, image: str = "") -> Iterator[Opened]:
    """The tree that a command line names."""
    from steps.clients.published import connecting

    path = Path(tree)
    if path.is_dir():
        inner = path.absolute()
        below = (inner / published.VERSIONS).is_dir()
        root, name = (inner.parent, inner.name) if below else (inner, image)
        place = Place(root=str(root), url="")
        with connecting.to(place, path) as transport:
            yield Opened(transport=transport, place=place, image=name)
        return
    if not path.is_file():
        raise NoTree(f"{tree!r} is neither a folder nor a file")
    with _of_spec(path, image) as found:
        yield found


@contextmanager
def _of_spec(path: Path, image: str) -> Iterator[Opened]:
    from steps.clients.published import connecting
    from workflows.cli.images import specs
    from workflows.plan import images

    spec = specs.load(path)
    place = replace(images.place(spec), key="")
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        for name, data in _secrets(spec, path.parent).items():
            file = Path(folder, name)
            file.touch(mode=0o600)
            file.write_bytes(data)
        with connecting.to(place, Path(folder)) as transport:
            yield Opened(transport=transport, place=place, image=image)


def _secrets(spec: "ImageSpec", folder: Path) -> dict[str, bytes]:
    """What SSH needs of the spec's secrets: nothing where the tree is on this machine."""
    from workflows.engines import inputs
    from workflows.spec.image import PUBLISH_KEY, PUBLISH_KNOWN_HOSTS
    from workflows.stages.access import SecretFile, secret_file

    ssh = spec.publish.ssh
    if ssh is None:
        return {}
    files = (secret_file(PUBLISH_KEY, ssh.key), SecretFile(name=PUBLISH_KNOWN_HOSTS, path=ssh.known_hosts))
    return inputs.gathered(files, folder, os.environ)
