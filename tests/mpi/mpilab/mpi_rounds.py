"""Runs the rounds of a localisation as MPI programs, one mpirun for each test, all tests of a round at the same time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

from mpilab.cluster import MpiCluster
from steps.localise import rounds
from steps.localise.contract import FabricMap, FabricTest, FaultDiagnosis, History, Outcome, Policy
from steps.readers import osu_table
from steps.runtime import localisation

Measure = Literal["bandwidth", "latency"]
FLOOR: Final = 1.5
"""Least MB/s between two hosts in one direction: links have 5, disturbed ones at most 0.25."""
CEILING: Final = 40_000.0
"""Most microseconds: load of the machine makes a few thousand, the relay of the tests 100,000 between two hosts."""
KINDS: Final = ("node", "pair", "path")
BYTES: Final = 32768
"""Size of a message: longer ones make OpenMPI wait for an answer that stands behind data in the other direction."""
_PROGRAMS: Final = {
    ("bandwidth", False): ("osu_bibw", "-m", f"{BYTES}:{BYTES}"),
    ("bandwidth", True): ("osu_alltoall", "-m", f"{BYTES}:{BYTES}", "-i", "4"),
    ("latency", False): ("osu_latency", "-m", "8:8", "-i", "3"),
    ("latency", True): ("osu_alltoall", "-m", "8:8", "-i", "1"),
}
"""Program by what is measured and whether more than two hosts take part."""


@dataclass
class MpiRounds:
    """A `RoundRunner` by mpirun over SSH. `problems` tells why tests are unknown."""

    cluster: MpiCluster
    measure: Measure
    problems: list[str] = field(default_factory=list)

    def run(self, tests: Sequence[FabricTest]) -> Sequence[Outcome]:
        """Return the outcome of each test, in their order; one without a whole table of right data is unknown."""
        with ThreadPoolExecutor(max(1, len(tests))) as pool:
            return list(pool.map(self._outcome, tests))

    def _outcome(self, test: FabricTest) -> Outcome:
        launch = self.cluster.launch(test.nodes, *_PROGRAMS[self.measure, len(test.nodes) > 2])
        row = next((table.largest for table in osu_table.read(launch.text) if table.is_whole), None)
        if launch.problem or row is None or row.validation != "Pass":
            self.problems.append(launch.problem or launch.text)
            return Outcome(test=test.id, result="unknown")
        if self.measure == "latency":
            return Outcome(test=test.id, result="pass" if row.value <= CEILING else "fail", figure=row.value)
        # a pair's table is about both directions, of which the slower one decides; a group's is the time to all others
        others = len(test.nodes) - 1
        figure = row.value / 2 if others == 1 else others * BYTES / row.value
        return Outcome(test=test.id, result="pass" if figure >= FLOOR else "fail", figure=round(figure, 3))


def localise(cluster: MpiCluster, measure: Measure) -> tuple[FaultDiagnosis, str]:
    """Run rounds until the localisation is finished; return the diagnosis, and the rounds as text for a failing test."""
    runner = MpiRounds(cluster, measure)
    layout = FabricMap(nodes=tuple(host.name for host in cluster.hosts), leaves=cluster.leaves)
    study = localisation.drive(rounds.begin(layout, Policy(kinds=KINDS)), runner, lambda _: None, lambda: False)
    return study.verdict, "\n".join([*_lines(study.history), *runner.problems])


def _lines(history: History) -> list[str]:
    rows = []
    for part in history.rounds:
        results = {outcome.test: f"{outcome.result} {outcome.figure}" for outcome in part.outcomes}
        rows.append(f"round {part.number}, {part.purpose}")
        rows += [f"  {test.kind} {' '.join(test.nodes)}: {results[test.id]}" for test in part.tests]
    return rows
