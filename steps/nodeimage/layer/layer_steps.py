"""Steps of a layer's build in its namespace: packages, users, files, commands and services, then normalization."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct

from steps.nodeimage.containment import chroot, namespace
from steps.nodeimage.contract.resolved_recipe import LayerCommand, PlacedFile, ResolvedLayer
from steps.nodeimage.layer import accounts, build_secrets, layer_content, normalization, package_installation, secret_scan
from steps.nodeimage.layer.build_secrets import Noted
from steps.nodeimage.store import store_entries


class LayerWork(Struct, frozen=True, kw_only=True):
    """Order to build a layer: its recipe, the package archive, files by digest, paths of secrets, and the time of every file."""

    layer: ResolvedLayer
    archive: str
    files: dict[str, bytes]
    secrets: dict[str, Noted]
    epoch: int
    expected: tuple[str, ...]
    """`name=version` of all packages that the root must have after the build, sorted."""


class LayerOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of a layer's build: the part that failed (empty: none), the end of its output, and the packages in the root."""

    failed: str = ""
    output: str = ""
    installed: tuple[str, ...] = ()


class NormalizationWork(Struct, frozen=True, kw_only=True):
    """Order to normalize a layer. `lowest`: no layers lie below; `secrets` are the bytes that must not be in the layer."""

    name: str
    tree: str
    listing: str
    lowest: bool
    epoch: int
    secrets: dict[str, bytes]


class Finished(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Layer after normalization: its content, and the places (`NAME in PATH`) where secrets were found in it."""

    content: layer_content.LayerContent
    secrets_found: tuple[str, ...] = ()


class PartFailed(Exception):
    """Error: a part of the layer, such as its packages, could not be applied; `outcome` is what `build` returns then."""

    def __init__(self, part: str, output: str) -> None:
        super().__init__(part)
        self.outcome = LayerOutcome(failed=part, output=output)


def build(root: Path, work: LayerWork) -> LayerOutcome:
    """Apply all parts of a layer in order and return the outcome; the first part that fails ends the build.

    Raises StoreBusy if the disk is full.
    """
    try:
        _attempt("packages", partial(package_installation.unpack, root, Path(work.archive), work.layer.packages))
        chroot.prepare(root)
        with build_secrets.hidden(work.secrets):
            for part, apply in _parts(root, work):
                namespace.tell(f"{work.layer.name}: {part}")
                _attempt(part, apply)
        return LayerOutcome(installed=tuple(_installed(root, work)))
    except PartFailed as error:
        store_entries.raise_if_full(error.outcome.output, f"layer {work.layer.name}: {error.outcome.failed}")
        return error.outcome


def _attempt(part: str, apply: Callable[[], None]) -> None:
    try:
        with store_entries.guard_writes():
            apply()
    except (package_installation.CannotInstall, accounts.CannotAdd) as error:
        raise PartFailed(part, str(error)) from error
    except OSError as error:
        raise PartFailed(part, f"{error.filename or ''}: {error.strerror}") from error


def _parts(root: Path, work: LayerWork) -> Iterator[tuple[str, Callable[[], None]]]:
    layer = work.layer
    if layer.packages:
        yield "packages", partial(package_installation.install, root, Path(work.archive), layer.packages, work.epoch)
    if layer.users:
        yield "users", partial(_users, root, work)
    if layer.files:
        yield "files", partial(_files, root, work)
    for number, command in enumerate(layer.commands, start=1):
        yield f"commands {number}", partial(_command, root, work, command, f"commands {number}")
    if layer.services:
        yield "services", partial(_services, root, work)


def _users(root: Path, work: LayerWork) -> None:
    with chroot.enter(root):
        for user in work.layer.users:
            accounts.add(user, work.epoch)


def _files(root: Path, work: LayerWork) -> None:
    with chroot.enter(root):
        for file in work.layer.files:
            try:
                with store_entries.guard_writes():
                    _place(file, work.files)
            except OSError as error:
                raise PartFailed("files", f"{file.path}: {error.strerror}") from error


def _place(file: PlacedFile, files: Mapping[str, bytes]) -> None:
    path = Path(file.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()  # never through a link, nor into a file that another name shares
    if file.link:
        path.symlink_to(file.link)
    elif file.sha256:
        path.write_bytes(files[file.sha256])
    else:
        path.mkdir(exist_ok=True)
    os.chown(path, file.uid, file.gid, follow_symlinks=False)
    if not file.link:
        path.chmod(file.mode)


def _command(root: Path, work: LayerWork, command: LayerCommand, part: str) -> None:
    secrets = {name: work.secrets[name] for name in command.secrets}
    with build_secrets.with_secrets(root, secrets):
        words = ["/bin/sh", "-e", "-c", command.run]
        ended = chroot.run(root, words, chroot.environment(work.epoch), partial(_redact, work.secrets))
    if ended.code:
        raise PartFailed(part, f"ended with {ended.code}: {ended.output}")


def _redact(secrets: Mapping[str, Noted], output: bytes) -> bytes:
    with build_secrets.uncover(secrets):
        return secret_scan.redact_bytes(output, build_secrets.read(secrets))


def _services(root: Path, work: LayerWork) -> None:
    verbs = {"enabled": "enable", "disabled": "disable", "masked": "mask"}
    if not shutil.which("systemctl", path=f"{root}/usr/bin"):
        raise PartFailed("services", "the root has no systemctl: add package systemd-sysv to this layer or one below")
    for service in work.layer.services:
        ended = chroot.run(root, ["systemctl", "--root=/", verbs[service.state], service.unit], chroot.environment(work.epoch))
        if ended.code:
            raise PartFailed("services", f"{service.unit}: {ended.output}")


def _installed(root: Path, work: LayerWork) -> list[str]:
    """Return the packages installed in the root. Raises PartFailed unless they are exactly those of the lock."""
    installed, expected = package_installation.installed_packages(root), sorted(work.expected)
    if installed != expected:
        extra, lacking = sorted(set(installed) - set(expected)), sorted(set(expected) - set(installed))
        raise PartFailed("packages", f"not as locked: more {', '.join(extra) or 'none'}; lacking {', '.join(lacking) or 'none'}")
    return installed


def finish(root: Path, work: NormalizationWork) -> Finished:
    """Normalize a layer's folder, search it for secrets, and return its content; `root` has the layers below it merged."""
    tree = Path(work.tree)
    namespace.tell(f"{work.name}: normal form")
    normalization.normalise(tree, None if work.lowest else root, work.epoch)
    places = secret_scan.search(tree, work.secrets) if work.secrets else []
    return Finished(content=layer_content.read(tree, Path(work.listing)), secrets_found=tuple(places))
