"""A site's own role in a rehearsal: nobody can say what it would do, so it changes nothing and comes to its end."""

from collections.abc import Iterator

from steps.contract.play import PlayRequest
from steps.contract.site_roles import PLAYBOOK
from workflows.rehearsal.simulator.plays import Outcome, play
from workflows.rehearsal.simulator.world import World


@play(PLAYBOOK)
def site_role(world: World, request: PlayRequest) -> Iterator[Outcome]:
    """Every machine of the fleet says that it came to the end of the role."""
    role = request.role
    ran = {"role": role.name, "digest": role.digest} if role else {}
    for host in request.hosts:
        if host.name in world.fleet:
            yield Outcome(host=host.name, task="Come to the end of the role", action="role_ran", result={"observation": ran})
