"""Rounds for an idle machine: as few rounds as possible, because disjoint tests run at the same time.

Order: a matching of all nodes across leaves; then suspects with known-good partners, edges apart from nodes, and rails, all at
once; then groups.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from steps.localise.contract import FabricTest, Kind, Round
from steps.localise.fabric_belief import NODE, PAIR, PATH, Variable
from steps.localise.part_status import PartStatus
from steps.localise.partners import Usage, matching, scatter
from steps.localise.residual import LEAST_SHARE, SCALE, Hypothesis, Residual
from steps.localise.trials import members

LIKELY = math.log(0.12 / 0.88)
"""Log odds from which a hypothesis of the search is tested directly."""
UNLIKELY = 0.1
"""Share of the weight of all hypotheses up to which one is not `LIKELY` without direct tests."""
DOMINANT = 0.3
"""Share of the weight of all hypotheses from which one is tested directly, whatever its own tests showed so far."""
PROBABLE = 0.5
"""Probability of one more fault from which nodes are halved."""
OPTIONS = 4
"""Random partitions into two, three and four groups among which the best is chosen."""
WEIGHTIEST = 150
"""Most sets of pairs weighed when partitions are compared."""
LEAST_TOLD = 1e-4
"""Groups run if their outcomes tell more than this, in nats."""
LIKELY_SIZE = 0.02
"""Probability of an interval of sizes from which groups of such sizes are tested."""
FEW = 0.1
"""Share of nodes whose rails are untested up to which groups of the others run at the same time."""


class IdleRound:
    """The tests of the next round on an idle machine. Nodes are taken once, in the order of the needs."""

    def __init__(self, status: PartStatus) -> None:
        self.status, self.fabric, self.beliefs = status, status.fabric, status.beliefs
        self.limits = status.limits
        self.usage = Usage(self.fabric, status.trials)
        self.free = set(range(self.fabric.size)) - status.silent
        self.tests: list[tuple[Kind, tuple[int, ...], int | None]] = []
        self.busy_paths: set[tuple[int, int]] = set()
        self.purposes: list[str] = []

    def plan(self) -> Round:
        """Return the next round; without tests, everything is decided."""
        if not self.status.trials and self.status.number == 1:
            self._screen("matching across leaves")
        else:
            self._edges()
            self._suspects()
            screened = self._rails()
            if screened:
                self._search()
            if not self.tests:
                self._uncleared()
            elif self.beliefs.policy.noise:
                self._fill()
        return self._round()

    def _round(self) -> Round:
        number, names = self.status.number, self.fabric.names
        tests = tuple(
            FabricTest(id=f"{number}.{place}", kind=kind, nodes=tuple(names[node] for node in nodes), rail=rail)
            for place, (kind, nodes, rail) in enumerate(self.tests, start=1)
        )
        return Round(number=number, purpose=", ".join(dict.fromkeys(self.purposes)), tests=tests)

    def _add(self, kind: Kind, nodes: Iterable[int], purpose: str, rails: Sequence[int | None] = (None,)) -> None:
        taken = tuple(nodes)
        self.tests += [(kind, taken, rail) for rail in rails]
        self.free -= set(taken)
        self.purposes.append(purpose)
        if len(taken) == 2:
            self.usage.add(*taken)

    # ---- nodes ---------------------------------------------------------------------------------------------------------------

    def _screen(self, purpose: str) -> None:
        """Match all free nodes; a node that is left over is tested alone."""
        pairs = matching(self.usage, sorted(self.free), self.status.number, self._is_open)
        for pair in pairs:
            self._add("pair", pair, purpose)
        if self.status.number == 1:
            for node in sorted(self.free):
                self._add("self", (node,), purpose)

    def _suspects(self) -> None:
        """Test nodes in doubt with partners that passed."""
        order = sorted(self.status.doubted - self.status.hopeless, key=lambda node: (-self.beliefs.node(node), node))
        for node in order:
            self._with_partner(node, "suspects with known-good partners")
        for node in sorted(self.status.unheard - self.status.silent):
            self._with_partner(node, "nodes without results")

    def _with_partner(self, node: int, purpose: str) -> None:
        if node in self.free and (partner := self._partner(node)) is not None:
            self._add("pair", (node, partner), purpose)

    def _partner(self, node: int, rails: Sequence[int] = ()) -> int | None:
        """Return the free node with which a test of `node` tells most: probably good, new, and on a new leaf."""
        leaf, trust, spread = self.fabric.leaf, self.trust, self.spread
        pairs, leaves = self.usage.pairs, self.usage.leaves
        rank = self.rail_trust if rails else None
        # nodes of the least doubt in front of the others: hardly ever is none of them open
        ranked: dict[int, list[int]] = {}
        for other in self.free - self.status.aside:
            if other != node:
                ranked.setdefault(trust[other][0] + (rank[other] if rank else 0), []).append(other)
        for level in sorted(ranked):
            costs = [
                (
                    pairs.get((node, other) if node < other else (other, node), 0),
                    leaf[other] == leaf[node],
                    leaves.get((node, leaf[other]), 0),
                    trust[other][1],
                    spread[other] ^ spread[node],
                    other,
                )
                for other in ranked[level]
            ]
            for cost in sorted(costs):
                if self._is_open(node, cost[-1]):
                    return cost[-1]
        return None

    @cached_property
    def spread(self) -> list[int]:
        """Return a number for each node that orders nodes differently in each round."""
        return [scatter(self.status.number, node) for node in range(self.fabric.size)]

    @cached_property
    def trust(self) -> list[tuple[int, bool]]:
        """Return for each node if it might be bad (2), and if it is not cleared yet."""
        odds, ratio, cleared = self.beliefs.node, self.beliefs.ratio, self.beliefs.is_cleared
        nodes = [(NODE, node) for node in range(self.fabric.size)]
        return [(2 if odds(part[1]) > -3 or ratio(part) >= 0 else 0, not cleared(part)) for part in nodes]

    @cached_property
    def rail_trust(self) -> list[int]:
        """Return for each node if one of its rails might be bad (4), is not cleared (1), or none of both (0)."""
        worst = [max(self.beliefs.rail_ratios(node)) for node in range(self.fabric.size)]
        return [4 if ratio > 0 else 1 if ratio > self.limits.cleared else 0 for ratio in worst]

    @cached_property
    def closed_paths(self) -> frozenset[tuple[int, ...]]:
        """Return the paths that are bad or suspect."""
        return frozenset(self.beliefs.paths_above(-2))

    def _is_open(self, first: int, second: int) -> bool:
        """Return True if neither the path nor the pair of two nodes is suspect or being tested."""
        path = self.fabric.path(first, second)
        if path and (path in self.busy_paths or path in self.closed_paths):
            return False
        pair = (min(first, second), max(first, second))
        return pair not in self.status.direct_pairs and (PAIR, *pair) not in self.status.by_groups

    # ---- edges ---------------------------------------------------------------------------------------------------------------

    def _edges(self) -> None:
        """Repeat failed pairs of good nodes alone on their leaves, beside another pair on the same two leaves."""
        for pair in sorted(self.beliefs.doubted):
            path = self.fabric.path(*pair)
            if not self.status.aside & set(pair) and self._is_doubted_edge(pair, path):
                if self.free.issuperset(pair):
                    self._add("pair", pair, "failed pairs alone")
                if path:
                    self._exchange(path)
        for path in self.beliefs.paths_above(self.limits.doubt):
            if path not in self.status.direct_paths:
                self._exchange(path)

    def _is_doubted_edge(self, pair: tuple[int, ...], path: tuple[int, int] | None) -> bool:
        if path in self.status.direct_paths or pair in self.status.direct_pairs or (PAIR, *pair) in self.status.by_groups:
            return False
        if self.status.number % 2 and not self.status.intermittent.doubt.keys().isdisjoint(pair):
            return False  # other partners tell if the failures are the node's or the pair's
        calm = all(self.beliefs.ratio((NODE, node)) < 0 for node in pair)
        # a repeat that passes ends the doubt about this pair: its prior is far below one wrong result
        return calm and "pair" in self.beliefs.policy.kinds and self.beliefs.own.get(pair, 0.0) > 0

    def _exchange(self, path: tuple[int, int]) -> None:
        """Test one good pair between two leaves that no test of this round uses."""
        if path in self.busy_paths:
            return
        ends = [[node for node in members(self.fabric.leaf_masks[leaf]) if self._is_good(node)] for leaf in path]
        pairs = [(first, second) for first in ends[0] for second in ends[1]]
        used = self.usage.of_pair
        number = self.status.number
        for first, second in sorted(pairs, key=lambda pair: (used(*pair), scatter(number, *pair)))[:1]:
            self._add("pair", (first, second), "other pairs on the leaves of failed pairs")
        self.busy_paths.add(path)

    def _is_good(self, node: int) -> bool:
        return node in self.free and node not in self.status.aside and self.beliefs.node(node) < -3

    # ---- rails ---------------------------------------------------------------------------------------------------------------

    def _rails(self) -> bool:
        """Test the rails of suspects, and those that have not passed yet; return True if only few of the latter are left."""
        if self.fabric.rails < 2 or "rail" not in self.beliefs.policy.kinds:
            return True
        failing = {
            (node, trial.rail) for trial in self.beliefs.trials if trial.kind == "rail" and trial.failed for node in trial.nodes
        }
        # rails of a node that fails now and then would be neither named nor cleared
        for node in sorted(self.free - self.status.hopeless - self.status.intermittent.named.keys()):
            bad = node in self.status.bad
            rails = [rail for rail in self._open_rails(node) if bad or (node, rail) in failing]
            if rails and (partner := self._partner(node, rails)) is not None:
                self._add("rail", (node, partner), "rails of suspects", rails)
        fresh = sorted(node for node in self.free - self.status.aside - self.status.doubted if self._open_rails(node))
        fresh = [node for node in fresh if self.status.tests_of_node[node]]
        spare = sorted(self.free - self.status.aside - set(fresh))
        if len(fresh) % 2 and spare:
            fresh.append(spare[0])
        for pair in matching(self.usage, fresh, self.status.number, self._is_open):
            self._add("rail", pair, "rails of all nodes", range(self.fabric.rails))
        return len(fresh) <= self.fabric.size * FEW

    def _open_rails(self, node: int) -> list[int]:
        """Return the rails of a node that are neither named nor cleared."""
        return self.open_rails[node]

    @cached_property
    def open_rails(self) -> list[list[int]]:
        """Return the rails of each node that are neither named nor cleared."""
        bad, cleared, ratios = self.status.rails, self.limits.cleared, self.beliefs.rail_ratios
        return [
            [rail for rail, ratio in enumerate(ratios(node)) if ratio > cleared and rail not in bad.get(node, ())]
            for node in range(self.fabric.size)
        ]

    # ---- groups --------------------------------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Test candidates directly and halve the rest; nothing is left to do if one more fault is improbable."""
        rest = self.status.residual
        if self.status.scale or rest.remaining <= self.beliefs.policy.beta:
            return
        self._candidates(rest)
        weighed = _Weighed(rest)
        groups = max(self._options(rest), key=weighed.entropy, default=())
        if weighed.entropy(groups) < LEAST_TOLD:
            return  # their outcome is certain already, and would be so in every later round
        for group in groups:
            self._add("group", members(group), "groups that halve the rest" if len(groups) > 1 else "all good nodes at once")

    def _candidates(self, rest: Residual) -> None:
        # groups may insist on a part that passed its own tests by chance: then it is tested again
        heavy = DOMINANT * (rest.none + rest.total)
        # a part that no direct test speaks against is as probable as its weight tells: most are left out by that alone
        light = UNLIKELY * (rest.none + rest.total)
        weighed = zip(rest.hypotheses, rest.masses, strict=True)
        doubted = [(part, mass) for part, mass in weighed if mass > light or part.direct]
        doubted = [(part, mass) for part, mass in doubted if part.variable != SCALE and rest.odds(part) < self.limits.named]
        likely = [part for part, mass in doubted if mass > heavy or rest.odds(part) > LIKELY]
        for part in sorted(likely, key=lambda part: (-rest.odds(part), part.variable)):
            kind, *nodes = part.variable
            if kind == PAIR and self.free.issuperset(nodes):
                self._add("pair", nodes, "candidates of the search")
            elif kind == PATH:
                self._exchange((nodes[0], nodes[1]))
            elif kind == NODE:
                self._with_partner(nodes[0], "candidates of the search")

    def _options(self, rest: Residual) -> Iterator[tuple[int, ...]]:
        """Yield partitions of the nodes without a known fault: whole, random ones, and by size for faults of scale."""
        free = sum(1 << node for node in self.free - self.status.doubted - self.status.unheard)
        for number, cover in enumerate(rest.covers):
            nodes = members(cover & free)
            if len(nodes) < 2:
                continue
            yield (cover & free,)
            if rest.remaining < PROBABLE:
                continue  # a fault is improbable: all nodes at once can end the search, halves cannot
            for option in range(OPTIONS):
                for parts in (2, 3, 4):
                    if len(nodes) >= 2 * parts:
                        yield _partition(nodes, parts, self.status.number, number, option)
            for part in rest.others:
                if part.variable == SCALE and rest.probability(part) > LIKELY_SIZE:
                    yield from self._sized(nodes, part)

    def _sized(self, nodes: list[int], part: Hypothesis) -> Iterator[tuple[int, ...]]:
        """Yield groups of the size that halves an interval of sizes, or of its two ends where wrong results may hide it."""
        middle = min(max(math.isqrt(part.above * part.upto), part.above + 1), part.upto - 1)
        order = sorted(nodes, key=lambda node: scatter(self.status.number, node))
        for size in (part.above, part.upto) if part.is_narrow else (middle,):
            groups = [order[first : first + size] for first in range(0, len(order) - size + 1, size)]
            if groups and size > 2:
                yield tuple(sum(1 << node for node in group) for group in groups)

    # ---- samples of what passed ----------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Use nodes that would be idle for a second test of nodes that passed once: it takes no time."""
        passed = [node for node in uncleared(self.status) if node in self.free]
        for pair in matching(self.usage, passed, self.status.number, self._is_open):
            self._add("pair", pair, "sample of what passed")

    def _uncleared(self) -> None:
        """Test nodes that no pair or group has cleared, such as those that had no outcome."""
        for node in uncleared(self.status):
            if node not in self.status.doubted:
                self._with_partner(node, "nodes without enough results")


def uncleared(status: PartStatus) -> list[int]:
    """Return the nodes that are neither set aside nor cleared by pairs and groups."""
    known = status.residual.known.aside
    passes = [(t.mask, status.beliefs.weight(t)) for t in status.trials if t.kind == "group" and not t.failed]
    rest = []
    for node in range(status.fabric.size):
        if node not in status.aside and not known >> node & 1:
            ratio = status.beliefs.ratio((NODE, node))
            if ratio > status.limits.cleared:
                ratio += sum(weight for mask, weight in passes if mask >> node & 1)
            if ratio > status.limits.cleared or node in status.intermittent.doubt:
                rest.append(node)
    return rest


def _partition(nodes: Sequence[int], parts: int, *seed: int) -> tuple[int, ...]:
    """Return masks of equal, scattered parts of the nodes."""
    base = scatter(parts, *seed)
    order = sorted(nodes, key=lambda node: scatter(base ^ node))
    return tuple(sum([1 << node for node in order[part::parts]]) for part in range(parts))


class _Weighed:
    """The hypotheses of the search that carry most weight, to compare partitions."""

    def __init__(self, rest: Residual) -> None:
        self.leaves = rest.fabric.leaf_masks
        self.whole = rest.none + rest.total
        self.sets = sorted(rest.sets, key=lambda part: -part[1] * part[0].pairs)[:WEIGHTIEST]
        least = self.whole * LEAST_SHARE
        heavy = [(part, mass) for part, mass in zip(rest.hypotheses, rest.masses, strict=True) if mass > least]
        self.scales = [(part, mass) for part, mass in heavy if part.variable == SCALE]
        # a test fails if it touches both of these masks
        self.parts = [(*self._masks(part.variable), mass) for part, mass in heavy if part.variable != SCALE]

    def _masks(self, variable: Variable) -> tuple[int, int]:
        kind, *numbers = variable
        masks = [self.leaves[number] if kind == PATH else 1 << number for number in numbers]
        return masks[0], masks[-1]

    def _failing(self, group: int) -> float:
        """Return the weight of all hypotheses, but for those of scale, that make a test of these nodes fail."""
        failing = 0.0
        for (left, right, _, _), mass in self.sets:
            if inner := left & group:
                count = inner.bit_count()
                failing += mass * (count * (count - 1) // 2 if left == right else count * (right & group).bit_count())
        return failing + sum([mass for first, second, mass in self.parts if group & first and group & second])

    def entropy(self, groups: Sequence[int]) -> float:
        """Return how much the outcome of groups tells, in nats: which of them fails, all of them, or none."""
        failing = [self._failing(group) for group in groups]
        least = min((group.bit_count() for group in groups), default=0)
        every = sum(mass * part.share(least) for part, mass in self.scales)
        if len(groups) == 1:
            failing[0] += every
        else:
            failing.append(every)
        shares = [mass / self.whole for mass in failing]
        shares.append(max(1 - sum(shares), 0.0))
        return -sum(share * math.log(share) for share in shares if share > 0)
