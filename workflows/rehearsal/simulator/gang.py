"""Gang scheduling and quota: the simulated Volcano, KAI and Kueue; importing them registers their charts and pods."""

from __future__ import annotations

from workflows.rehearsal.simulator.gang_kai import Kai
from workflows.rehearsal.simulator.gang_kueue import Kueue
from workflows.rehearsal.simulator.gang_volcano import Volcano
from workflows.rehearsal.simulator.kinds import Obj
from workflows.rehearsal.simulator.programs import Run, check
from workflows.rehearsal.simulator.world import World


@check("gang-oversize")
@check("gang-fit")
def member(_world: World, _pod: Obj, _node: str) -> Run:
    """A member of a gang sleeps until it is deleted."""
    return Run()


ROLES = (Volcano, Kai, Kueue)
