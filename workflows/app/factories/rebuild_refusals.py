"""Reasons for which a factory is not rebuilt: incomplete or old copies, hosts of others, this machine, builds, bytes in volumes."""

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from steps.clients.kube.client import Kube
from steps.contract import plain_text
from steps.contract.plain_text import count
from steps.errors import StepError
from workflows.app.factories import project_volumes, surviving_copies
from workflows.app.factories.factory_network import Resolver, host_addresses
from workflows.app.factories.project_volumes import ObjectReader
from workflows.spec import FactorySpec, load

ENDED = ("Succeeded", "Failed", "Error")
MOST_VOLUMES = 10
"""Most volumes that a refusal names; the others are counted."""
_WORKFLOWS = "/apis/argoproj.io/v1alpha1/workflows"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A reason not to rebuild, and what to do. `forcible`: an admin with a reason may go on. `ends`: it goes away by waiting.

    `loses_bytes`: going on loses bytes of projects, which an admin has to say apart from any other reason.
    """

    problem: str
    fix: str
    forcible: bool = False
    ends: bool = False
    loses_bytes: bool = False


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Decisions of an admin to rebuild all the same: a reason, and if bytes in volumes may be lost."""

    reason: str = ""
    lose_volumes: bool = False

    def covers(self, refusal: Refusal) -> bool:
        """Return True if the admin has decided to go on in spite of a refusal."""
        return self.lose_volumes if refusal.loses_bytes else bool(self.reason) and refusal.forcible


class _LiveMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _LivePhase(Struct, frozen=True):
    phase: str = ""


class LiveWorkflow(Struct, frozen=True):
    """A Workflow of a factory as the API returns it."""

    metadata: _LiveMeta = _LiveMeta()
    status: _LivePhase = _LivePhase()


def refusals(spec: FactorySpec, folder: Path, kubeconfig: Path | None) -> Iterator[Refusal]:
    """Yield every reason not to rebuild a factory now. Paths of the spec start from `folder`; `kubeconfig` opens the live factory.

    Raises SpecErrors if a platform's spec cannot be read.
    """
    for copy in spec.rebuild.copies:
        yield from (Refusal(problem=why, fix=fix) for why, fix in surviving_copies.problems(copy, time.time()))
    yield from _platforms(spec, folder)
    yield from _this_machine(spec)
    if kubeconfig is not None:
        yield from (builds := tuple(running_builds(kubeconfig)))
        if all(reason.ends for reason in builds):
            yield from volumes_at_risk(spec, Kube.from_file(kubeconfig, who="factory rebuild"))
        else:  # a factory that does not answer need not be asked a second time
            yield _unknown_volumes("it does not answer")


def _platforms(spec: FactorySpec, folder: Path) -> Iterator[Refusal]:
    mine = {key: machine.name for machine in spec.cluster.machines for key in (machine.name, machine.address)}
    drilled = (spec.drill.platform,) if spec.drill else ()
    for path in dict.fromkeys((*spec.rebuild.platforms, *drilled)):
        platform = load(folder / path)
        shared = {mine[key] for machine in platform.machines for key in (machine.name, machine.address) if key in mine}
        if shared:
            listed = ", ".join(sorted(shared)[:5])
            fix = "remove them from one of both specs"
            yield Refusal(
                problem=f"{listed} {'is' if len(shared) == 1 else 'are'} part of platform {platform.name} ({path})", fix=fix
            )


def _this_machine(spec: FactorySpec) -> Iterator[Refusal]:
    names = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    for machine in spec.cluster.machines:
        if machine.name in names or _is_local(machine.address):
            yield Refusal(
                problem=f"{machine.name} ({machine.address}) is the machine that this command runs on",
                fix="rebuild from a machine outside the factory",
            )


def _is_local(address: str) -> bool:
    """Return True if an IP address is one of this machine, to which alone a socket can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def running_builds(kubeconfig: Path) -> Iterator[Refusal]:
    """Yield a refusal for Workflows that have not ended; also if the factory does not say, because it may only be cut off."""
    fix = 'wait for their end, which rebuild.drain of the spec does, or add --force "REASON", which ends them'
    try:
        running = unfinished(Kube.from_file(kubeconfig, who="factory rebuild"))
    except StepError as error:
        fix = 'repair it, or add --force "REASON"'
        yield Refusal(problem=f"the factory does not say if builds run: {error}", fix=fix, forcible=True)
        return
    if running:
        listed = ", ".join(running[:5])
        yield Refusal(problem=f"{count(len(running), 'build')} run: {listed}", fix=fix, forcible=True, ends=True)


def volumes_at_risk(spec: FactorySpec, kube: ObjectReader, resolve: Resolver = host_addresses) -> Iterator[Refusal]:
    """Yield a refusal for volumes of projects whose bytes a rebuild loses; also if the factory does not say which there are.

    `resolve` returns the addresses of NFS servers.
    """
    try:
        lost = tuple(project_volumes.lost(spec, project_volumes.read(spec, kube, resolve)))
    except StepError as error:
        yield _unknown_volumes(str(error))
        return
    if lost:
        listed = plain_text.some([item.about for item in lost], MOST_VOLUMES)
        verb = "holds" if len(lost) == 1 else "hold"
        yield Refusal(
            problem=f"{count(len(lost), 'volume')} of projects {verb} bytes that a rebuild loses: {listed}",
            fix="name their copies in rebuild.copies[].volume, or those that the site restores or gives up in rebuild.restored "
            "(volumes/NAMESPACE/CLAIM, or volumes/VOLUME without a claim), or add --lose-volumes, which loses them",
            forcible=True,
            loses_bytes=True,
        )


def _unknown_volumes(why: str) -> Refusal:
    problem = f"the factory does not say which volumes its projects have: {why}"
    return Refusal(problem=problem, fix="repair it, or add --lose-volumes, which loses them", forcible=True, loses_bytes=True)


def unfinished(kube: Kube) -> list[str]:
    """Return the Workflows that have not ended, NAMESPACE/NAME, in order. Raises StepError."""
    workflows = kube.list(_WORKFLOWS, LiveWorkflow) or ()
    return sorted(f"{item.metadata.namespace}/{item.metadata.name}" for item in workflows if item.status.phase not in ENDED)
