"""Publication of a release: files are copied in beside the published ones, flushed, compared, and get their place by one rename.

Nothing of a version changes once it has its name. A process that is killed leaves its files in `incoming` and nowhere else.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from steps.clients.releases import pointer_statement, preflight, release_lease, release_signatures, usage, verification
from steps.clients.releases.release_kind import SharedFiles, StagedRelease, folders_of
from steps.clients.releases.release_tree import ReleaseTree
from steps.clients.releases.tree_operations import (
    BytesDiffer,
    CheckFile,
    ConfirmLock,
    Link,
    MakeFolder,
    Move,
    Operation,
    Put,
    Remove,
    Replace,
    Sync,
    TreeTransport,
)
from steps.contract import release_layout
from steps.contract.canonical import digest_bytes
from steps.contract.release_layout import ReleaseFile, ReleaseTarget, Switch
from steps.errors import BadTask, Refused

Say = Callable[[str], None]
SHARED_TRIES = 5
"""Times that shared files are checked after a switch, because other products may have changed them meanwhile.

Nobody changes them so often in a row.
"""


class PublishRequest(Struct, frozen=True, kw_only=True):
    """A request to publish a release to a target; `secrets` is the folder of the target's secret files.

    `by` names the run or command in the history. `known` is product → newest version that was seen there before. `again`: publish
    even a release from which a person rolled back, or to a tree that was made anew.
    """

    release: StagedRelease
    target: ReleaseTarget
    secrets: Path
    by: str
    again: bool = False
    known: Mapping[str, str] = {}


class PublishOutcome(Struct, frozen=True, kw_only=True):
    """Outcome of a publication: the tree, read back with the digests of the current version's files.

    `before` is the version that was current before, if it is still there, `removed` are versions that retention removed.
    `unchanged`: nothing was written.
    """

    tree: ReleaseTree
    before: str
    unchanged: bool
    removed: tuple[str, ...] = ()


def publish(transport: TreeTransport, request: PublishRequest, say: Say) -> PublishOutcome:
    """Publish a release, apply retention, and read the tree back. Nothing is written if the release is current already.

    Raises a StepError; files of a failed attempt then lie in `incoming`, and the next publication removes them.
    """
    release, target = request.release, request.target
    release.small_files(release_layout.version_name(0, release.digest))  # fails early if they cannot be made
    tree = transport.look(release.product)
    _refuse(transport.where, tree, request)
    if release.is_current(tree) and not tree.incoming:
        tree = transport.look(release.product, (tree.current,))
        if _is_done(tree, request):
            say(f"{release.product} {tree.current} is current already: nothing is written")
            return PublishOutcome(tree=tree, before=tree.kept_before, unchanged=True)
    preflight.refuse_release(tree, release, _new_version(tree, release))
    release_signatures.prove(release.kind, target, request.secrets)
    token = release_lease.new_token()
    with release_lease.hold_lease(transport, release.product, token, request.by):
        # another publisher may have changed everything before the lock was taken
        tree = transport.look(release.product, release.alike(tree))
        _refuse(transport.where, tree, request)
        version, removed = _change(transport, tree, request, token, say)
        after = settle_shared_files(transport, release.shared_files, transport.look(release.product, (version,)), token, (version,))
    before = tree.current if tree.current in tree.versions else ""  # a version that was gone before could not be kept
    before = after.kept_before if before == after.current else before
    return PublishOutcome(tree=after, before=before, unchanged=False, removed=removed)


def refuse_early(transport: TreeTransport, request: PublishRequest) -> ReleaseTree:
    """Return the tree before a publication, or raise the error that the publication would end with. Nothing is written.

    For a product that copies more than its version: a wrong mount, a rollback from this release, a bad key, or links that lead out.
    """
    release, target = request.release, request.target
    release.small_files(release_layout.version_name(0, release.digest))
    tree = transport.look(release.product)
    _refuse(transport.where, tree, request)
    _refuse_rolled_back(tree, request)
    preflight.refuse_release(tree, release, _new_version(tree, release))
    release_signatures.prove(release.kind, target, request.secrets)
    return tree


def settle_shared_files(
    transport: TreeTransport,
    shared_files: Callable[[ReleaseTree], SharedFiles],
    tree: ReleaseTree,
    token: str,
    digests: tuple[str, ...] = (),
) -> ReleaseTree:
    """Write the shared files, and read the tree again, until they are as they should be; return the tree.

    A lock is one product's, so another product may change common files meanwhile. Each publisher looks again after it wrote, so the
    last one has seen the files of all others.
    """
    for _ in range(SHARED_TRIES):
        staged = f"{tree.path(release_layout.INCOMING)}/{token}"
        late = tuple(shared_operations(tree, replace(shared_files(tree), stale=()), staged))
        if not late:
            break
        transport.perform((MakeFolder(staged), *late, Remove(staged)))
        tree = transport.look(tree.product, digests)
    return tree


def _change(
    transport: TreeTransport, tree: ReleaseTree, request: PublishRequest, token: str, say: Say
) -> tuple[str, tuple[str, ...]]:
    """Put the version in place, switch the pointer, and remove versions that retention does not keep.

    Return the version's name and the names of the removed ones. Raises Refused if a person rolled back from this release.
    """
    release, staged = request.release, f"{tree.path(release_layout.INCOMING)}/{token}"
    alike = _refuse_rolled_back(tree, request)
    suitable = [name for name in reversed(alike) if _is_suitable(tree, name, request)]
    suitable.sort(key=lambda name: name != tree.current)  # the pointer then stays where it is
    version = suitable[0] if suitable else _new_version(tree, release)
    preflight.refuse_release(tree, release, version)
    operations = [*clear(tree, staged, token)]
    if not suitable:
        say(f"copies {release.product} {version} to {transport.where}: {release.size / 1e6:.1f} MB")
        operations += _copy(tree, request, version, staged, token)
    statement = pointer_statement.make(release.kind, release.product, version, request.target, request.secrets)
    operations += switch(tree, version, staged, token, request.by, statement=statement)
    operations += shared_operations(tree, release.shared_files(tree), staged)
    removed = spare(release, tree, request.target.keep, version)
    operations += _remove_versions(tree, removed, staged, token)
    try:
        transport.perform(operations)
    except BytesDiffer:
        examine(release.folder, release.files)  # if the source itself is wrong, no other try helps
        raise
    replaced = f", it was {tree.current}" if tree.current not in ("", version) else ""
    say(f"{release.product}: {version} is current{replaced}")
    return version, removed


def _refuse_rolled_back(tree: ReleaseTree, request: PublishRequest) -> tuple[str, ...]:
    """Return the versions that hold the release, oldest first. Raises Refused if a person rolled back from it."""
    release = request.release
    alike = release.alike(tree)
    rollback = release.rolled_back(tree, alike)
    if rollback and not request.again:
        hint = f"change the recipe, or publish it again on purpose: {release.kind.command} build --again"
        raise Refused(release_layout.rolled_back_sentence(rollback), hint=hint)
    return alike


def _new_version(tree: ReleaseTree, release: StagedRelease) -> str:
    return release_layout.version_name(release_layout.next_number(tree.versions, tree.history), release.digest)


def _copy(tree: ReleaseTree, request: PublishRequest, version: str, staged: str, token: str) -> Iterator[Operation]:
    """Yield the operations that copy a version into `incoming`, flush and compare it, and then give it its name."""
    release, folder, versions = request.release, f"{staged}/version", tree.path(release_layout.VERSIONS)
    files = {tree.layout.manifest: release.manifest, **release.small_files(version)}
    files[release_layout.SUMS] = release_layout.encode_sums(files, release.files)
    files |= release_signatures.sign(release.kind, files, request.target, request.secrets)
    names = [*files, *(file.name for file in release.files), *release.links]
    folders = sorted(folders_of(names) | set(release.kind.folders))
    yield from (MakeFolder(f"{folder}/{name}") for name in folders or ["."])
    yield from (Link(f"{folder}/{name}", target) for name, target in release.links.items())
    yield from (Put(f"{folder}/{file.name}", release.folder / file.name, file.size) for file in release.files)
    yield from (Put(f"{folder}/{name}", data, len(data)) for name, data in files.items())
    yield from (CheckFile(f"{folder}/{file.name}", file.size, file.digest) for file in release.files)
    yield from (CheckFile(f"{folder}/{name}", len(data), digest_bytes(data)) for name, data in files.items())
    # inner folders first: after a power loss no name may stand for files that are not on disk
    yield from (Sync(f"{folder}/{name}") for name in reversed(folders))
    yield from (Sync(folder), MakeFolder(versions), Sync(tree.product), Sync("."))
    yield from (ConfirmLock(tree.path(release_layout.INCOMING), token), Move(folder, f"{versions}/{version}"), Sync(versions))


def shared_operations(tree: ReleaseTree, shared: SharedFiles, staged: str) -> Iterator[Operation]:
    """Yield the operations that write each differing shared file by one rename, and then remove stale ones.

    Files that another product has made meanwhile are not replaced, except for common ones.
    """
    folder = tree.layout.shared
    other = {name: data for name, data in shared.files.items() if tree.contents.get(f"{folder}/{name}") != data}
    if other:
        yield from (MakeFolder(folder), Sync("."))
        yield from (Put(f"{staged}/{name}", data, len(data)) for name, data in other.items())
        for name in other:
            path = f"{folder}/{name}"
            replaces = path in tree.entries or name in shared.common
            yield Replace(f"{staged}/{name}", path) if replaces else Move(f"{staged}/{name}", path)
    yield from (Remove(f"{folder}/{name}") for name in shared.stale)
    if other or shared.stale:
        yield Sync(folder)


def switch(
    tree: ReleaseTree, version: str, staged: str, token: str, actor: str, *, rollback: bool = False, statement: bytes = b""
) -> Iterator[Operation]:
    """Yield the operations that switch the pointer to a version: one rename of a new link, then one rename of the new history.

    The signed `statement` about the pointer follows by a third one. Without a new one, an old one that names another version is
    removed.

    Both are prepared before the lock is confirmed, because a flush may take longer than the lease. A process that is killed between
    the two renames leaves the new history in `incoming`, where `ReleaseTree.history` finds it.
    """
    lines, incoming = _history_lines(tree, version, actor, rollback=rollback), tree.path(release_layout.INCOMING)
    stated, place = f"{staged}/{tree.layout.pointer}.json", pointer_statement.path(tree)
    history, link = f"{staged}/{release_layout.HISTORY}", f"{staged}/{tree.layout.pointer}"
    if lines:
        data = b"".join(map(release_layout.history_line, (*tree.history, *lines)))
        yield from (Put(history, data, len(data)), Sync(staged), Sync(incoming))
    if tree.current != version:
        yield from (Link(link, f"{release_layout.VERSIONS}/{version}"), Sync(staged))
    if statement:
        yield from (Put(stated, statement, len(statement)), Sync(staged))
    yield ConfirmLock(incoming, token)
    if tree.current != version:
        yield from (Replace(link, tree.path(tree.layout.pointer)), Sync(tree.product))
    if lines:
        yield from (Replace(history, tree.path(release_layout.HISTORY)), Sync(tree.product))
    if statement:
        yield from (Replace(stated, place), Sync(tree.product))
    elif tree.current != version and place in tree.entries:
        yield from (Remove(place), Sync(tree.product))


def _history_lines(tree: ReleaseTree, version: str, actor: str, *, rollback: bool) -> list[Switch]:
    """Return the lines that the history lacks: this switch, and before it one that a killed publisher made and did not record."""
    switches, now = tree.history, round(time.time(), 3)
    last = switches[-1].to if switches else ""
    lines = []
    if rollback and tree.current == version != last and release_layout.number_of(version) < release_layout.number_of(last):
        # Another rollback to the same version was killed: this one completes it.
        lines.append(Switch(to=version, before=last, at=now, by=actor, rollback=True))
    elif tree.current and last != tree.current:
        lines.append(Switch(to=tree.current, before=last, at=now, by="found: whoever switched to it was stopped before saying so"))
    if tree.current != version:
        lines.append(Switch(to=version, before=tree.current, at=now, by=actor, rollback=rollback))
    return lines


def clear(tree: ReleaseTree, staged: str, token: str) -> Iterator[Operation]:
    """Yield the operations that empty `incoming` and make the folder `staged` there.

    If a killed attempt switched the pointer, its prepared history is saved first.
    """
    if (history := tree.history) != tree.recorded_history:
        data, path = b"".join(map(release_layout.history_line, history)), f"{staged}/{release_layout.HISTORY}"
        yield from (MakeFolder(staged), Put(path, data, len(data)), ConfirmLock(tree.path(release_layout.INCOMING), token))
        yield from (Replace(path, tree.path(release_layout.HISTORY)), Sync(tree.product))
    yield from (Remove(tree.path(release_layout.INCOMING, name)) for name in tree.strays)
    yield MakeFolder(staged)


def _remove_versions(tree: ReleaseTree, names: tuple[str, ...], staged: str, token: str) -> Iterator[Operation]:
    """Yield the operations that remove versions and the folder `staged`.

    A version loses its name first, so that no reader sees half of one.
    """
    if names:
        yield ConfirmLock(tree.path(release_layout.INCOMING), token)
        yield from (Move(tree.version_path(name), f"{staged}/{name}") for name in names)
        yield Sync(tree.path(release_layout.VERSIONS))
    yield Remove(staged)


def spare(release: StagedRelease, tree: ReleaseTree, keep: int, version: str) -> tuple[str, ...]:
    """Return the versions that retention removes once `version` is current.

    They are not among the newest `keep`, not current, not what a rollback would go to, and not on any node.
    """
    versions = (*tree.versions, *((version,) if version not in tree.versions else ()))
    history = [*tree.history, Switch(to=version, before=tree.current)]
    running = usage.in_use(release.kind, tree)
    protected = {version, tree.current, release_layout.previous(history, version, tree.versions), *running}
    stay = release_layout.retained_versions(versions, keep, protected)
    return tuple(name for name in tree.versions if name not in stay)


def _refuse(where: str, tree: ReleaseTree, request: PublishRequest) -> None:
    if not request.again:
        preflight.refuse_wrong_mount(request.release.kind, tree, where, request.known)
    request.release.refuse(tree)


def _is_suitable(tree: ReleaseTree, version: str, request: PublishRequest) -> bool:
    """Return True if a version that holds this release is whole and signed as the target asks for: nothing is copied."""
    release, target = request.release, request.target
    if not (release.is_suitable(tree, version) and release_signatures.suits(release.kind, tree, version, target)):
        return False
    return not any(verification.problems_for_target(release.kind, tree, version, target))


def _is_done(tree: ReleaseTree, request: PublishRequest) -> bool:
    """Return True if the release is current, whole and signed, shared files are right, and retention has nothing to remove."""
    release, shared = request.release, request.release.shared_files(tree)
    settled_files = all(tree.contents.get(f"{tree.layout.shared}/{name}") == data for name, data in shared.files.items())
    if not settled_files or shared.stale or tree.last_recorded != tree.current:
        return False
    if not pointer_statement.is_fresh(release.kind, tree, request.target):
        return False
    return not spare(release, tree, request.target.keep, tree.current) and _is_suitable(tree, tree.current, request)


def examine(folder: Path, files: Iterable[ReleaseFile]) -> None:
    """Read the files of a release at their source and compare digests. Raises BadTask for the first that differs."""
    for file in files:
        with (folder / file.name).open("rb") as stream:
            digest = "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != file.digest:
            raise BadTask(f"{folder / file.name} has the digest {digest}, its manifest says {file.digest}", hint="build it again")
