"""Small images and trees for tests of publishing; real files, real transports."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from steps.clients.releases import publication, shell_session
from steps.clients.releases.release_tree import ALL
from steps.clients.releases.tree_operations import Operation, TreeTransport
from steps.contract.attestation import RunIdentity
from steps.nodeimage.contract import image_manifest
from steps.nodeimage.contract.boot_tree import BootGroup, PublishTarget
from steps.nodeimage.contract.image_tests import ImageTestOutcome, ImageTestResult
from steps.nodeimage.publishing import image_kind, image_publication
from steps.nodeimage.publishing.image_kind import local_tree
from steps.stages.image_publish.contract import Published

URL = "http://boot.example.org/images"
KINDS = ("local", "shell")
"""Transports that need no other machine: the second runs the very program that the SSH one runs there."""
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner") if os.geteuid() == 0 else ()
"""Before a command: root may read and write everywhere but so."""
RUN = RunIdentity(run="run-1", engine="local", version="0.1.0", started=1_700_000_000.5, finished=1_700_000_060.0)
RESULTS = {"sandbox": [ImageTestResult(name="gcc_compiles", outcome=ImageTestOutcome.PASS, seconds=0.2)]}


def image(
    folder: Path,
    content: str,
    *,
    name: str = "compute",
    packages: tuple[image_manifest.PackageOf, ...] = (),
    tools: dict[str, str] | None = None,
    key: str = "0" * 64,
) -> Path:
    """A packed image of a few bytes, another one for other content."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for part in image_manifest.PARTS:
        data = f"{part} of {content}\n".encode() * 100
        (folder / part).write_bytes(data)
        parts.append(image_manifest.ImageFile(name=part, digest="sha256:" + hashlib.sha256(data).hexdigest(), size=len(data)))
    told = image_manifest.Manifest(
        name=name,
        key=key,
        recipe="sha256:" + "1" * 64,
        distribution="debian",
        release="bookworm",
        architecture="amd64",
        epoch=1700000000,
        kernel="linux-image-cloud-amd64",
        kernel_arguments=("console=ttyS0",),
        parts=tuple(parts),
        layers=(),
        packages=packages,
        tools=tools or {},
    )
    (folder / image_manifest.MANIFEST).write_bytes(image_manifest.encode(told))
    return folder


def place(root: Path, *groups: BootGroup, keep: int = 3, key: str = "", signers: tuple[str, ...] = ()) -> PublishTarget:
    """A place on this machine."""
    found = groups or (BootGroup(name="default"), BootGroup(name="gpu", kernel_arguments=("nouveau.modeset=0",)))
    return PublishTarget(root=str(root), url=URL, groups=found, keep=keep, key=key, signers=signers)


def order(
    where: PublishTarget,
    folder: Path,
    secrets: Path = Path("/nonexistent"),
    results: image_publication.Results = RESULTS,
    *,
    again: bool = False,
    origin: str = "",
    run: RunIdentity = RUN,
) -> publication.PublishRequest:
    release = image_publication.stage(folder, where, results, run, origin=origin, secrets=secrets)
    return publication.PublishRequest(release=release, target=where, secrets=secrets, by="run-1", again=again)


@contextmanager
def transport(kind: str, root: Path) -> Iterator[TreeTransport]:
    """A transport of a kind to a root."""
    made: TreeTransport = (
        local_tree(root)
        if kind == "local"
        else shell_session.ShellTransport(
            ["sh", "-c", shell_session.PROGRAM.read_text()], str(root), "there", layout=image_kind.LAYOUT
        )
    )
    try:
        yield made
    finally:
        made.close()


def published(
    where: PublishTarget,
    folder: Path,
    kind: str = "local",
    secrets: Path = Path("/nonexistent"),
    results: image_publication.Results = RESULTS,
    *,
    again: bool = False,
    origin: str = "",
) -> Published:
    """Publish, and say nothing."""
    with transport(kind, Path(where.root)) as way:
        return image_publication.publish_through(way, order(where, folder, secrets, results, again=again, origin=origin), silent)


def key_pair(folder: Path) -> str:
    """A secret `key` in the folder, to sign with; its public key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    return (folder / "key.pub").read_text()


def silent(what: str) -> None:
    """Says nothing."""


def wrong(root: Path, name: str = "compute", signers: tuple[str, ...] = (), kind: str = "local") -> list[str]:
    """Return the problems that `verify` finds in a tree, each as "PATH REASON"."""
    with transport(kind, root) as way:
        return [f"{one.place} {one.why}" for one in image_kind.problems(way.look(name, (ALL,)), signers)]


def state(root: Path) -> dict[str, tuple[int, int, int, str]]:
    """Every path below: inode, time of change, size, and where a link leads. Equal means that nothing was written."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            path = Path(folder, name)
            one = path.lstat()
            found[str(path)] = (one.st_ino, one.st_mtime_ns, one.st_size, os.readlink(path) if path.is_symlink() else "")
    return found


class Meanwhile:
    """A transport on which somebody else acts once, right before the first rename into `boot`."""

    def __init__(self, inner: TreeTransport, act: Callable[[], object]) -> None:
        self.inner, self.act, self.where = inner, [act], inner.where
        self.look, self.claim, self.close = inner.look, inner.claim, inner.close

    def perform(self, operations: Iterable[Operation]) -> None:
        for one in operations:
            if self.act and getattr(one, "to", "").startswith("boot/"):
                self.act.pop()()
            self.inner.perform([one])


def forked(act: Callable[[], object]) -> int:
    """Do it in a process of its own, whose number this is."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """Wait for a child process and return its exit code, which is the negative signal number if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
