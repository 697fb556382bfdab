"""Gate of image_layers: a layer is whole, holds the locked packages and no secret, and keeps its budget."""

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.image_layers.contract import Built, LayerExpectation
from steps.stages.shared.finding import Finding, fail, unknown

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
    """Check that a layer was built, has the locked packages and no build secret, and keeps its size budget."""
    if finding := _failure(seen, want) or _content(seen, want):
        return finding.verdict(GATE)
    how = "was cached" if seen.cached else f"was built in {seen.seconds:.0f} s"
    return passed(
        GATE, f"layer {want.layer} {how}: {seen.size / _MIB:.1f} MiB in {seen.files} files, {want.packages} packages in its root"
    )


def _failure(seen: Built, want: LayerExpectation) -> Finding | None:
    if seen.key != want.key:
        problem = f"layer {want.layer} has key {seen.key[:12] or 'none'}"
        step = "render the run again: the recipe or the builder has changed since"
        return fail(FailureClass.COMPARISON, problem, f"key {want.key[:12]}", step)
    if seen.secrets_found:
        problem = f"layer {want.layer} holds a build secret: {plain_text.some(seen.secrets_found, 3)}"
        step = "have the command read the secret from /run/secrets and write it nowhere; the layer was thrown away"
        return fail(FailureClass.INPUT, problem, "no secret's bytes in any file, name or link", step)
    if seen.failed:
        failure_class, step = _CAUSES.get(seen.failed.partition(" ")[0], _ELSE)
        problem = f"layer {want.layer}: {seen.failed} failed: {seen.output or 'it said nothing'}"
        return fail(failure_class, problem, f"all parts of layer {want.layer} built", step)
    return None


def _content(seen: Built, want: LayerExpectation) -> Finding | None:
    if not seen.digest:
        problem = f"nothing says what layer {want.layer} holds"
        return unknown(FailureClass.RUNTIME, problem, "the digest of its content", "read the log of the build")
    if len(set(seen.installed)) != want.packages:
        problem = f"the root with layer {want.layer} has {len(set(seen.installed))} packages"
        step = f"remove layer {want.key[:12]} from the store (bringup image gc), and build again"
        return fail(FailureClass.COMPARISON, problem, f"the {want.packages} locked ones", step)
    if want.budget_mib and seen.size > want.budget_mib * _MIB:
        problem = f"layer {want.layer} adds {-(-seen.size // _MIB)} MiB"
        step = "leave out what is not needed, or raise budget_mib of the layer"
        return fail(FailureClass.INPUT, problem, f"at most {want.budget_mib} MiB", step)
    return None
