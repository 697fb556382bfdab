"""Types of a localisation: the fabric, tests with their outcomes, the history of rounds, and the diagnosis.

A localisation is a loop: ask `rounds.next_round(history)` for tests, run them, add their outcomes, until the round is empty.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

Kind = Literal["pair", "group", "rail", "self"]
Result = Literal["pass", "fail", "unknown"]
Mode = Literal["idle", "serial"]
PartKind = Literal["node", "rail", "pair", "path", "scale"]
PARTS: tuple[PartKind, ...] = ("node", "rail", "pair", "path", "scale")

MOST_NODES = 16_384
"""Largest fabric that is accepted."""
MOST_RAILS = 64
"""Largest number of rails of a node that is accepted."""
MOST_MEETINGS = 15
"""Other nodes that each node of a group meets in pairs at most, for whoever runs tests: all of 10,000 would take ten hours."""
LONGEST_NAME = 253
"""Longest name of a node or leaf: the limit of DNS names."""


class HistoryError(ValueError):
    """Raised if a fabric, policy or history contradicts itself, or is not one that this version wrote."""


class FabricMap(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that may be tested, in fleet order, with the leaf switch of each node. `rails` is the number of rails of each node.

    Where nodes have a leaf for each rail, `leaves` names the rail group (the set of leaves). Zero rails: rails are not told apart.
    """

    nodes: tuple[str, ...]
    leaves: tuple[str, ...]
    rails: int = 0


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and expectations of one localisation.

    - `mode`: `idle` minimises rounds, because disjoint tests run at once; `serial` minimises tests, one in a round.
    - `alpha`: bound on the probability that a run names any innocent part.
    - `beta`: bound on the probability that one faulty part is cleared.
    - `noise`: expected share of single tests with the wrong result; the rate that the history shows replaces it. Zero: no noise.
    - `expected`: expected number of bad nodes, for the first guess of probabilities.
    - `kinds`: parts that may be faulty. Serial mode takes `("node",)` alone, and assumes that every failure is a node's own: no
      command uses it.
    - `most_rounds`, `most_tests`: rounds and tests after which the localisation ends unfinished.
    """

    mode: Mode = "idle"
    alpha: float = 0.01
    beta: float = 0.001
    noise: float = 0.02
    expected: float = 2.0
    kinds: tuple[PartKind, ...] = PARTS
    most_rounds: int = 200
    most_tests: int = 1_000_000


class FabricTest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test to run: all of `nodes` exchange data with each other, and pass only if every exchange reaches its floor.

    - `pair`: two nodes over all rails at once; `rail`: two nodes over the one rail `rail`.
    - `group`: all-to-all among the nodes, so each pair and each leaf-leaf path among them is used.
    - `self`: one node alone.

    Tests of one round share no node, except rail tests, which share no rail of a node: all of them run at the same time.
    """

    id: str
    kind: Kind
    nodes: tuple[str, ...]
    rail: int | None = None


class Outcome(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Result of one test. `unknown`: it could not be run or read, which counts as no evidence.

    `figure` is the measured bandwidth, for people: decisions rest on `result`. `repeat` counts earlier tests of the same nodes.
    """

    test: str
    result: Result
    figure: float | None = None
    repeat: int = 0


class Round(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tests that run at the same time, and their outcomes once they have run. `number` counts from 1; `purpose` is for people.

    A round without tests means that the localisation is finished.
    """

    number: int
    purpose: str = ""
    tests: tuple[FabricTest, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


class History(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decisions rest on: the fabric, the policy, and each round with its outcomes. `encoding` makes it compact."""

    map: FabricMap
    policy: Policy = Policy()
    rounds: tuple[Round, ...] = ()


class Suspect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part that is named as faulty.

    - `node`: one of `nodes`; `rail`: that rail of the node; `pair`: the two nodes, each good with others.
    - `path`: traffic between the two `leaves`, whichever nodes use it.
    - `scale`: no part, but tests of at least `at_least_nodes` nodes fail whichever they are. The largest size that passed
      is `passes_nodes`.

    `error` bounds the probability that the part is innocent. `evidence` holds ids of tests that show it, at most 16.
    """

    kind: PartKind
    nodes: tuple[str, ...] = ()
    rail: int | None = None
    leaves: tuple[str, ...] = ()
    at_least_nodes: int | None = None
    passes_nodes: int | None = None
    error: float = 0.0
    evidence: tuple[str, ...] = ()


class FaultDiagnosis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Verdict of a localisation. It is final only if `finished`.

    - `cleared`: nodes that passed enough tests; `undecided`: nodes that are neither named nor cleared.
    - `false_alarm`: bound on the probability that any named part is innocent; `missed`: the same for one faulty part being
      overlooked, among the kinds of parts that the policy looks for.
    - `noise`: share of wrong results that the history shows. `reason` tells why it is not finished.
    """

    suspects: tuple[Suspect, ...] = ()
    cleared: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    rounds: int = 0
    tests: int = 0
    false_alarm: float = 0.0
    missed: float = 0.0
    noise: float = 0.0
    finished: bool = False
    reason: str = ""


class RoundRunner(Protocol):
    """Runs the tests of a round at the same time, such as by Kubernetes Jobs, Slurm steps or SSH."""

    def run(self, tests: Sequence[FabricTest]) -> Sequence[Outcome]:
        """Return one outcome for each test. A test that could not be run is `unknown`, never `pass`."""
        ...
