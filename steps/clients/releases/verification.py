"""Verification of release trees, file by file. It works on a tree that was read with digests, and checks signatures itself."""

import itertools
import stat
from collections.abc import Iterator, Mapping

from steps.clients.releases import pointer_statement, release_signatures
from steps.clients.releases.release_kind import ReleaseKind, TreeProblem, files_found, folders_of
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import release_layout
from steps.contract.release_layout import ReleaseError, ReleaseTarget


def tree_problems(kind: ReleaseKind, tree: ReleaseTree, signers: tuple[str, ...] = ()) -> tuple[TreeProblem, ...]:
    """Return everything that is wrong with a product in a release tree, which must have been read with the digests of all versions.

    With `signers` every version must be signed by one of these public keys.
    """
    problems = [*pointer_problems(tree), *_history(tree)]
    problems += pointer_statement.problems(kind, tree, signers, required=bool(signers and tree.versions))
    problems += [*kind.tree_problems(tree), *_strays(tree)]
    for version in tree.versions:
        problems += version_problems(kind, tree, version, signers)
    problems += [TreeProblem(place=link.place, why=f"leads to {link.leads_to}: {link.why}") for link in kind.external_links(tree)]
    return tuple(problems)


def version_problems(kind: ReleaseKind, tree: ReleaseTree, version: str, signers: tuple[str, ...] = ()) -> Iterator[TreeProblem]:
    """Yield the problems of one version. The tree must have been read with the digests of its files."""
    manifest = tree.version_path(version, kind.layout.manifest)
    contents, digest = kind.contents_of(tree, version), tree.manifest_digest(version)
    if contents is None:
        yield TreeProblem(place=manifest, why="cannot be read as a manifest of this version" if digest else "is missing")
    elif release_layout.version_name(release_layout.number_of(version), digest) != version:
        yield TreeProblem(place=manifest, why=f"has the digest {digest}, which is not that of the version's name")
    if contents and contents.product != tree.product:
        yield TreeProblem(place=manifest, why=f"is of the {kind.noun} {contents.product!r}")
    yield from _sums(kind, tree, version)
    yield from _files(kind, tree, version)
    yield from _modes(tree, version)
    yield from kind.version_problems(tree, version)
    state = release_signatures.state(kind, tree, version, signers)
    if state == release_signatures.NONE and signers:
        yield TreeProblem(place=manifest, why="is not signed")
    elif state == release_signatures.BAD:
        yield TreeProblem(place=manifest, why="has a signature that no trusted key made over these bytes")
    elif state == release_signatures.UNKNOWN:
        for file, name in release_signatures.unfitting(kind, tree, version):
            yield TreeProblem(place=tree.version_path(version, name), why=f"is no signature of {file}, whoever's key it may be")


def problems_for_target(kind: ReleaseKind, tree: ReleaseTree, version: str, target: ReleaseTarget) -> Iterator[TreeProblem]:
    """Yield the problems of a version for a target: signatures are required only if the target has a key."""
    yield from version_problems(kind, tree, version, target.signers if target.key else ())


def has_all_files(kind: ReleaseKind, tree: ReleaseTree, version: str) -> bool:
    """Return True if a version has all files that its manifest and SHA256SUMS list, those of the manifest with the right sizes.

    No file is read for it.
    """
    contents, listed = kind.contents_of(tree, version), tree.sums(version)
    sizes = {file.name: file.size for file in files_found(tree, version)}
    if contents is None or not {kind.layout.manifest, *kind.required} <= listed.keys() <= sizes.keys():
        return False
    if next(wrong_links(contents.links, tree, version), None):
        return False
    return all(sizes.get(file.name) == file.size for file in contents.files)


def _sums(kind: ReleaseKind, tree: ReleaseTree, version: str) -> Iterator[TreeProblem]:
    place = tree.version_path(version, release_layout.SUMS)
    data = tree.contents.get(place)
    try:
        listed = release_layout.read_sums(data or b"")
    except ReleaseError as error:
        yield TreeProblem(place=place, why=str(error))
        return
    if not listed:
        yield TreeProblem(place=place, why="is missing" if data is None else "lists nothing")
    elif lacking := sorted({kind.layout.manifest, *kind.required} - set(listed)):
        yield TreeProblem(place=place, why=f"does not list {', '.join(lacking)}")


def _files(kind: ReleaseKind, tree: ReleaseTree, version: str) -> Iterator[TreeProblem]:
    there = {file.name: file for file in files_found(tree, version)}
    expected = kind.files_of(tree, version)
    sums = tree.sums(version)
    for file in expected:
        place, actual = tree.version_path(version, file.name), there.pop(file.name, None)
        if actual is None:
            yield TreeProblem(place=place, why="is missing")
        elif actual.size != file.size:
            yield TreeProblem(place=place, why=f"has {actual.size} bytes instead of {file.size}")
        elif not actual.digest:
            yield TreeProblem(place=place, why="could not be read")
        elif actual.digest != file.digest:
            yield TreeProblem(place=place, why=f"has the digest {actual.digest} instead of {file.digest}")
        if sums and sums.get(file.name, file.digest) != file.digest:
            place = tree.version_path(version, release_layout.SUMS)
            yield TreeProblem(place=place, why=f"and the manifest disagree over {file.name}")
    for name in sorted(set(there) - {kind.layout.signature}):
        yield TreeProblem(place=tree.version_path(version, name), why="is listed nowhere")
    contents = kind.contents_of(tree, version)
    links = contents.links if contents is not None else {}
    yield from wrong_links(links, tree, version)
    folders = folders_of([*(file.name for file in expected), *links]) | set(kind.folders)
    for name, entry in sorted(tree.below(tree.version_path(version)).items()):
        if not entry.is_file and not (entry.is_folder and name in folders) and not (entry.is_link and name in links):
            why = "is neither a file nor a folder of listed files"
            yield TreeProblem(place=tree.version_path(version, name), why=why)


def wrong_links(links: Mapping[str, str], tree: ReleaseTree, version: str) -> Iterator[TreeProblem]:
    """Yield the symbolic links that a version must have and that are missing, or lead elsewhere."""
    for name, target in links.items():
        place = tree.version_path(version, name)
        entry = tree.entries.get(place)
        if entry is None:
            yield TreeProblem(place=place, why="is missing")
        elif entry.target != target:
            yield TreeProblem(place=place, why=f"leads to {entry.target or 'nothing: it is no link'} instead of {target}")


def _modes(tree: ReleaseTree, version: str) -> Iterator[TreeProblem]:
    """Yield what others may change, no web server may read, or gives its user other rights, among a version's files and folders."""
    entries = {"": tree.entries.get(tree.version_path(version)), **tree.below(tree.version_path(version))}
    for name, entry in sorted(entries.items()):
        if entry is None or not (entry.is_file or entry.is_folder):
            continue
        mode, place = stat.S_IMODE(entry.mode), tree.version_path(version, *([name] if name else []))
        special = stat.S_ISUID | (0 if entry.is_folder else stat.S_ISGID)  # folders below a setgid one inherit it
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            yield TreeProblem(place=place, why=f"has mode {mode:04o}: others than its owner may change it")
        elif mode & special:
            yield TreeProblem(place=place, why=f"has mode {mode:04o}: whoever runs it gets other rights")
        elif not mode & stat.S_IROTH and (entry.is_folder or place in tree.digests):  # `_files` names what nobody could read here
            yield TreeProblem(place=place, why=f"has mode {mode:04o}: a web server cannot read it")


def pointer_problems(tree: ReleaseTree) -> Iterator[TreeProblem]:
    """Yield the problem of a tree whose pointer is missing, is no link, or leads to no version that is there."""
    place = tree.path(tree.layout.pointer)
    entry = tree.entries.get(place)
    if entry is None:
        if tree.versions:
            yield TreeProblem(place=place, why="is missing: nodes find no version")
    elif not tree.current:
        yield TreeProblem(place=place, why=f"leads to {entry.target!r}, which is no version" if entry.is_link else "is no link")
    elif tree.current not in tree.versions:
        yield TreeProblem(place=place, why=f"leads to {tree.current}, which is not there")


def _history(tree: ReleaseTree) -> Iterator[TreeProblem]:
    place = tree.path(release_layout.HISTORY)
    switches, unreadable = release_layout.read_history(tree.contents.get(place, b""))
    if unreadable:
        yield TreeProblem(place=place, why=f"has {unreadable} lines that cannot be read")
    elif switches and switches[0].before:
        yield TreeProblem(place=place, why=f"begins with a switch from {switches[0].before}: the lines before it are missing")
    for number, (earlier, later) in enumerate(itertools.pairwise(switches), start=2):
        # a switch from no version follows a pointer that was lost
        if later.before not in ("", earlier.to):
            why = f"line {number} switches from {later.before}, but the line before leads to {earlier.to}"
            yield TreeProblem(place=place, why=f"{why}: a line is missing or altered")
    for number, switch in enumerate(switches, start=1):
        if release_layout.number_of(switch.to) < 0:
            yield TreeProblem(place=place, why=f"line {number} leads to {switch.to!r}, which is no version")
    if tree.current and (not switches or switches[-1].to != tree.current):
        yield TreeProblem(place=place, why=f"does not end with {tree.current}, which the pointer names")


def _strays(tree: ReleaseTree) -> Iterator[TreeProblem]:
    for name in tree.names(tree.path(release_layout.VERSIONS)):
        if name not in tree.versions:
            yield TreeProblem(place=tree.path(release_layout.VERSIONS, name), why="is no version")
    strays = tree.strays
    if strays == tree.incoming:  # no process holds the lock, so nobody is at work on these
        for name in strays:
            why = "was left by a publication that did not end; the next removes it"
            yield TreeProblem(place=tree.path(release_layout.INCOMING, name), why=why)
