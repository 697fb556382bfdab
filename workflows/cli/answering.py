"""What is said of an answered approval, whatever engine the run is on."""

from workflows.engines.approvals import Open

RUN = "run"
"""What stands before the first stage: the run's own evidence, which `open` wrote."""


def sentence(one: Open, who: str, *, reject: bool) -> str:
    """What was approved or rejected, by whom, on what evidence, and what becomes of the stage that waited."""
    what = f"the opening of {one.run}" if one.approved == RUN else f"{one.approved} in {one.run}"
    said = f"{'rejected' if reject else 'approved'} {what} as {who}, evidence {one.evidence}"
    return f"{said}; {one.stage} {'does not start' if reject else 'starts'}"
