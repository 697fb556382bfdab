"""Open the published root of a command about stacks; given by path, or by the stack spec that publishes there."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import release_layout
from steps.contract.release_layout import ReleaseTarget
from steps.softwarestack.publication import stack_kind
from workflows.app import release_trees
from workflows.app.release_trees import NoTree, OpenedTree
from workflows.app.stacks import stack_pipeline
from workflows.softwarestack.stack_spec import SIGN_KEY
from workflows.stages.host_access import SecretFile, secret_file

HINT = "name the folder that stacks are published to, or a stack spec (stack.yaml)"
_NOUN = "stack"
CURRENT, BEFORE = "current", "before"
"""Words for the version that the pointer names, and for the one that it named before."""


@contextmanager
def opened(tree: str, stack: str) -> Iterator[OpenedTree[ReleaseTarget]]:
    """Open a published root in this context; `tree` is its folder, a stack's folder in it, or a stack spec. Raises NoTree.

    A spec means its own stack; with a folder and without `stack`, all stacks are meant.
    """
    path = Path(tree)
    if path.is_dir():
        root, name = release_trees.root_and_product(path, stack)
        place = ReleaseTarget(root=str(root))
    elif path.is_file():
        _, spec = stack_pipeline.read(tree)
        name, place = stack or spec.name, ReleaseTarget(root=spec.publish.root, signers=spec.publish.signers)
        if not Path(place.root).is_dir():
            message = f"{tree} publishes to {place.root}, which is no folder of this machine"
            raise NoTree(message, "mount it, or run this command on the machine that has it")
    else:
        raise NoTree(f"{tree!r} is neither a folder nor a file", HINT)
    with stack_kind.connect(place, path.parent) as transport:
        yield OpenedTree(transport=transport, place=place, product=name, noun=_NOUN, hint=HINT)


def chosen_version(look: ReleaseTree, name: str, hint: str = "") -> str:
    """Return the version that a command's argument names: the version itself, its number, `current` or `before`.

    Raises NoTree, with the versions that are there and `hint`.
    """
    if name == BEFORE and look.versions and not look.kept_before:
        message = f"{look.product} has no version before {look.current or 'a current one'}"
        raise NoTree(message, f"name one of {', '.join(look.versions)}{hint and '; '}{hint}")
    words = {CURRENT: look.current, BEFORE: look.kept_before}
    names = [version for version in look.versions if version == words.get(name, name) or _is_number(version, name)]
    if len(names) != 1:
        versions = f"versions here: {', '.join(look.versions) or 'none'}"
        either = "neither a file nor a" if hint else "no"
        raise NoTree(f"{name!r} is {either} version of {look.product}", f"{versions}; {hint}" if hint else versions)
    return names[0]


def _is_number(version: str, name: str) -> bool:
    return name.isascii() and name.isdigit() and release_layout.number_of(version) == int(name)


def signing_key(tree: str, own: Path | None) -> AbstractContextManager[Path | None]:
    """Return a context manager with the publisher's private key: the user's own file, else that of the spec in `publish.sign`."""
    return release_trees.signing_key(tree, own, _sign_key)


def _sign_key(path: Path) -> SecretFile | None:
    sign = stack_pipeline.read(str(path))[1].publish.sign
    return secret_file(SIGN_KEY, sign) if sign else None
