"""Phases of a factory's build with the times that a rebuild by hand takes, for the report and for the status of a factory."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from steps.report import drawings, model

FACTORY = "factory_"
"""Beginning of the ids of stages that only a factory has."""


class FactoryPhase(Struct, frozen=True, kw_only=True):
    """A phase of a factory's build: its name, how long it took, and the goal in seconds, which is the time of the work by hand.

    The time of a rehearsal is not compared with the goal, because its hosts and delays are simulated; nor is that of a phase that
    is not `done`, because one of its stages did not pass.
    """

    name: str
    seconds: float
    goal: float
    simulated: bool = False
    done: bool = True

    @property
    def sentence(self) -> str:
        """Return the phase as a line: name, time, goal, and if the goal was kept."""
        kept = "kept" if self.seconds <= self.goal else "missed"
        kept = "not finished" if not self.done else "simulated" if self.simulated else kept
        return f"phase {self.name}: {drawings.span(self.seconds)} of {self.goal / 60:.0f} min, {kept}"


_GOALS = {"preparation of the nodes": 15 * 60.0, "Kubernetes": 30 * 60.0, "services": 30 * 60.0}
"""Phase → seconds. A rebuild by hand takes 30 min for the OS, 15 for the nodes, 30 for RKE2 and 30 for the services."""


def phases(stages: Iterable[model.StageReport], *, simulated: bool = False) -> tuple[FactoryPhase, ...]:
    """Return the phases of a run that builds a factory and have begun; empty for any other run."""
    known = tuple(stages)
    if not any(stage.id.startswith(FACTORY) for stage in known):
        return ()
    return tuple(_timed(known, simulated))


def _timed(stages: tuple[model.StageReport, ...], simulated: bool) -> Iterator[FactoryPhase]:
    for name, goal in _GOALS.items():
        mine = [stage for stage in stages if _phase(stage.id) == name]
        begun = [stage for stage in mine if stage.started and stage.finished]
        if begun:
            seconds, done = sum(stage.finished - stage.started for stage in begun), all(stage.status == "pass" for stage in mine)
            yield FactoryPhase(name=name, seconds=seconds, goal=goal, simulated=simulated, done=done)


def _phase(stage: str) -> str:
    preparation, kubernetes, services = _GOALS
    return {"os_prep": preparation, "rke2": kubernetes}.get(stage, services)
