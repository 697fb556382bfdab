"""Machines of a factory as they tell themselves before a rebuild: who works on them, which boot it is, and if RKE2 is there."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.contract import plain_text
from steps.contract.host_play import HostOutcome
from workflows.app.factories import host_plays
from workflows.app.factories.rebuild_refusals import Refusal
from workflows.spec import ClusterSpec

PLAYBOOK = "host_processes"
SECONDS = 120
"""Time limit to ask all machines; one answers within seconds."""
_MOST_USERS = _MOST_HOSTS = 5


class HostProcesses(Struct, frozen=True):
    """Observation of module host_processes on one machine.

    `users` has the number of processes of each user; `rke2`: RKE2 runs or has left its data; `boot` is the id of the boot.
    `system` tells an installation of the OS from the next one, empty if hidden; `volatile`: its root lies in memory.
    """

    slurmd: bool
    rke2: bool
    boot: str
    users: dict[str, int] = {}
    system: str = ""
    volatile: bool = False


def look(spec: ClusterSpec, folder: Path) -> tuple[HostOutcome, ...]:
    """Ask all machines of a spec over SSH who works on them. Relative paths start from `folder`.

    Raises SecretMissing without the SSH key, and BadTask without known host keys.
    """
    return host_plays.play(spec, folder, PLAYBOOK, SECONDS)


def observed(outcome: HostOutcome) -> HostProcesses | None:
    """Return the observation of one machine; None if it has not given any."""
    try:
        return msgspec.convert(outcome.facts, HostProcesses)
    except msgspec.ValidationError:
        return None


def unknown_builds(outcomes: Iterable[HostOutcome]) -> Iterator[Refusal]:
    """Yield refusals if machines run RKE2, for a rebuild without any kubeconfig: nobody knows its builds and its volumes."""
    nodes = [outcome.host for outcome in outcomes if (seen := observed(outcome)) and seen.rke2]
    if nodes:
        listed = f"{', '.join(nodes[:_MOST_HOSTS])}{' and others' if len(nodes) > _MOST_HOSTS else ''}"
        verb = "has" if len(nodes) == 1 else "have"
        problem = f"{listed} {verb} RKE2, and no run of this machine built it, so nobody knows if builds run"
        fix = 'rebuild with the BRINGUP_HOME of the run that built it, or add --force "REASON", which ends builds and saves nothing'
        yield Refusal(problem=problem, fix=fix, forcible=True)
        unknown = f"nobody knows either which volumes on {listed} hold bytes of projects"
        fix = "rebuild with that BRINGUP_HOME, or add --lose-volumes, which loses them"
        yield Refusal(problem=unknown, fix=fix, forcible=True, loses_bytes=True)


def refusals_of(outcome: HostOutcome) -> Iterator[Refusal]:
    """Yield the reasons of one machine: its slurmd, each user with processes; or that it does not say, which an admin may force."""
    host, fix = outcome.host, "wait for their end, or take the machine out of the spec"
    seen = observed(outcome)
    if seen is None:
        message = plain_text.line(outcome.message or "it has not answered")
        fix = 'repair it, or add --force "REASON"'
        yield Refusal(problem=f"{host} does not say whose processes run on it: {message}", fix=fix, forcible=True)
        return
    if seen.slurmd:
        fix_slurm = "drain the node in Slurm and stop slurmd, or take the machine out of the spec"
        yield Refusal(problem=f"{host} runs slurmd, so jobs may be on it", fix=fix_slurm)
    users = sorted(seen.users.items(), key=lambda entry: (-entry[1], entry[0]))
    for user, processes in users[:_MOST_USERS]:
        number = "1 process" if processes == 1 else f"{processes} processes"
        yield Refusal(problem=f"{host} runs {number} of user {plain_text.line(user)}", fix=fix)
    if (more := len(users) - _MOST_USERS) > 0:
        yield Refusal(problem=f"{host} runs processes of {plain_text.count(more, 'more user')}", fix=fix)
