"""Reinstallation of a factory's machines by the command of its site, until each runs a new system without RKE2.

The command may return before anything has happened, as a request to a power controller does. So its end proves nothing: a machine
counts once it answers after another boot, from another installation than before, and has no data of RKE2. If the old system starts
again after a power cycle, because the network boot failed, only the boot id is another one.
"""

import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from steps.clients import process
from steps.clients.clock import Clock, RealClock
from steps.contract import plain_text
from steps.contract.exit import ExitCode
from steps.contract.host_play import HostOutcome
from steps.errors import StepError, Temporary
from workflows.app.factories import foreign_processes
from workflows.app.factories.foreign_processes import HostProcesses
from workflows.spec import FactorySpec
from workflows.spec.machines import Machine

LOOK_SECONDS = 15.0
"""Time between two looks at the machines, of which a reinstallation takes minutes."""
Look = Callable[[], tuple[HostOutcome, ...]]
"""Function that asks all machines over SSH, such as `foreign_processes.look`."""


class NotReinstalled(ValueError):
    """Error for machines whose reinstallation failed, so that the factory is not built on them."""

    exit_code = ExitCode.GATE_FAILED
    hint = "run rebuild.reinstall of the spec by hand for one of them"


def reinstall(spec: FactorySpec, look: Look, clock: Clock = RealClock()) -> None:
    """Run the site's command for all machines at once, and wait until each answers with a new system.

    Both together take `rebuild.reinstall_timeout` at most. Raises NotReinstalled with all failures.
    """
    machines, deadline = spec.cluster.machines, clock.now() + spec.rebuild.reinstall_timeout.total_seconds()
    before = _systems(look())
    with ThreadPoolExecutor(len(machines)) as pool:
        failures = [failure for failure in pool.map(lambda machine: _run(spec, machine), machines) if failure]
    if failures:
        raise NotReinstalled("; ".join(failures))
    while remaining := _remaining(spec, look, before):
        if clock.now() >= deadline:
            minutes = spec.rebuild.reinstall_timeout.total_seconds() / 60
            raise NotReinstalled(f"after {minutes:.0f} min {'; '.join(remaining)}")
        clock.pause(LOOK_SECONDS, deadline)


def _systems(outcomes: tuple[HostOutcome, ...]) -> dict[str, HostProcesses]:
    """Return host → observation of the machines that answer; a machine that does not may have any other system later."""
    return {outcome.host: seen for outcome in outcomes if (seen := foreign_processes.observed(outcome))}


def _remaining(spec: FactorySpec, look: Look, before: Mapping[str, HostProcesses]) -> list[str]:
    """Return why machines do not run a new system, a sentence for each."""
    try:
        outcomes = {outcome.host: outcome for outcome in look()}
    except Temporary as error:
        return [plain_text.line(str(error))]
    reasons = ((machine.name, _reason(outcomes.get(machine.name), before)) for machine in spec.cluster.machines)
    return [f"{name} {reason}" for name, reason in reasons if reason]


def _reason(outcome: HostOutcome | None, before: Mapping[str, HostProcesses]) -> str:
    """Return why a machine does not run a new system; empty if it does."""
    seen = foreign_processes.observed(outcome) if outcome else None
    if outcome is None or seen is None:
        return f"does not answer: {plain_text.line(outcome.message if outcome else '') or 'no reason given'}"
    if not seen.boot:
        return "hides its boot id, so nobody knows if it was reinstalled"
    if not seen.system:
        return "has no /etc/machine-id, so nobody knows if it was reinstalled"
    return _same_system(seen, before.get(outcome.host)) or (
        "has booted, and has the data of RKE2 that it had before" if seen.rke2 else ""
    )


def _same_system(seen: HostProcesses, before: HostProcesses | None) -> str:
    """Return why a machine does not run another system on its disk than before; empty if it does, or was silent before."""
    if before is None:
        return ""
    if seen.boot == before.boot:
        return "runs the system that it ran before (its boot id is unchanged)"
    if seen.system == before.system:
        return "has booted the system that it ran before (/etc/machine-id is the same file): an image to install must not hold one"
    # a machine that always boots over the network has its root in memory before and after
    return "runs from memory, as an installer does, and ran from its disk before" if seen.volatile and not before.volatile else ""


def _run(spec: FactorySpec, machine: Machine) -> str:
    """Return why the command failed for a machine; empty if it did not."""
    values = {"{host}": machine.name, "{address}": machine.address}
    command = [_filled(word, values) for word in spec.rebuild.reinstall]
    try:
        done = process.run(command, seconds=spec.rebuild.reinstall_timeout.total_seconds())
    except StepError as error:
        return f"{machine.name}: {error}"
    last = (done.err or done.out).strip().splitlines()[-1:] or ["no output"]
    return f"{machine.name}: {shlex.join(command)} ended with {done.code}: {last[0][:200]}" if done.code else ""


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
