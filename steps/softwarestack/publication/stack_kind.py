"""Software stacks as a product of `steps.clients.releases`: the content of a version, and what may be wrong with it.

A version has module files and a manifest. The packages that it leads to lie in ROOT/packages, beside all stacks, so the checks of a
version take a function that looks at them (`package_checks.PackageChecks`).
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from steps.clients.releases import connections, verification
from steps.clients.releases.local_transport import LocalTransport
from steps.clients.releases.release_kind import Contents, ReleaseKind, TreeProblem
from steps.clients.releases.release_tree import ReleaseTree, TreeLayout
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract import release_layout
from steps.contract.release_layout import ReleaseError, ReleaseTarget
from steps.softwarestack.contract import stack_release
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.contract.stack_release import MANIFEST, MODULES, PackageContent, StackManifest, StackManifestError
from steps.softwarestack.publication import stack_provenance
from steps.softwarestack.publication.package_checks import PackageCheck

LAYOUT = TreeLayout(manifest=MANIFEST, pointer=release_layout.CURRENT, read=(".lua",))
"""File names in a published root; module files in Lua are read with the tree, to see where they lead."""
_LARGEST_MODULE: Final = 1 << 20
_PATH: Final = r"[^\s\"'`;:\])}]*"


def unchecked(_package: PackageContent) -> tuple[TreeProblem, ...]:
    """Return no problems: the packages are on another machine, or are not asked about."""
    return ()


def stack_kind(check: PackageCheck = unchecked) -> ReleaseKind:
    """Return the `ReleaseKind` of software stacks. `check` tells what is wrong with a package that a version names."""
    return ReleaseKind(
        noun="stack",
        command="bringup stack",
        namespace=stack_release.NAMESPACE,
        contents=_contents,
        layout=LAYOUT,
        required=(stack_release.TESTS,),
        version_problems=partial(version_problems, check),
    )


def connect(target: ReleaseTarget, secrets: Path) -> AbstractContextManager[TreeTransport]:
    """Return a context manager with a transport to the target's root, by SSH if it has a host. Raises a StepError."""
    return connections.connected(target, secrets, LAYOUT)


def local_tree(root: Path) -> LocalTransport:
    """Return a transport to a published root on this machine. Raises a StepError if `root` is no folder."""
    return LocalTransport(root, LAYOUT)


def manifest_of(tree: ReleaseTree, version: str) -> StackManifest | None:
    """Return the manifest of a version; None if it is missing or cannot be read."""
    data = tree.manifest(version)
    try:
        return None if data is None else stack_release.decode_manifest(data)
    except StackManifestError:
        return None


def version_problems(check: PackageCheck, tree: ReleaseTree, version: str) -> Iterator[TreeProblem]:
    """Yield the problems of a version beyond its own files: its packages, module files that lead elsewhere, and its statements."""
    manifest = manifest_of(tree, version)
    if manifest is None:
        return
    for package in manifest.packages:
        yield from check(package)
    yield from module_problems(tree, version, manifest)
    yield from stack_provenance.problems(tree, version, manifest)


def module_problems(tree: ReleaseTree, version: str, manifest: StackManifest) -> Iterator[TreeProblem]:
    """Yield the module files that lead to a package that the version does not name, or to module files of another place."""
    for path, text in module_texts(tree, version):
        if why := module_problem(text, tree.product, manifest):
            yield TreeProblem(place=path, why=why)


def module_texts(tree: ReleaseTree, version: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each module file. Those in Tcl have no ending by which a transport would have read them."""
    folder = tree.version_path(version, MODULES)
    for name, entry in sorted(tree.below(folder).items()):
        path = f"{folder}/{name}"
        if entry.is_file:
            with suppress(OSError):  # a file that cannot be read is found by its digest
                data = tree.contents[path] if path in tree.contents else _start_of(Path(tree.root, path))
                yield path, data.decode(errors="replace")


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LARGEST_MODULE)


def module_problem(text: str, stack: str, manifest: StackManifest) -> str:
    """Return where a module file leads that it must not, below the published root; empty if nowhere.

    Below ROOT there are the version's packages, and its modules by way of the pointer: a version's own path would keep users of the
    modules on that version after a switch.
    """
    root, named = manifest.root.rstrip("/"), manifest.by_folder
    modules = f"{stack}/{release_layout.CURRENT}/{MODULES}"
    for match in re.finditer(rf"(?<![\w./-]){re.escape(root)}/({_PATH})", text):
        path = match[1].rstrip("/.,")
        first, _, rest = path.partition("/")
        if first == PACKAGES and rest.partition("/")[0] in named:
            continue
        if not (path == modules or path.startswith(f"{modules}/")):
            return f"leads to {root}/{path}, which is neither a package of this version nor a folder of its modules"
    return ""


def problems(tree: ReleaseTree, check: PackageCheck, signers: tuple[str, ...] = ()) -> tuple[TreeProblem, ...]:
    """Return everything that is wrong with a stack in a published root, which must have been read with digests of all versions."""
    return verification.tree_problems(stack_kind(check), tree, signers)


def _contents(data: bytes) -> Contents:
    try:
        manifest = stack_release.decode_manifest(data)
    except StackManifestError as error:
        raise ReleaseError(str(error)) from error
    return Contents(product=manifest.name, files=manifest.files, links=manifest.links)
