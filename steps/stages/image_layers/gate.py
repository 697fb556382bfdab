"""Gate of image_layers: a layer is whole, holds the locked packages and no secret, and keeps its budget."""

from steps.contract import plain
from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive, passed
from steps.stages.image_layers.contract import Built, LayerExpectation

GATE = "image_layers/layer"
_MIB = 1 << 20
_CAUSES = {
    "packages": (FailureClass.DEPENDENCY, "read what the package manager said, correct the recipe or lock it again"),
    "users": (FailureClass.INPUT, "correct the users of the recipe, and build again"),
    "files": (FailureClass.INPUT, "correct the files of the recipe, and build again"),
    "commands": (FailureClass.RUNTIME, "correct the command, which ran as root without network in the layer, and build again"),
    "services": (FailureClass.INPUT, "name units that the packages and files of the recipe bring, and build again"),
}
"""Failure class and next step for each part of a layer that can fail."""
_ELSE = (FailureClass.RUNTIME, "build the layer below first, and see what it says")


def layer(seen: Built, want: LayerExpectation) -> Verdict:
    """Judge one layer."""
    if problem := _other(seen, want) or _failure(seen, want) or _content(seen, want):
        return problem
    how = "was cached" if seen.cached else f"was built in {seen.seconds:.0f} s"
    content = f"{seen.size / _MIB:.1f} MiB in {seen.files} files, {want.packages} packages in its root"
    return passed(GATE, f"layer {want.layer} {how}: {content}")


def _other(seen: Built, want: LayerExpectation) -> Verdict | None:
    if seen.key == want.key:
        return None
    return failed(
        GATE,
        FailureClass.COMPARISON,
        seen=f"layer {want.layer} has key {seen.key[:12] or 'none'}",
        expected=f"key {want.key[:12]}",
        next_step="render the run again: the recipe or the builder has changed since",
    )


def _failure(seen: Built, want: LayerExpectation) -> Verdict | None:
    if seen.secrets_found:
        return failed(
            GATE,
            FailureClass.INPUT,
            seen=f"layer {want.layer} holds a build secret: {plain.some(seen.secrets_found, 3)}",
            expected="no secret's bytes in any file, name or link",
            next_step="have the command read the secret from /run/secrets and write it nowhere; the layer was thrown away",
        )
    if seen.failed:
        failure_class, step = _CAUSES.get(seen.failed.partition(" ")[0], _ELSE)
        return failed(
            GATE,
            failure_class,
            seen=f"layer {want.layer}: {seen.failed} failed: {seen.output or 'it said nothing'}",
            expected=f"all parts of layer {want.layer} built",
            next_step=step,
        )
    return None


def _content(seen: Built, want: LayerExpectation) -> Verdict | None:
    if not seen.digest:
        return inconclusive(
            GATE,
            seen=f"nothing says what layer {want.layer} holds",
            expected="the digest of its content",
            next_step="read the log of the build",
            failure_class=FailureClass.RUNTIME,
        )
    if len(set(seen.installed)) != want.packages:
        return failed(
            GATE,
            FailureClass.COMPARISON,
            seen=f"the root with layer {want.layer} has {len(set(seen.installed))} packages",
            expected=f"the {want.packages} locked ones",
            next_step=f"remove layer {want.key[:12]} from the store (bringup image gc), and build again",
        )
    if want.budget_mib and seen.size > want.budget_mib * _MIB:
        return failed(
            GATE,
            FailureClass.INPUT,
            seen=f"layer {want.layer} adds {-(-seen.size // _MIB)} MiB",
            expected=f"at most {want.budget_mib} MiB",
            next_step="leave out what is not needed, or raise budget_mib of the layer",
        )
    return None
