"""The trial of a drill: hosts of production are cut off from a factory, and what they run must work all the same."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract import plain_text
from steps.contract.host_play import HostOutcome
from steps.contract.plain_text import count
from workflows.app.factories import host_plays
from workflows.spec import ClusterSpec, FactorySpec, load
from workflows.spec.pipelines.factory_spec import Drill, DrilledMachine

PLAYBOOK = "factory_cut"
MARGIN_SECONDS = 180
"""Time limit of the play beyond the commands' own limits."""
TRIAL_MARGIN_SECONDS, JOIN_SECONDS = 60, 60
"""Time limits of its two tasks beyond that: of the trial, and of what joins a host again; the rest is the play's own."""
READ_SECONDS = 600
"""Further time limit for the bytes of published folders, at most those of module factory_cut: 4 GiB at 7 MB/s."""
_API_PORT, _SSH_PORT = 6443, 22
_FREE_MACHINE = (
    "the machine that booted may have reached the factory: if all its packets pass this host as its router, "
    "set drill.machine.behind_cut"
)


class NoDrill(ValueError):
    """Error for a spec without a drill, or with hosts that its platform does not have, or with a name that has no address."""

    hint = "see `bringup explain drill`"


class BootTrial(Struct, frozen=True):
    """Observation of a machine that was started under the cut: why it did not boot, empty if it did, and after how many seconds."""

    failure: str
    took: float


class CutTrial(Struct, frozen=True):
    """Observation of module factory_cut on one host; see the module's documentation for the fields."""

    reached: tuple[str, ...]
    remaining: tuple[str, ...]
    commands: dict[str, str]
    boot: dict[str, str]
    resolved: int
    folders: dict[str, str]
    took: float
    unread: dict[str, int] = {}
    machine: BootTrial | None = None


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """Result of one host: sentences about what works and about what does not, and folder → digest of its files.

    `uncompared` are sentences about files that are in a digest by size and time alone, and about a machine that was not cut off.
    """

    host: str
    works: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    folders: tuple[tuple[str, str], ...] = ()
    uncompared: tuple[str, ...] = ()


def drill_of(spec: FactorySpec) -> Drill:
    """Return the drill of a spec. Raises NoDrill."""
    if spec.drill is None:
        raise NoDrill("the spec has no section drill, so nothing says which hosts of production are cut off")
    return spec.drill


def cut_off(spec: FactorySpec, folder: Path) -> list[TrialOutcome]:
    """Cut the hosts of production off, try the commands and boot scripts, boot a machine, and join the hosts again.

    Paths of the spec start from `folder`. Raises NoDrill, SpecErrors for the platform's spec, SecretMissing and BadTask.
    """
    return _play(spec, folder, _addresses(spec))


def look(spec: FactorySpec, folder: Path) -> list[TrialOutcome]:
    """Read the published folders on the hosts of production, which stay connected. Raises as `cut_off` does."""
    return _play(spec, folder, ())


def _play(spec: FactorySpec, folder: Path, addresses: tuple[str, ...]) -> list[TrialOutcome]:
    drill = drill_of(spec)
    path = folder / drill.platform
    platform = load(path)
    _require_hosts(drill, platform)
    variables = trial_variables(drill, addresses, spec.registry.node_port)
    longest = longest_trial(drill)
    outcomes = host_plays.play(platform, path.absolute().parent, PLAYBOOK, longest, drill.hosts, variables)
    is_behind = drill.machine is not None and drill.machine.behind_cut
    return [outcome_of(outcome, is_cut=bool(addresses), is_machine_cut=is_behind) for outcome in outcomes]


def trial_variables(drill: Drill, addresses: tuple[str, ...], registry_port: int) -> dict[str, Any]:
    """Return the variables of the play: what is cut, what is tried, and the machine that one of the hosts boots."""
    return {
        "factory_addresses": list(addresses),
        "factory_ports": [_SSH_PORT, _API_PORT, registry_port],
        "factory_commands": list(drill.commands),
        "factory_user": drill.user,
        "factory_boot": list(drill.boot),
        "factory_folders": list(drill.published),
        "factory_seconds": int(drill.timeout.total_seconds()),
        "factory_machine": _machine_order(drill.machine) if drill.machine else {},
        "factory_machine_host": (drill.machine and drill.machine.host) or drill.hosts[0],
        "factory_trial_seconds": _trial_seconds(drill) + TRIAL_MARGIN_SECONDS,
        "factory_read_seconds": JOIN_SECONDS + (READ_SECONDS if drill.published else 0),
    }


def _machine_order(machine: DrilledMachine) -> dict[str, Any]:
    """Return how a machine is booted, as module factory_cut takes it."""
    signs = {"console": machine.console or "", "answers": machine.answers or ""}
    return {"power": machine.power, "user": machine.user, "seconds": int(machine.within.total_seconds()), **signs}


def longest_trial(drill: Drill) -> int:
    """Return the time limit of the play in seconds: those of all its parts together."""
    return _trial_seconds(drill) + MARGIN_SECONDS + (READ_SECONDS if drill.published else 0)


def _trial_seconds(drill: Drill) -> int:
    machine = int(drill.machine.within.total_seconds()) if drill.machine else 0
    return (len(drill.commands) + len(drill.boot)) * int(drill.timeout.total_seconds()) + machine


def _require_hosts(drill: Drill, platform: ClusterSpec) -> None:
    known = {machine.name for machine in platform.machines}
    if unknown := sorted(set(drill.hosts) - known):
        raise NoDrill(f"drill.hosts names {', '.join(unknown)}, which platform {platform.name} ({drill.platform}) does not have")


def _addresses(spec: FactorySpec) -> tuple[str, ...]:
    """Return the IP addresses of a factory's machines and of its API. Raises NoDrill for a name that cannot be resolved."""
    names = dict.fromkeys((*(machine.address for machine in spec.cluster.machines), spec.cluster.registration_address))
    addresses: dict[str, None] = {}
    for name in filter(None, names):
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise NoDrill(f"{name}, an address of the factory, has no IP address here: {error}") from error
        addresses |= dict.fromkeys(str(answer[4][0]) for answer in answers)
    return tuple(addresses)


def outcome_of(outcome: HostOutcome, *, is_cut: bool, is_machine_cut: bool = False) -> TrialOutcome:
    """Return what a host's trial shows. A host without an observation proves nothing.

    `is_cut`: the host was cut off; `is_machine_cut`: so was the machine that it booted, because its packets pass the host.
    """
    try:
        seen = msgspec.convert(outcome.facts, CutTrial)
    except msgspec.ValidationError:
        message = plain_text.line(outcome.message or "it has not answered")
        return TrialOutcome(host=outcome.host, broken=(f"{outcome.host}: the trial has no result: {message}",))
    folders = tuple(sorted(seen.folders.items()))
    broken = tuple(f"{outcome.host}: {plain_text.line(text)}" for text in _broken(seen))
    uncompared = tuple(
        f"{count(files, 'file')} of {outcome.host}:{folder} but for size and time" for folder, files in seen.unread.items()
    )
    if not is_cut or broken:
        return TrialOutcome(host=outcome.host, broken=broken, folders=folders, uncompared=uncompared)
    works = [f"{outcome.host}: cut off from the factory for {seen.took:.1f} s"]
    works += [f"{outcome.host}: works without the factory: {plain_text.line(command)}" for command in seen.commands]
    works += [f"{outcome.host}: boots without the factory: {url}" for url in seen.boot]
    works += [f"{outcome.host}: {count(seen.resolved, 'boot file')} answered"] if seen.boot else []
    if seen.machine and is_machine_cut:
        works += [f"{outcome.host}: a machine booted without the factory in {seen.machine.took:.0f} s"]
    elif seen.machine:
        works += [f"{outcome.host}: a machine booted in {seen.machine.took:.0f} s; it was not cut off itself"]
        uncompared += (f"{outcome.host}: {_FREE_MACHINE}",)
    return TrialOutcome(host=outcome.host, works=tuple(works), folders=folders, uncompared=uncompared)


def _broken(seen: CutTrial) -> Iterator[str]:
    """Yield what failed on a host: a cut that was none, commands, boot scripts, a machine, folders, and rules that remain."""
    if seen.reached:
        yield f"reached {', '.join(seen.reached)} while it was cut off, so the trial proves nothing"
    for command, why in seen.commands.items():
        if why:
            yield f"does not work without the factory: {command}: {why}"
    for url, why in seen.boot.items():
        if why:
            yield f"does not boot without the factory: {url}: {why}"
    if seen.machine and seen.machine.failure:
        yield f"the machine did not boot without the factory: {seen.machine.failure}"
    for folder, digest in seen.folders.items():
        if not digest:
            yield f"there is no folder {folder}"
    if seen.remaining:
        yield f"is still cut off from {', '.join(seen.remaining)}: remove each by `ip rule del pref 9877 to ADDRESS`"
