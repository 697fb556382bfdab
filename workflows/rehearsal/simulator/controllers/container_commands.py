"""Commands that steps run in containers of simulated pods (exec): who plays them, by the check that their first words name.

Steps run a command as `env CHECK=NAME KEY=VALUE… PROGRAM ARGUMENTS…`. The module of a stage plays the check NAME.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from workflows.rehearsal.simulator.api.api_kinds import PODS, Obj
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.machines.played_commands import CommandRequest, PlayedOutput
from workflows.rehearsal.simulator.world import World

Player = Callable[[World, Obj, Mapping[str, str]], PlayedOutput]
"""A function that plays a command: it gets the world, the pod, and the variables of the command."""

_PLAYERS: dict[str, Player] = {}


def container_command(check: str) -> Callable[[Player], Player]:
    """Return a decorator that registers who plays the commands of a check."""

    def register(player: Player) -> Player:
        _PLAYERS[check] = player
        return player

    return register


def play(world: World, request: CommandRequest) -> PlayedOutput:
    """Play a command in a container that runs; a kubelet refuses it in any other."""
    pod = world.find(PODS, request.pod, request.namespace)
    if pod is None or not simulated_pods.ready(pod):
        return PlayedOutput(refused=f'unable to upgrade connection: container not found ("{request.container}")')
    variables = variables_of(request.command)
    player = _PLAYERS.get(variables.get("CHECK", ""))
    if player is None:
        program = next((word for word in request.command if "=" not in word and word != "env"), "")
        return PlayedOutput(stderr=f"{program}: not found in the simulated container\n", code=127)
    return player(world, pod, variables)


def variables_of(command: Sequence[str]) -> dict[str, str]:
    """Return the variables that `env KEY=VALUE…` sets at the beginning of a command; empty for any other command."""
    variables: dict[str, str] = {}
    for word in command[1:] if command[:1] == ("env",) else ():
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            break
        variables[key] = value
    return variables
