"""Goes back to a version that is still there: one rename, and a line in the history of who did it."""

from collections.abc import Iterator

from msgspec import Struct

from steps.clients.published import entered, leads, locking, publishing, reading, signing, verifying
from steps.clients.published.operations import Folder, Operation, Remove, Transport
from steps.clients.published.tree import Tree
from steps.contract.image import published
from steps.contract.image import publishing as rules
from steps.errors import BadTask, Refused


class Back(Struct, frozen=True, kw_only=True):
    """What the pointer names now, what it named before, who did it, how the signature of that version is (`signing.state`), and
    from which address nodes fetch it, where that is another one than the tree has now (`leads.moved`)."""

    to: str
    before: str
    by: str
    signature: str
    elsewhere: str = ""


def rollback(transport: Transport, image: str, version: str, by: str, signers: tuple[str, ...] = ()) -> Back:
    """Point to a version, or without one to what was current before. Raises BadTask for a version that is not there, Refused for
    one that is not whole, be it current already, or that nodes of a group could not boot, and without a version for one that they
    fetch from another address. Nothing is written where it is current already (`to` and `before` are then the same); what another
    rollback to it has left undone is done."""
    found = transport.look(image)
    chosen, token = _chosen(found, version), locking.new_token()
    if chosen == found.current and not _is_unfinished(found):
        _refuse_broken(tree := transport.look(image, (chosen,)), chosen, signers)
        return _done(tree, chosen, chosen, by, signers)
    with locking.locked(transport, image, token, by):
        chosen = _chosen(transport.look(image), version)  # whoever had the lock may have switched
        tree = transport.look(image, (chosen,))
        _refuse_broken(tree, chosen, signers)
        _refuse_stranded(tree, chosen)
        if not version and chosen != tree.current:
            _refuse_moved(tree, chosen)
        staged = f"{tree.path(published.INCOMING)}/{token}"
        transport.perform(_steps(tree, chosen, staged, token, by))
        for _ in range(publishing.ENTERED_TRIES):
            if not (late := tuple(_entered(transport.look(image), chosen, staged))):
                break
            transport.perform(late)
    before = reading.before(tree) if tree.current == chosen else tree.current
    return _done(tree, chosen, before, by, signers)


def _done(tree: Tree, to: str, before: str, by: str, signers: tuple[str, ...]) -> Back:
    base, here = leads.base_of(tree, to), leads.url_of(tree)
    state = signing.state(tree, to, signers)
    return Back(to=to, before=before, by=by, signature=state, elsewhere=base if base and here and base != here else "")


def _is_unfinished(tree: Tree) -> bool:
    """Whether whoever switched to the current version was stopped behind the rename: before the history said so, or before machines
    were told, or before what was staged went."""
    stale = entered.stale(tree, reading.scripts(tree, tree.current))
    told = entered.is_told(tree, tree.current)
    return bool(reading.last_told(tree) != tree.current or not told or stale or reading.left(tree))


def _is_halfway_back(tree: Tree) -> bool:
    """Whether a rollback was stopped behind the rename: who asks for one again means that one."""
    switches = reading.history(tree)
    if not tree.current or not switches:
        return False
    if switches[-1].to == tree.current:
        return switches[-1].rollback and _is_unfinished(tree)
    return published.number_of(tree.current) < published.number_of(switches[-1].to)


def _refuse_broken(tree: Tree, version: str, signers: tuple[str, ...]) -> None:
    if wrong := list(verifying.of_version(tree, version, signers)):
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        others = ", ".join(name for name in tree.versions if name != version)
        hint = f"`bringup image verify` names all; go back to another one: {others}" if others else "publish it again"
        raise Refused(f"{version} is not whole: {wrong[0].place} {wrong[0].why}{more}", hint=hint)


def _refuse_stranded(tree: Tree, version: str) -> None:
    """Groups that can boot now must be able to boot then."""
    able = reading.scripts(tree, tree.current) if tree.current else {}
    led = {group for group, image in leads.entry_points(tree).items() if image == tree.image and group in able}
    led -= {name for name in led if published.is_machine(name)}  # these go back with the version
    if lost := sorted(led - set(reading.scripts(tree, version))):
        files = ", ".join(f"{published.BOOT}/{group}{published.SCRIPT}" for group in lost)
        fit = ", ".join(name for name in tree.versions if led <= set(reading.scripts(tree, name)))
        hint = f"go back to one that has: {fit}; or remove {files} by hand when no node loads it any more"
        raise Refused(f"{version} has no boot script for {', '.join(lost)}: their nodes could boot nothing", hint=hint)


def _refuse_moved(tree: Tree, version: str) -> None:
    """Whether another address still serves this tree only a person can say, who names the version then."""
    if address := leads.moved(tree).get(version):
        here, number = leads.url_of(tree), published.number_of(version)
        said = f"nodes would fetch {version} from {address}, where the tree was when it was published; now it is {here}"
        hint = f"where that still serves this tree: bringup image rollback {number}; else build that image again"
        raise Refused(said, hint=hint)


def _steps(tree: Tree, version: str, staged: str, token: str, by: str) -> tuple[Operation, ...]:
    return (
        *publishing.cleared(tree, staged, token),
        *publishing.switched(tree, version, staged, token, by, rollback=True),
        *entered.steps(tree, entered.of_version(tree, version), entered.stale(tree, reading.scripts(tree, version)), staged),
        Remove(staged),
    )


def _entered(tree: Tree, version: str, staged: str) -> Iterator[Operation]:
    """What machines are told to load, where it is not so: nothing, unless another image has just changed what is told to all."""
    if steps := tuple(entered.steps(tree, entered.of_version(tree, version), (), staged)):
        yield from (Folder(staged), *steps, Remove(staged))


def _chosen(tree: Tree, version: str) -> str:
    if not tree.versions:
        raise BadTask(f"there is no version of {tree.image} here", hint=f"images here: {', '.join(tree.images) or 'none'}")
    known = ", ".join(tree.versions)
    if not version and _is_halfway_back(tree):
        return tree.current
    if not version:
        if before := rules.previous(reading.history(tree), tree.current, tree.versions):
            return before
        others = ", ".join(name for name in tree.versions if name != tree.current)
        hint = f"name one: {others}" if others else "it is the only one; publish another first"
        raise BadTask(f"{tree.image} has no version before {tree.current or 'none'}", hint=hint)
    exact = [name for name in tree.versions if name == version or str(published.number_of(name)) == version.lstrip("0")]
    if len(exact) != 1:
        raise BadTask(f"{tree.image} has no version {version}", hint=f"versions here: {known}")
    return exact[0]
