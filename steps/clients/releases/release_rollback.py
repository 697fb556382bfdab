"""Rollback to a version that is still in the tree: one rename of the pointer, and a line in the history that says who did it."""

from msgspec import Struct

from steps.clients.releases import publication, release_lease, release_signatures, verification
from steps.clients.releases.release_kind import ReleaseKind, SharedFiles
from steps.clients.releases.release_tree import ReleaseTree
from steps.clients.releases.tree_operations import Remove, TreeTransport
from steps.contract import release_layout
from steps.errors import BadTask, Refused


class RollbackResult(Struct, frozen=True, kw_only=True):
    """Outcome of a rollback: the tree before it, the version that the pointer names now (`to`), and who did it.

    `before` is the version that the pointer named before, `signature` the state of the signature of `to`
    (`release_signatures.state`).
    """

    tree: ReleaseTree
    to: str
    before: str
    by: str
    signature: str


def roll_back(
    kind: ReleaseKind, transport: TreeTransport, product: str, version: str, actor: str, signers: tuple[str, ...] = ()
) -> RollbackResult:
    """Switch the pointer to a version (name or number); without one, to the version that was current before.

    Nothing is written if the version is current already: `to` and `before` are then the same. A rollback to it that was killed is
    completed. Raises BadTask for a version that is not there, Refused for one that is not whole, or that the kind refuses.
    """
    tree = transport.look(product)
    chosen, token = _choose(kind, tree, version), release_lease.new_token()
    if chosen == tree.current and not _is_unfinished(kind, tree):
        tree = transport.look(product, (chosen,))
        _refuse_broken(kind, tree, chosen, signers)
        return _result(kind, tree, chosen, chosen, actor, signers)
    with release_lease.hold_lease(transport, product, token, actor):
        chosen = _choose(kind, transport.look(product), version)  # the holder of the lock before may have switched
        tree = transport.look(product, (chosen,))
        _refuse_broken(kind, tree, chosen, signers)
        kind.refuse_rollback(tree, chosen, is_named=bool(version))
        staged = f"{tree.path(release_layout.INCOMING)}/{token}"
        transport.perform(
            (
                *publication.clear(tree, staged, token),
                *publication.switch(tree, chosen, staged, token, actor, rollback=True),
                *publication.shared_operations(tree, kind.shared_files(tree, chosen), staged),
                Remove(staged),
            )
        )

        def shared_files(tree: ReleaseTree) -> SharedFiles:
            return kind.shared_files(tree, chosen)

        publication.settle_shared_files(transport, shared_files, transport.look(product), token)
    return _result(kind, tree, chosen, tree.before if tree.current == chosen else tree.current, actor, signers)


def _result(kind: ReleaseKind, tree: ReleaseTree, to: str, before: str, actor: str, signers: tuple[str, ...]) -> RollbackResult:
    state = release_signatures.state(kind, tree, to, signers)
    return RollbackResult(tree=tree, to=to, before=before, by=actor, signature=state)


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
