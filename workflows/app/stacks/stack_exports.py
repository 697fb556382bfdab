"""The use case of `bringup stack export`: write a published version as an OCI image."""

import os
from pathlib import Path

from steps.softwarestack.publication import stack_image
from steps.softwarestack.publication.stack_image import ARCHIVE, StackImage
from workflows.app.run_options import UsageError
from workflows.app.stacks import stack_trees


def export(tree: str, stack: str, version: str, signers: tuple[str, ...], target: Path) -> StackImage:
    """Write a version of the only or chosen stack to an archive (`target` ends with `.tar`) or a new folder.

    Without `signers`, the spec's trusted keys are taken. Raises NoTree, UsageError for an unusable target, and Refused for a
    version that does not verify.
    """
    _require_target(target)
    with stack_trees.opened(tree, stack) as opened_tree:
        name = opened_tree.only()
        chosen = stack_trees.chosen_version(opened_tree.transport.look(name), version)
        look = opened_tree.transport.look(name, (chosen,))
        root = Path(opened_tree.place.root)
        return stack_image.export(root, look, chosen, signers or opened_tree.place.signers, target.absolute())


def _require_target(target: Path) -> None:
    if not target.absolute().parent.is_dir():
        raise UsageError(f"--to {target}: its folder is not there; make it, or name another path")
    if target.suffix == ARCHIVE and target.is_dir():
        raise UsageError(f"--to {target}: it is a folder, and this name is one of an archive; name another path")
    if target.suffix != ARCHIVE and os.path.lexists(target):
        raise UsageError(f"--to {target}: it is there already; name a new folder, or an archive that ends with {ARCHIVE}")
