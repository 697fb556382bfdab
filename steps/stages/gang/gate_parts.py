"""Judges that each planned scheduler runs once: a second Volcano, KAI or Kueue places or admits the same gangs."""

from collections.abc import Iterator

from steps.contract.verdict import FailureClass
from steps.stages.gang.contract import ControlExpectation, ControlObservation, Scheduler
from steps.stages.shared.finding import Finding, fail

_OWN = {"volcano-scheduler": Scheduler.VOLCANO, "kai-operator": Scheduler.KAI, "kueue-controller-manager": Scheduler.KUEUE}
"""Name of a planned Deployment → the product that it belongs to."""
_NAMES = {Scheduler.VOLCANO: "Volcano", Scheduler.KAI: "KAI Scheduler", Scheduler.KUEUE: "Kueue"}


def judge_parts(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    """Yield a problem for each part of a planned scheduler that the planned release did not bring.

    A Deployment of ours is known by namespace and name together. Helpers in the namespace of the release that only name the
    scheduler or serve its webhooks belong to it.
    """
    spaces = {_OWN[name]: space for space, _, name in (text.partition("/") for text in want.deployments) if name in _OWN}
    for part in seen.parts:
        space = spaces.get(part.product)
        place = part.name.partition(" ")[2]
        own = place in want.deployments or (place.partition("/")[0] == space and not part.image)
        if space is None or own:
            continue
        evidence = f"image {part.image}" if part.image else f"it serves {part.serves}"
        problem = f"a second {_NAMES[part.product]} runs: {part.name} ({evidence})"
        step = "remove it, or let it be the only one: take the scheduler out of this spec"
        yield fail(
            FailureClass.COMPARISON, problem, f"only the one in namespace {space}: two act on the same pods and queues", step
        )
