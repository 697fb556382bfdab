"""Rollback to a version that is still in the tree: one rename of the pointer, and a line in the history that says who did it."""

from pathlib import Path

from msgspec import Struct

from steps.clients.releases import pointer_statement, publication, release_lease, release_signatures, verification
from steps.clients.releases.release_kind import ReleaseKind, SharedFiles
from steps.clients.releases.release_tree import ReleaseTree
from steps.clients.releases.tree_operations import Remove, TreeTransport
from steps.contract import release_layout
from steps.errors import BadTask, Refused


class PointerSwitch(Struct, frozen=True, kw_only=True):
    """Outcome of a rollback for people: the version that the pointer names now (`to`), the one `before`, and who did it.

    `signature` is the state of the signature of `to` (`release_signatures.state`). `statement` says what became of the signed
    statement about the pointer: `signed` anew, `kept`, `missing` (one was there, or is due by the trusted keys, and this rollback
    had no key), or `none` where none is due.
    """

    to: str
    before: str
    by: str
    signature: str
    statement: str = pointer_statement.NONE

    @property
    def is_unchecked(self) -> bool:
        """Return True if the version is signed, and no key is trusted by which that could be checked."""
        return self.signature == release_signatures.UNKNOWN

    @property
    def is_unstated(self) -> bool:
        """Return True if a signed statement about the pointer is due, but none names the current version any more."""
        return self.statement == pointer_statement.MISSING

    @property
    def is_signed(self) -> bool:
        """Return True if the rollback signed a new statement about the pointer."""
        return self.statement == pointer_statement.SIGNED


class RollbackResult(PointerSwitch, frozen=True, kw_only=True):
    """Outcome of a rollback with the tree as it was before it."""

    tree: ReleaseTree


def roll_back(
    kind: ReleaseKind,
    transport: TreeTransport,
    product: str,
    version: str,
    actor: str,
    signers: tuple[str, ...] = (),
    key: Path | None = None,
) -> RollbackResult:
    """Switch the pointer to a version (name or number); without one, to the version that was current before.

    `key` is the private key that signs a new statement about the pointer; without one, an old statement is taken away. Nothing is
    written if the version is current already and needs no new statement: `to` and `before` are then the same. A rollback to it that
    was killed is completed. Raises BadTask for a version that is not there, or a key that is not trusted; Refused for a version
    that is not whole, or that the kind refuses.
    """
    tree = transport.look(product)
    chosen, token = _choose(kind, tree, version), release_lease.new_token()
    is_current = chosen == tree.current and not _is_unfinished(kind, tree)
    if is_current and (key is None or not any(pointer_statement.problems(kind, tree, signers, required=True))):
        tree = transport.look(product, (chosen,))
        _refuse_broken(kind, tree, chosen, signers)
        return _result(kind, tree, chosen, chosen, actor, signers)
    with release_lease.hold_lease(transport, product, token, actor):
        chosen = _choose(kind, transport.look(product), version)  # the holder of the lock before may have switched
        tree = transport.look(product, (chosen,))
        _refuse_broken(kind, tree, chosen, signers)
        kind.refuse_rollback(tree, chosen, is_named=bool(version))
        statement = pointer_statement.sign(kind, product, chosen, key, signers) if key else b""
        staged = f"{tree.path(release_layout.INCOMING)}/{token}"
        transport.perform(
            (
                *publication.clear(tree, staged, token),
                *publication.switch(tree, chosen, staged, token, actor, rollback=True, statement=statement),
                *publication.shared_operations(tree, kind.shared_files(tree, chosen), staged),
                Remove(staged),
            )
        )

        def shared_files(tree: ReleaseTree) -> SharedFiles:
            return kind.shared_files(tree, chosen)

        publication.settle_shared_files(transport, shared_files, transport.look(product), token)
    before = chosen if is_current else tree.before if tree.current == chosen else tree.current
    return _result(kind, tree, chosen, before, actor, signers, is_signed=bool(statement))


def _result(
    kind: ReleaseKind, tree: ReleaseTree, to: str, before: str, actor: str, signers: tuple[str, ...], *, is_signed: bool = False
) -> RollbackResult:
    """Return the outcome of a rollback; `tree` is as it was before it."""
    state = release_signatures.state(kind, tree, to, signers)
    was_there = pointer_statement.path(tree) in tree.entries
    if is_signed:
        statement = pointer_statement.SIGNED
    elif was_there and tree.current == to:
        statement = pointer_statement.KEPT
    else:
        statement = pointer_statement.MISSING if was_there or signers else pointer_statement.NONE
    return RollbackResult(tree=tree, to=to, before=before, by=actor, signature=state, statement=statement)


def _is_unfinished(kind: ReleaseKind, tree: ReleaseTree) -> bool:
    """Return True if a process that switched to the current version was killed after it had renamed the pointer."""
    shared = kind.shared_files(tree, tree.current)
    # An older version of bringup may have written common files in another form: they do not count.
    own = {name: data for name, data in shared.files.items() if name not in shared.common}
    settled = all(tree.contents.get(f"{tree.layout.shared}/{name}") == data for name, data in own.items())
    return bool(tree.last_recorded != tree.current or not settled or shared.stale or tree.unfinished)


def _is_halfway_back(kind: ReleaseKind, tree: ReleaseTree) -> bool:
    """Return True if a rollback was killed after it had renamed the pointer.

    Whoever then asks for a rollback without naming a version means that one.
    """
    switches = tree.history
    if not tree.current or not switches:
        return False
    if switches[-1].to == tree.current:
        return switches[-1].rollback and _is_unfinished(kind, tree)
    return release_layout.number_of(tree.current) < release_layout.number_of(switches[-1].to)


def _refuse_broken(kind: ReleaseKind, tree: ReleaseTree, version: str, signers: tuple[str, ...]) -> None:
    if problems := list(verification.version_problems(kind, tree, version, signers)):
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        others = ", ".join(name for name in tree.versions if name != version)
        hint = f"`{kind.command} verify` names all; go back to another one: {others}" if others else "publish it again"
        raise Refused(f"{version} is not whole: {problems[0].place} {problems[0].why}{more}", hint=hint)


def _choose(kind: ReleaseKind, tree: ReleaseTree, version: str) -> str:
    """Return the name of the version to roll back to, from a name, a number or nothing. Raises BadTask if there is none."""
    if not tree.versions:
        hint = f"{kind.noun}s here: {', '.join(tree.products) or 'none'}"
        raise BadTask(f"there is no version of {tree.product} here", hint=hint)
    if not version and _is_halfway_back(kind, tree):
        return tree.current
    if not version:
        if before := release_layout.previous(tree.history, tree.current, tree.versions):
            return before
        others = ", ".join(name for name in tree.versions if name != tree.current)
        hint = f"name one: {others}" if others else "it is the only one; publish another first"
        raise BadTask(f"{tree.product} has no version before {tree.current or 'none'}", hint=hint)
    matching = [name for name in tree.versions if name == version or str(release_layout.number_of(name)) == version.lstrip("0")]
    if len(matching) != 1:
        raise BadTask(f"{tree.product} has no version {version}", hint=f"versions here: {', '.join(tree.versions)}")
    return matching[0]
