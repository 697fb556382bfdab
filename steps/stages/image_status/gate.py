"""Gate of image_status: an image from which a person rolled back is not built again; every other answer lets the run go on."""

from steps.contract.release_layout import Switch, rolled_back_sentence
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.nodeimage.contract.boot_tree import REPUBLISH_HINT
from steps.stages.image_status.contract import CHANGED, LEFT, NOTHING, ImageStatus, ImageStatusExpectation
from steps.stages.shared.finding import fail, unknown

GATE = "image_status/tree"


def tree(seen: ImageStatus, want: ImageStatusExpectation) -> Verdict:
    """Check that the observation is about this image, and that no person rolled back from it."""
    if seen.key != want.key or not seen.key:
        about = f"image {seen.key[:12]}" if seen.key else "no image"
        step = "render again, and submit all files together"
        return unknown(FailureClass.INPUT, f"a tree was asked about {about}", f"image {want.key[:12]}", step).verdict(GATE)
    if seen.answer == LEFT and seen.left:
        left = rolled_back_sentence(Switch(to=seen.version, before=seen.left, by=seen.left_by, at=seen.left_at))
        expected = "an image that nobody went back from"
        return fail(FailureClass.INPUT, left, expected, REPUBLISH_HINT, final=True).verdict(GATE)
    if seen.is_current and seen.where:
        return passed(GATE, seen.sentence)
    if seen.answer == NOTHING and seen.where:
        return passed(GATE, f"to be built: {seen.where} has no version of it yet")
    if seen.answer == CHANGED and seen.where and seen.version and seen.differs:
        return passed(GATE, f"to be built: {seen.differs}")
    answer = f"{seen.where or 'no tree'} answered {seen.answer or 'nothing'}, and not all that belongs to it"
    step = "run again; if it stays so, report it as a bug"
    return unknown(FailureClass.RUNTIME, answer, "whether this image is published", step).verdict(GATE)
