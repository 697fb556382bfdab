"""The command-line options that name an existing API server for a rehearsal, checked and turned into an `ExistingServer`."""

import ipaddress
import math
import re
from pathlib import Path

from workflows.rehearsal.simulated_cluster import ExistingServer

_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")


class ContradictoryOptions(ValueError):
    """Raised for options about an API server that contradict each other or have an impossible value; `hint` says what to do."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


def existing_server(kubeconfig: Path | None, roles_off: str, speed: float | None, nodes_at: str) -> ExistingServer | None:
    """Return the API server that the options name, or None without `--kubeconfig`: the rehearsal then starts an emulated one.

    `speed` is in virtual seconds per real second, None if the option was not given. Raises ContradictoryOptions.
    """
    options = {"--roles-off": roles_off, "--speed": speed is not None, "--nodes-at": nodes_at}
    if kubeconfig is None:
        if named := [option for option, value in options.items() if value]:
            raise ContradictoryOptions(
                f"{named[0]} applies only to an existing API server, and none is named",
                f"name the API server with --kubeconfig, or leave {named[0]} out",
            )
        return None
    off = _roles(roles_off)
    if speed is not None and not off:
        raise ContradictoryOptions(
            f"--speed {speed:g} needs --roles-off: without real programs in the cluster, simulated time passes as fast as possible",
            "leave --speed out, or name the roles that real programs play with --roles-off",
        )
    if speed is not None and not (math.isfinite(speed) and speed > 0):
        raise ContradictoryOptions(f"--speed {speed:g} must be a number above 0", "give for instance --speed 30")
    if nodes_at and not _is_address(nodes_at):
        raise ContradictoryOptions(
            f"--nodes-at {nodes_at!r} is neither an IP address nor a host name",
            "give the address under which the API server reaches this machine, without a port, as in --nodes-at 192.0.2.7",
        )
    pace = 1.0 if speed is None else speed
    return ExistingServer(kubeconfig=kubeconfig, roles_off=off, speed=pace if off else 0.0, nodes_at=nodes_at)


def _roles(text: str) -> tuple[str, ...]:
    named = tuple(name for part in text.split(",") if (name := part.strip()))
    if not named:
        if text:
            raise ContradictoryOptions(
                f"--roles-off {text!r} names no role", "name roles with commas between them, or leave --roles-off out"
            )
        return ()
    # loads the modules of all roles, which nothing else needs before the simulator starts
    from workflows.rehearsal.simulator.world import load_roles

    try:
        load_roles(frozenset(named))
    except ValueError as error:
        raise ContradictoryOptions(f"--roles-off: {error}", "name roles of this list, with commas between them") from error
    return named


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None and not text.rpartition(".")[2].isdigit()
    return True
