"""Assembled stacks of a few small packages, made by hand, and published roots for tests of publication."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from steps.clients.clock import RealClock
from steps.clients.releases.publication import PublishRequest
from steps.clients.releases.release_tree import ALL, ReleaseTree
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract.attestation import RunIdentity
from steps.contract.canonical import digest, digest_bytes
from steps.contract.release_layout import ReleaseFile, ReleaseTarget
from steps.softwarestack.contract import package_files, stack_release
from steps.softwarestack.contract.stack_input import (
    BuildCacheLocation,
    StackInput,
    StackPackage,
    StackSource,
    StackTestCase,
)
from steps.softwarestack.contract.stack_release import PackageContent, PublishedStack, StackManifest
from steps.softwarestack.contract.stack_tests import StackTestKind, StackTestOutcome, StackTestResult
from steps.softwarestack.publication import package_listing, stack_kind, stack_publication
from steps.softwarestack.publication.package_checks import BYTES, PackageChecks
from steps.softwarestack.publication.stack_kind import local_tree
from steps.softwarestack.publication.stack_publication import StackMaking, TestedStack

RUN = RunIdentity(run="run-1", engine="local", version="0.1.0", started=1_700_000_000.5, finished=1_700_000_060.0)
RESULTS = (StackTestResult(name="zlib/1.3", kind=StackTestKind.LOAD, outcome=StackTestOutcome.PASS, seconds=0.1),)
ZLIB, HPL = {"zlib": "1.3", "HPL": "2.3"}, {"zlib": "1.3", "HPL": "2.4"}
"""Packages of two versions of the stack `tools`: name → version. They share one."""


def folder_of(name: str, version: str) -> str:
    """Folder of a package."""
    return f"{name}-{version}-{digest([name, version]).removeprefix('sha256:')[:12]}"


def assembled(
    folder: Path,
    root: Path,
    packages: Mapping[str, str],
    name: str = "tools",
    *,
    extra: str = "",
    key: str = "",
    finish: Callable[[Path], object] = bool,
) -> Path:
    """An assembled tree with packages of a program, a library with a link to it, data and an empty folder; one module file each.

    `finish` adds to the folder of each package.
    """
    contents, files = [], []
    for package, version in packages.items():
        place = folder / "packages" / folder_of(package, version)
        _package(place, f"{package} {version}{extra}\n")
        finish(place)
        listed = package_listing.list_package(place)
        contents.append(
            PackageContent(
                hash=digest([package, version]).removeprefix("sha256:"),
                name=package,
                version=version,
                folder=place.name,
                module=f"{package}/{version}",
                content=package_files.digest(listed),
                files=len(listed),
                size=sum(file.size for file in listed),
            )
        )
        text = (
            f'local root = "{root}/packages/{place.name}"\nprepend_path("PATH", pathJoin(root, "bin"))\n'
            f'prepend_path("MODULEPATH", "{root}/{name}/current/modules/all/{package}")\n'
        ).encode()
        path = folder / f"modules/all/Core/{package}/{version}.lua"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        files.append(ReleaseFile(name=str(path.relative_to(folder)), digest=digest_bytes(text), size=len(text)))
    manifest = StackManifest(
        name=name,
        key=key or digest(sorted(packages.items())),
        backend="easybuild",
        release="5.4.1",
        root=str(root),
        packages=tuple(contents),
        files=tuple(files),
    )
    (folder / stack_release.MANIFEST).write_bytes(stack_release.encode_manifest(manifest))
    return folder


def _package(place: Path, text: str) -> None:
    for path in ("bin", "lib/deep", "share/empty"):
        (place / path).mkdir(parents=True)
    (place / "bin/run").write_text(f"#!/bin/sh\necho {text}")
    (place / "bin/run").chmod(0o755)
    (place / "lib/libx.so.1").write_text(text * 100)
    (place / "lib/libx.so").symlink_to("libx.so.1")
    (place / "lib64").symlink_to("lib")
    (place / "lib/deep/data.json").write_text("{}")
    os.utime(place / "lib/libx.so.1", (1_700_000_000, 1_700_000_000))


def input_of(root: Path, origin: str = "") -> StackInput:
    """A stack as its builder read it: a package with its easyconfig, a source and a patch."""
    package = StackPackage(
        hash="a" * 32,
        name="zlib",
        version="1.3",
        easyconfig="z/zlib/zlib-1.3.eb",
        sha256="1" * 64,
        sources=(StackSource(name="zlib-1.3.tar.gz", sha256="2" * 64),),
        patches=(StackSource(name="zlib.patch", sha256="3" * 64),),
    )
    test = StackTestCase(name="runs", command=("run",))
    return StackInput(
        name="tools",
        backend="easybuild",
        release="5.4.1",
        root=str(root),
        packages=(package,),
        roots=(package.hash,),
        cache=BuildCacheLocation(folder=""),
        builder=f"registry.example.org/builder@sha256:{'4' * 64}",
        tests=(test,),
        lock=f"sha256:{'5' * 64}",
        origin=origin,
    )


def request(
    tree: Path,
    root: Path,
    *,
    keep: int = 3,
    again: bool = False,
    key: str = "",
    signers: tuple[str, ...] = (),
    origin: str = "",
    finished: float = RUN.finished,
) -> PublishRequest:
    """A request to publish an assembled tree; keys lie in the folder above the root."""
    target = ReleaseTarget(root=str(root), keep=keep, key=key, signers=signers)
    made = StackMaking(stack=input_of(root, origin), run=replace(RUN, finished=finished))
    tested = TestedStack(run="run-1", origin=origin, results=RESULTS)
    release = stack_publication.stage(tree, target, tested, made)
    return PublishRequest(release=release, target=target, secrets=root.parent, by="run-1", again=again)


def publish(wanted: PublishRequest, transport: Callable[[Path], TreeTransport] = local_tree) -> PublishedStack:
    """Publish through a transport of its own, and say nothing."""
    opened = transport(Path(wanted.target.root))
    try:
        return stack_publication.publish_through(opened, wanted, RealClock(), lambda _: None)
    finally:
        opened.close()


def published(
    tmp: Path, root: Path, packages: Mapping[str, str], name: str = "tools", *, keep: int = 3, again: bool = False
) -> PublishedStack:
    """Assemble a stack in a folder of its own, and publish it."""
    tree = tmp / digest([name, sorted(packages.items())]).removeprefix("sha256:")[:8]
    if not tree.exists():
        assembled(tree, root, packages, name)
    return publish(request(tree, root, keep=keep, again=again))


def look(root: Path, name: str = "tools") -> ReleaseTree:
    """The tree of a stack, read with all digests."""
    return local_tree(root).look(name, (ALL,))


def wrong(root: Path, name: str = "tools", signers: tuple[str, ...] = ()) -> dict[str, str]:
    """Everything that a full verification says: place → why."""
    tree, checks = look(root, name), PackageChecks(root, BYTES)
    return {problem.place: problem.why for problem in stack_kind.problems(tree, checks.problems, signers)}


def packages_in(root: Path) -> list[str]:
    """Folders of packages in a root."""
    return sorted(path.name for path in (root / "packages").iterdir() if path.name != "incoming")
