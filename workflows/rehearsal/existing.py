"""What a command line says of the API server to rehearse in: an `Existing`, or one sentence about what cannot be meant."""

import ipaddress
import math
import re
from pathlib import Path

from workflows.rehearsal.processes import Existing

_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")


class CannotBeMeant(ValueError):
    """Options about an API server that contradict each other, or that no simulator could follow."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


def existing(kubeconfig: Path | None, roles_off: str, speed: float | None, nodes_at: str) -> Existing | None:
    """The API server that is asked for; None for an emulated one. `speed` is None where none was given. Raises CannotBeMeant."""
    given = {"--roles-off": roles_off, "--speed": speed is not None, "--nodes-at": nodes_at}
    if kubeconfig is None:
        if named := [option for option, value in given.items() if value]:
            raise CannotBeMeant(
                f"{named[0]} is about an API server that is there already, and none is named",
                f"name it with --kubeconfig, or leave {named[0]} out",
            )
        return None
    off = _roles(roles_off)
    if speed is not None and not off:
        raise CannotBeMeant(
            f"--speed {speed:g} is for --roles-off: without real programs beside it simulated time passes as fast as it can",
            "leave --speed out, or name the roles that real programs play with --roles-off",
        )
    if speed is not None and not (math.isfinite(speed) and speed > 0):
        raise CannotBeMeant(f"--speed {speed:g} would stop the time", "give a number above 0, as in --speed 30")
    if nodes_at and not _is_address(nodes_at):
        raise CannotBeMeant(
            f"--nodes-at {nodes_at!r} is neither an IP address nor a host name",
            "give this machine's address as that API server reaches it, without port, as in --nodes-at 192.0.2.7",
        )
    pace = 1.0 if speed is None else speed
    return Existing(kubeconfig=kubeconfig, roles_off=off, speed=pace if off else 0.0, nodes_at=nodes_at)


def _roles(text: str) -> tuple[str, ...]:
    named = tuple(name for part in text.split(",") if (name := part.strip()))
    if not named:
        if text:
            raise CannotBeMeant(f"--roles-off {text!r} names no role", "name roles with commas between them, or leave it out")
        return ()
    from workflows.rehearsal.simulator.role import roles  # every role's module: nobody else needs them before the simulator starts

    try:
        roles(frozenset(named))
    except ValueError as error:
        raise CannotBeMeant(f"--roles-off: {error}", "name roles of this list, with commas between them") from error
    return named


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None and not text.rpartition(".")[2].isdigit()
    return True
