"""Runs the rounds of a localisation as Slurm jobs, all tests of a round at the same time, and keeps the history in the store."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from steps import timeouts
from steps.clients import slurm_tools
from steps.clients.slurm_tools import JobPlace
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.host_ranges import fold
from steps.contract.verdict import ToolError
from steps.localise import rounds
from steps.localise.contract import MOST_MEETINGS, FabricMap, FabricTest, History, Outcome, Policy, Round
from steps.runtime.context import Context
from steps.slurmacceptance import bandwidth_program, control_survey, slurm_output
from steps.slurmacceptance.bandwidth_program import BandwidthProgram
from steps.slurmacceptance.task_scope import ScopeArguments
from steps.stages.slurm_acceptance.contract import BadPart, BandwidthObservation, PairFigure

AT_ONCE: Final = 64
"""Most sruns that wait for their jobs at the same time: each is a process of some MB on the login node."""
KINDS: Final = ("node", "pair", "path")
"""Parts that the localisation looks for: Slurm tells leaves and no rails."""
ONE_LEAF: Final = "all"
"""Name of the only leaf where Slurm knows no topology."""


class SlurmRounds:
    """A `RoundRunner` by srun. `figures` and `errors` collect what the tests measured and why they could not."""

    def __init__(self, place: JobPlace, program: BandwidthProgram, floor: float) -> None:
        self._place, self._program, self._floor = place, program, floor
        self.figures: list[PairFigure] = []
        self.errors: list[ToolError] = []

    def run(self, tests: Sequence[FabricTest]) -> Sequence[Outcome]:
        """Return the outcome of each test, in their order; one that could not be measured is unknown."""
        with ThreadPoolExecutor(min(AT_ONCE, max(1, len(tests)))) as pool:
            rows = list(pool.map(self._measure, tests))
        self.figures += rows
        return [self._outcome(row) for row in rows]

    def _outcome(self, row: PairFigure) -> Outcome:
        if row.figure is None:
            return Outcome(test=row.test, result="unknown")
        return Outcome(test=row.test, result="pass" if row.figure >= self._floor else "fail", figure=row.figure)

    def _measure(self, test: FabricTest) -> PairFigure:
        """Return the slowest exchange of a test, in both directions.

        A program for two ranks runs once for each direction, and for a group in matchings that together use every pair
        of a small group.
        """
        if len(test.nodes) < 2:
            return PairFigure(test=test.id, nodes=test.nodes, problem="a test of one node measures no bandwidth")
        launches = [[test.nodes]] if len(test.nodes) == 2 or self._program.groups else matchings(test.nodes)
        figures = []
        for launch in launches:
            directions = [launch] if self._program.both else [launch, [order[::-1] for order in launch]]
            for orders in directions:
                with ThreadPoolExecutor(min(AT_ONCE, len(orders))) as pool:
                    measured = list(pool.map(self._srun, orders))
                if problem := next((text for figure, text in measured if figure is None), ""):
                    return PairFigure(test=test.id, nodes=test.nodes, problem=problem)
                figures += [figure for figure, _ in measured if figure is not None]
        return PairFigure(test=test.id, nodes=test.nodes, figure=min(figures))

    def _srun(self, order: tuple[str, ...]) -> tuple[float | None, str]:
        """Return GB/s of one launch with the ranks in this order of nodes, or None and what went wrong."""
        hosts = Path(self._place.folder) / f"hosts-{order[0]}-{order[1]}-{len(order)}"
        hosts.write_text("".join(f"{node}\n" for node in order))
        words = ["srun", *self._place.options(), f"--nodes={len(order)}", f"--nodelist={hosts}"]
        words += ["--distribution=arbitrary", f"--ntasks={len(order)}"]
        words += ["--mem=0", "--exclusive", f"--immediate={timeouts.SLURM_QUEUE}", f"--mpi={self._program.mpi}"]
        # else the other ranks of a program that crashed on one node wait for it until the time limit of the job
        words.append("--kill-on-bad-exit=1")
        done = slurm_tools.ask(*words, *self._program.command, seconds=slurm_tools.JOB_SECONDS)
        figure = slurm_output.slowest_direction(done.out) if done.code == 0 else None
        if figure is not None and figure > 0:
            return figure, ""
        error = slurm_output.tool_error(f"srun on {fold(order)}", done.code, done.err or "the program printed no table")
        self.errors.append(error)
        return None, f"{error.cause}: {error.line}"[:300]


def matchings(nodes: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """Return matchings of the nodes: rounds of pairs in which each node meets `MOST_MEETINGS` others, or all if they are fewer.

    The rounds are those of a round-robin tournament by the circle method.
    """
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    rows: list[list[tuple[str, ...]]] = []
    for _ in range(min(len(ring) - 1, MOST_MEETINGS)):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        rows.append([(left, right) for left, right in pairs if left is not None and right is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rows


def localise(context: Context, scope: ScopeArguments, place: JobPlace, nodes: Sequence[str]) -> BandwidthObservation:
    """Run rounds until every node is judged, and return what was measured and which part is bad.

    Rounds that an interrupted attempt has stored are not repeated. Raises BadTask if no program measures.
    """
    program = bandwidth_program.chosen(scope, Path(place.folder))
    leaf = control_survey.leaf_of()
    layout = FabricMap(nodes=tuple(nodes), leaves=tuple(leaf.get(node, ONE_LEAF) for node in nodes))
    policy = Policy(kinds=KINDS, most_rounds=scope.most_rounds)
    key = f"runs/{context.environment.run}/localisation.json"
    history = _stored(context, key, layout, policy)
    runner = SlurmRounds(place, program, scope.floor)
    runner.figures += _figures(history)
    study = rounds.HistoryStudy(history)
    while (planned := study.planned).tests:
        outcomes = tuple(runner.run(planned.tests))
        history = msgspec.structs.replace(history, rounds=(*history.rounds, _with(planned, outcomes)))
        study = rounds.HistoryStudy(history)
        context.store.replace(key, msgspec.json.encode(history))
        bad = [outcome for outcome in outcomes if outcome.result != "pass"]
        context.say(f"round {planned.number}, {planned.purpose}: {len(outcomes) - len(bad)} of {len(outcomes)} tests passed")
        if all(outcome.result == "unknown" for outcome in outcomes):
            break  # nothing can be measured: more of the same would only take time
    return _observed(study, runner, program)


def _stored(context: Context, key: str, layout: FabricMap, policy: Policy) -> History:
    """Return the history of an interrupted attempt if it is about the same nodes, else a new one."""
    data = context.store.read(key)
    if data is not None:
        try:
            stored = msgspec.json.decode(data, type=History)
        except UNREADABLE_JSON:
            stored = None
        if stored is not None and (stored.map, stored.policy) == (layout, policy):
            return stored
    return History(map=layout, policy=policy)


def _figures(history: History) -> list[PairFigure]:
    nodes = {test.id: test.nodes for part in history.rounds for test in part.tests}
    outcomes = [outcome for part in history.rounds for outcome in part.outcomes]
    unknown = "unknown in an interrupted attempt"
    return [
        PairFigure(
            test=row.test, nodes=nodes.get(row.test, ()), figure=row.figure, problem="" if row.figure is not None else unknown
        )
        for row in outcomes
    ]


def _with(planned: Round, outcomes: tuple[Outcome, ...]) -> Round:
    return msgspec.structs.replace(planned, outcomes=outcomes)


def _observed(study: rounds.HistoryStudy, runner: SlurmRounds, program: BandwidthProgram) -> BandwidthObservation:
    verdict = study.verdict
    parts = tuple(
        BadPart(
            kind=suspect.kind,
            nodes=suspect.nodes,
            rail=suspect.rail,
            leaves=suspect.leaves,
            at_least_nodes=suspect.at_least_nodes,
            error=suspect.error,
            evidence=suspect.evidence,
        )
        for suspect in verdict.suspects
    )
    return BandwidthObservation(
        program=program.title,
        memory="host",
        figures=tuple(runner.figures),
        parts=parts,
        cleared=verdict.cleared,
        rounds=verdict.rounds,
        tests=verdict.tests,
        finished=verdict.finished,
        reason=verdict.reason,
        false_alarm=verdict.false_alarm,
        missed=verdict.missed,
        errors=tuple(runner.errors),
    )
