"""Machines of a factory on which somebody works: a slurmd, or processes of users, because of which it is not rebuilt."""

from collections.abc import Iterator
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
_MOST_USERS = 5


class HostProcesses(Struct, frozen=True):
    """Observation of module host_processes on one machine: does a slurmd run, and how many processes does each user have."""

    slurmd: bool
    users: dict[str, int] = {}


def ask(spec: ClusterSpec, folder: Path) -> list[Refusal]:
    """Ask all machines of a spec over SSH who works on them, and return the refusals. Relative paths start from `folder`.

    Raises SecretMissing without the SSH key, and BadTask without known host keys.
    """
    outcomes = host_plays.play(spec, folder, PLAYBOOK, SECONDS)
    return [reason for outcome in outcomes for reason in refusals_of(outcome)]


def refusals_of(outcome: HostOutcome) -> Iterator[Refusal]:
    """Yield the reasons of one machine: its slurmd, each user with processes; or that it does not say, which an admin may force."""
    host, fix = outcome.host, "wait for their end, or take the machine out of the spec"
    try:
        seen = msgspec.convert(outcome.facts, HostProcesses)
    except msgspec.ValidationError:
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
