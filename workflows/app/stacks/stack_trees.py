"""Open the published root of a command about stacks; given by path, or by the stack spec that publishes there."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from steps.contract.release_layout import ReleaseTarget
from steps.softwarestack import stack_kind
from workflows.app import release_trees
from workflows.app.release_trees import NoTree, OpenedTree
from workflows.app.stacks import stack_pipeline
from workflows.softwarestack.stack_spec import SIGN_KEY
from workflows.stages.host_access import SecretFile, secret_file

HINT = "name the folder that stacks are published to, or a stack spec (stack.yaml)"
_NOUN = "stack"


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


def signing_key(tree: str, own: Path | None) -> AbstractContextManager[Path | None]:
    """Return a context manager with the publisher's private key: the user's own file, else that of the spec in `publish.sign`."""
    return release_trees.signing_key(tree, own, _sign_key)


def _sign_key(path: Path) -> SecretFile | None:
    sign = stack_pipeline.read(str(path))[1].publish.sign
    return secret_file(SIGN_KEY, sign) if sign else None
