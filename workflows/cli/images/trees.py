"""Published trees that commands look at: by the path of one, or by the image spec that says where it lies."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from steps.clients.published.operations import Transport
from steps.clients.published.tree import ALL, Tree
from steps.contract.image import published
from steps.contract.image.published import Place
from workflows.cli.argo.options import HomeContext, HomeKubeconfig

if TYPE_CHECKING:
    from workflows.spec.image import ImageSpec, PublishSsh
    from workflows.stages.access import SecretFile

SshKey = Annotated[Path | None, typer.Option("--ssh-key", help="Your own private key for the boot server, not the spec's.")]
SshUser = Annotated[str, typer.Option("--ssh-user", metavar="NAME", help="Your own user on the boot server, not the spec's.")]
Namespace = Annotated[str, typer.Option("--namespace", help="Namespace of the spec's Secrets in home; default: bringup.")]


@dataclass(frozen=True)
class Login:
    """What the command line says of how a boot server is reached: as oneself, or with the key of the spec, which where it is a
    Secret the home cluster has."""

    ssh_key: SshKey = None
    ssh_user: SshUser = ""
    home_kubeconfig: HomeKubeconfig = ""
    home_context: HomeContext = ""
    namespace: Namespace = ""

    def check(self) -> None:
        """Raise BadParameter where a key is to be read that is not asked for."""
        if self.ssh_key is not None and (self.home_kubeconfig or self.home_context or self.namespace):
            raise typer.BadParameter("with --ssh-key no Secret of the home cluster is read: leave out where that is")


NOBODY = Login()


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
def opened(tree: str, image: str = "", login: Login = NOBODY) -> Iterator[Opened]:
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
    with _of_spec(path, image, login) as found:
        yield found


@contextmanager
def _of_spec(path: Path, image: str, login: Login) -> Iterator[Opened]:
    from steps.clients.published import connecting
    from workflows.cli.images import specs
    from workflows.plan import images

    spec = specs.load(path)
    place = replace(images.place(spec), key="")
    place = replace(place, user=login.ssh_user) if place.host and login.ssh_user else place
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        for name, data in _secrets(spec, path.parent, login).items():
            file = Path(folder, name)
            file.touch(mode=0o600)
            file.write_bytes(data)
        with connecting.to(place, Path(folder)) as transport:
            yield Opened(transport=transport, place=place, image=image)


def _secrets(spec: "ImageSpec", folder: Path, login: Login) -> dict[str, bytes]:
    """What SSH needs of the spec's secrets: nothing where the tree is on this machine."""
    from workflows.engines import inputs
    from workflows.spec.image import PUBLISH_KEY, PUBLISH_KNOWN_HOSTS
    from workflows.stages.access import SecretFile, secret_file

    ssh = spec.publish.ssh
    if ssh is None:
        return {}
    known_hosts = SecretFile(name=PUBLISH_KNOWN_HOSTS, path=ssh.known_hosts)
    own = SecretFile(name=PUBLISH_KEY, path=str(login.ssh_key.absolute())) if login.ssh_key is not None else None
    key = own or secret_file(PUBLISH_KEY, ssh.key)
    files = [file for file in (key, known_hosts) if not file.secret]
    found = inputs.gathered(files, folder, os.environ)
    return found | ({key.name: _of_home(ssh, key, login)} if key.secret else {})


def _of_home(ssh: "PublishSsh", key: "SecretFile", login: Login) -> bytes:
    """The key that pods publish with. Raises SecretMissing where it cannot be had; oneself may have another."""
    from workflows.cli import kubeconfigs
    from workflows.engines.argo import secret_files
    from workflows.engines.argo.home import NoHomeCluster
    from workflows.engines.inputs import SecretMissing

    namespace = (ssh.key.secret.namespace if ssh.key.secret else "") or login.namespace
    try:
        return secret_files.fetched(kubeconfigs.home(login.home_kubeconfig, login.home_context, namespace), key)
    except NoHomeCluster as error:
        said = f"secret {key.name} is a key of the Secret {key.secret} of the home cluster, and {error}"
        raise SecretMissing(said, f"{error.hint}; or log in as yourself, with --ssh-key and --ssh-user") from error
    except SecretMissing as error:
        raise SecretMissing(str(error), error.hint or "log in as yourself, with --ssh-key and --ssh-user") from error
