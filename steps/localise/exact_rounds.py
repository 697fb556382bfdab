"""Rounds for small fabrics: the tests whose outcomes tell most about which set of faults is there.

A test is planned only if sets of faults that are still possible differ in its outcome, so no round repeats what cannot change the
decision. If no test is left that tells them apart, the localisation ends, and names what is certain.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from steps.localise.contract import FabricTest, FaultDiagnosis, History, Kind, Round, Suspect
from steps.localise.fabric_belief import NAMED_AT_MOST, NODE, PAIR, PATH, RAIL, Variable
from steps.localise.fault_sets import FaultSets, part_catalog
from steps.localise.part_status import SILENT, unheard_nodes
from steps.localise.partners import Usage, matching, scatter
from steps.localise.residual import SCALE
from steps.localise.trials import IndexedFabric, members, passing_nodes, trials

LARGEST = 16
"""Largest fabric whose sets of faults are compared."""
MOST_ROUNDS = 40
"""Rounds after which results that still contradict each other stay undecided."""
LEAST_GAIN = 3e-5
"""A test is worth its time if it tells more than this, in nats."""
MOST_STATES = 250
"""Most sets of faults weighed when tests are chosen."""
MOST_PAIRS = 28
"""Most pairs weighed in a round; which ones changes from round to round."""
LIKELY = 0.05
"""Probability from which a part is a suspect in the purpose of a round, and its nodes are tested first."""
DOUBTED = 0.2
"""Probability from which a node may be bad and stays out of groups: groups of bad nodes always fail and tell little."""
MOST_TOLD = 3
"""Most nodes that fail now and then that are named in the reason."""
Observable = tuple[Kind, int]
"""Kind and mask of nodes of a test; for kind `rail`, all rails of two nodes."""


class WeighedTest(NamedTuple):
    """A test with its outcome for each weighed set: `others` are the places and outcomes that differ from the first one.

    `chances` are the places of sets of which this test tells the two rows apart, with the entropy that is no information.
    """

    test: Observable
    codes: list[int]
    others: list[tuple[int, int]]
    chances: list[tuple[int, float]]


class ExactLocalisation:
    """Planning and verdict for a small fabric."""

    def __init__(self, history: History) -> None:
        self.fabric, self.policy = IndexedFabric(history.map), history.policy
        self.history, self.number = history, len(history.rounds) + 1
        self.trials = trials(history, self.fabric)
        unheard = unheard_nodes(history, self.fabric)
        self.silent = frozenset(node for node, count in unheard.items() if count >= SILENT)
        self.catalog = part_catalog(history.map, self.policy, self.silent)
        self.beliefs = FaultSets(self.catalog, self.policy, self.trials)
        self.usage = Usage(self.fabric, ())
        for part in history.rounds:
            # tests without a result count too: the next attempt takes other partners
            for pair in {test.nodes for test in part.tests if len(test.nodes) == 2}:
                self.usage.add(*(self.fabric.index[name] for name in pair))
        self.unheard = frozenset(unheard)
        self.unanswered = self._without_result()
        groups = any(trial.kind == "group" for trial in self.trials)
        vain = (test for test, count in self.unanswered.items() if count >= SILENT and (test[1] or not groups))
        self.vain = frozenset(vain)
        self.doubt = self.policy.alpha / NAMED_AT_MOST

    def _without_result(self) -> Counter[Observable]:
        """Return how often each test gave no result; mask 0 means all groups. After `SILENT` times it is not tried again."""
        unanswered = Counter[Observable]()
        for part in self.history.rounds:
            known = {outcome.test for outcome in part.outcomes if outcome.result != "unknown"}
            silent = [test for test in part.tests if test.id not in known]
            unanswered.update({(test.kind, self._mask([self.fabric.index[name] for name in test.nodes])) for test in silent})
            unanswered.update({(test.kind, 0) for test in silent if test.kind == "group"})
        return unanswered

    # ---- what is decided -----------------------------------------------------------------------------------------------------

    @cached_property
    def named(self) -> frozenset[Variable]:
        """Return the parts that are certain enough."""
        return frozenset(variable for variable, share in self.beliefs.marginals.items() if share >= 1 - self.doubt)

    @cached_property
    def remaining(self) -> float:
        """Return the probability of a fault besides the named ones."""
        return self.beliefs.without(self.named)

    @cached_property
    def is_narrow(self) -> bool:
        """Return True unless a fault of scale is named whose size is not known closely enough."""
        passes, fails = self.beliefs.sizes(self.doubt)
        return SCALE not in self.named or fails - passes <= max(1, fails // 8)

    @property
    def is_decided(self) -> bool:
        """Return True if every part is named or cleared."""
        return len(self.catalog.nodes) < 2 or (self.remaining <= self.policy.beta and self.is_narrow and bool(self.trials))

    def plan(self) -> Round:
        """Return the next round; without tests, everything is decided or no test would tell more."""
        if self.is_decided or self.number > MOST_ROUNDS:
            return Round(number=self.number)
        if not self.trials and self.number == 1:
            pairs = matching(self.usage, self.catalog.nodes, self.number, lambda *_: True)
            return self._round([("pair", self._mask(pair)) for pair in pairs], "matching across leaves")
        tests = self._best_tests()
        return self._round(tests, ", ".join(dict.fromkeys(self._purpose(test) for test in tests)))

    def _round(self, chosen: Sequence[Observable], purpose: str) -> Round:
        names, number = self.fabric.names, self.number
        rows: list[tuple[Kind, int, int | None]] = []
        for kind, mask in chosen:
            rails: Sequence[int | None] = range(self.catalog.rails) if kind == "rail" else (None,)
            rows += [(kind, mask, rail) for rail in rails]
        tests = tuple(
            FabricTest(id=f"{number}.{place}", kind=kind, nodes=tuple(names[node] for node in members(mask)), rail=rail)
            for place, (kind, mask, rail) in enumerate(rows, start=1)
        )
        return Round(number=number, purpose=purpose, tests=tests)

    def _purpose(self, test: Observable) -> str:
        kind, mask = test
        suspect = any(self._touch(variable) & mask for variable, share in self.beliefs.marginals.items() if share > LIKELY)
        if kind == "rail":
            return "rails of suspects" if suspect else "rails of all nodes"
        if kind == "group":
            return "groups that tell the rest apart"
        return "suspects with other partners" if suspect else "sample of what passed"

    def _touch(self, variable: Variable) -> int:
        """Return the nodes of a part."""
        kind, *rest = variable
        if kind in (NODE, RAIL):
            return 1 << rest[0]
        if kind == PAIR:
            return 1 << rest[0] | 1 << rest[1]
        return self.catalog.leaves[rest[0]] | self.catalog.leaves[rest[1]] if kind == PATH else 0

    # ---- which tests tell most -----------------------------------------------------------------------------------------------

    @property
    def weighed(self) -> list[tuple[tuple[int, ...], float]]:
        """Return the sets of faults that carry most weight; one with intermittent faults twice: as if all show, and none."""
        return self._rows[0]

    @cached_property
    def _rows(self) -> tuple[list[tuple[tuple[int, ...], float]], list[tuple[int, float]]]:
        """Return the weighed sets, and by place the entropy by which the two rows of one set differ."""
        rows: list[tuple[tuple[int, ...], float]] = []
        chances: list[tuple[int, float]] = []
        for state, share in itertools.islice(self.beliefs.states.items(), MOST_STATES):
            shown = self.catalog.parts[state[-1]].share if state else 1.0
            if shown == 1.0:
                rows.append((state, share))
                continue
            chance = -shown * math.log(shown) - (1 - shown) * math.log(1 - shown)
            chances.append((len(rows), share * chance))
            rows.append((state, share * shown))
            rows.append((tuple(index for index in state if index < self.catalog.lasting), share * (1 - shown)))
        return rows, chances

    @cached_property
    def pairs(self) -> list[int]:
        """Return the masks of pairs to choose from: fewest tests first, across leaves, in another order in each round."""
        leaf, used, number = self.fabric.leaf, self.usage.of_pair, self.number
        every = list(itertools.combinations(self.catalog.nodes, 2))
        every.sort(key=lambda pair: (used(*pair), leaf[pair[0]] == leaf[pair[1]], scatter(number, *pair)))
        heavy = [self._touch(variable) for variable, share in self.beliefs.marginals.items() if share > LIKELY / 2]
        masks = [1 << first | 1 << second for first, second in every]
        inner = {1 << first | 1 << second for first, second in every if leaf[first] == leaf[second]}
        wide = [mask for mask in masks if mask not in inner]
        few = (*wide[:MOST_PAIRS], *[mask for mask in masks if mask in inner][:MOST_PAIRS])
        return list(dict.fromkeys((*[touch for touch in heavy if touch in masks], *few, *masks)))

    def _codes(self, test: Observable) -> list[int]:
        """Return the outcome of a test for each weighed set."""
        of_part = self.catalog.outcomes(*test)
        outcomes = [0] * len(self.weighed)
        for index, bits in of_part.items():
            for place in self._sets_of.get(index, ()):
                outcomes[place] |= bits
        return outcomes

    @cached_property
    def _sets_of(self) -> dict[int, list[int]]:
        """Return for each part the places of the weighed sets with it."""
        places: dict[int, list[int]] = {}
        for place, (state, _) in enumerate(self.weighed):
            for index in state:
                places.setdefault(index, []).append(place)
        return places

    @cached_property
    def _shares(self) -> list[float]:
        return [share for _, share in self.weighed]

    def _entropy(self, signatures: Sequence[object]) -> float:
        shares: dict[object, float] = {}
        for signature, share in zip(signatures, self._shares, strict=True):
            shares[signature] = shares.get(signature, 0.0) + share
        # an outcome that one set leaves to chance tells nothing about which set is there
        chance = sum(chance for place, chance in self._rows[1] if signatures[place] != signatures[place + 1])
        return -math.fsum(share * math.log(share) for share in shares.values() if share > 0) - chance

    def _best_tests(self) -> list[Observable]:
        """Return the disjoint tests that together tell most: pairs and rails alone, or beside groups."""
        plans = [self._filled([])]
        if not plans[0]:
            plans = [self._filled([], len(self.pairs))]
        if not plans[0]:
            plans = [self._filled([], len(self.pairs), again=True)]
        groups = sorted(((self._told(plan), place, plan) for place, plan in enumerate(self._group_plans())), reverse=True)
        plans += [self._filled(plan) for gain, _, plan in groups[:2] if gain > LEAST_GAIN]
        return max(plans, key=self._told)

    def _told(self, plan: Sequence[Observable]) -> float:
        if not plan:
            return 0.0
        return self._entropy(list(zip(*(self._codes(test) for test in plan), strict=True)))

    def _filled(self, groups: list[Observable], most: int = 2 * MOST_PAIRS, again: bool = False) -> list[Observable]:
        """Return groups with the pairs and rails of the other nodes that tell most in addition, among the first `most` pairs.

        Pairs that gave no result are tried `again` only if no others tell more: the silent one of the two would keep its partner
        untested.
        """
        plan, busy = list(groups), 0
        signatures = [0] * len(self.weighed)
        for test in groups:
            busy |= test[1]
            signatures = self._told_apart(signatures, self._codes(test))
        kinds: tuple[Kind, ...] = ("pair", "rail") if self.catalog.rails else ("pair",)
        options = [self._option(kind, mask) for mask in self.pairs[:most] if not mask & busy for kind in kinds]
        options = [option for option in options if option.test not in (self.vain if again else self.unanswered)]
        while options:
            known, gains = self._entropy(signatures), self._gains(signatures, options)
            # rounded, so that pairs that tell as much are taken in the order of their use
            place = max(range(len(options)), key=lambda place: (round(known + gains[place], 9), -place))
            if gains[place] < LEAST_GAIN:
                break
            test = options[place].test
            plan.append(test)
            signatures = self._told_apart(signatures, options[place].codes)
            options = [option for option in options if not option.test[1] & test[1]]
        return plan

    def _gains(self, signatures: Sequence[int], options: Sequence[WeighedTest]) -> list[float]:
        """Return by how much each test adds to the entropy of signatures. Sets that show like the first one stay where they are."""
        shares, width, whole = self._shares, self._width, dict[int, float]()
        for signature, share in zip(signatures, shares, strict=True):
            whole[signature] = whole.get(signature, 0.0) + share
        gains: list[float] = []
        for option in options:
            rest, moved = dict[int, float](), dict[int, float]()
            for place, code in option.others:
                signature, share = signatures[place], shares[place]
                rest[signature] = rest.get(signature, whole[signature]) - share
                key = signature << width | code
                moved[key] = moved.get(key, 0.0) + share
            parts = [share * math.log(share) for share in (*rest.values(), *moved.values()) if share > 0]
            gain = math.fsum(whole[signature] * math.log(whole[signature]) for signature in rest) - math.fsum(parts)
            gains.append(gain - sum(chance for place, chance in option.chances if signatures[place] == signatures[place + 1]))
        return gains

    @property
    def _width(self) -> int:
        """Return the number of bits of an outcome."""
        return max(self.catalog.rails, 1)

    def _told_apart(self, signatures: Sequence[int], codes: Sequence[int]) -> list[int]:
        """Return numbers of the weighed sets that are equal where both the signatures and the outcomes of another test are."""
        numbers: dict[int, int] = {}
        both = (signature << self._width | code for signature, code in zip(signatures, codes, strict=True))
        return [numbers.setdefault(pair, len(numbers)) for pair in both]

    def _option(self, kind: Kind, mask: int) -> WeighedTest:
        key = (kind, mask)
        if key not in self._options:
            codes = self._codes(key)
            others = [(place, code) for place, code in enumerate(codes) if code != codes[0]]
            chances = [(place, chance) for place, chance in self._rows[1] if codes[place] != codes[place + 1]]
            self._options[key] = WeighedTest(key, codes, others, chances)
        return self._options[key]

    @cached_property
    def _options(self) -> dict[Observable, WeighedTest]:
        return {}

    def _group_plans(self) -> Iterator[list[Observable]]:
        """Yield groups of nodes without a likely fault: all of them, parts of them, and groups of each size."""
        if ("group", 0) in self.vain:
            return
        for number, cover in enumerate(self._covers()):
            nodes = sorted(members(cover), key=lambda node: scatter(self.number, number, node))
            for size in range(3, len(nodes) + 1):
                count = len(nodes) // size
                groups = [self._mask(nodes[place * size : place * size + size]) for place in range(count)]
                yield [("group", mask) for mask in groups if ("group", mask) not in self.vain]

    def _covers(self) -> list[int]:
        """Return sets of nodes that no likely fault spoils, without the one or the other side of each likely pair and path."""
        spoilt = self.catalog.covered(self.beliefs.best) | self.unheard
        spoilt |= {part[1] for part, share in self.beliefs.marginals.items() if part[0] == NODE and share > DOUBTED}
        whole = self._mask([node for node in self.catalog.nodes if node not in spoilt])
        sides: list[tuple[int, int]] = []
        for index in self.beliefs.best:
            kind, *rest = self.catalog.parts[index].variable
            if kind == PAIR:
                sides.append((1 << rest[0], 1 << rest[1]))
            elif kind == PATH:
                sides.append((self.catalog.leaves[rest[0]], self.catalog.leaves[rest[1]]))
        covers = [whole]
        for first, second in sides:
            covers = [cover & ~side for cover in covers for side in (first, second)][:4]
        return covers if not sides else [*covers, whole]

    @staticmethod
    def _mask(nodes: Sequence[int]) -> int:
        return sum(1 << node for node in nodes)

    # ---- verdict -------------------------------------------------------------------------------------------------------------

    def verdict(self, unfinished: str) -> FaultDiagnosis:
        """Return the diagnosis. `unfinished` tells why the localisation is not finished; it is empty if it is."""
        suspects = tuple(self._suspects())
        blamed = {node for suspect in suspects if suspect.kind in ("node", "rail") for node in suspect.nodes}
        undecided = tuple(self.fabric.names[node] for node in self._undecided() if self.fabric.names[node] not in blamed)
        # nobody clears a node by a test that failed: two nodes of one bad pair are named by the pair, and known no better
        passing = passing_nodes(self.trials)
        cleared = {name for node, name in enumerate(self.fabric.names) if passing >> node & 1} - blamed - {*undecided}
        return FaultDiagnosis(
            suspects=suspects,
            cleared=tuple(name for name in self.fabric.names if name in cleared),
            undecided=undecided,
            rounds=len(self.history.rounds),
            tests=sum(len(part.tests) for part in self.history.rounds),
            false_alarm=round(min(math.fsum(suspect.error for suspect in suspects), 1.0), 9),
            missed=round(max(self.remaining if self.trials else 1.0, self.policy.beta if self.policy.noise else 0.0), 9),
            noise=round(self.beliefs.rate if self.policy.noise else 0.0, 6),
            finished=not unfinished,
            reason=unfinished or self._open_end(suspects, undecided),
        )

    def _open_end(self, suspects: Sequence[Suspect], undecided: Sequence[str]) -> str:
        """Return what a finished localisation leaves open; empty if nothing."""
        names = self.fabric.names
        if len(self.catalog.nodes) == 2 and any(suspect.kind == "pair" for suspect in suspects):
            return "two nodes cannot tell which of them, or what is between them, is bad: test each with a third node"
        unsteady = [(names[node], *counts) for node, counts in self.unsteady.items() if names[node] in undecided]
        texts = [f"{node} fails {fails} of {tests} of its tests" for node, fails, tests in unsteady if fails < tests]
        if texts:
            return f"{'; '.join(texts[:MOST_TOLD])}, and no named part explains it"
        if self.silent and len(undecided) == len(self.silent):
            return f"{len(undecided)} nodes gave too few or contradictory results"
        if not self.is_decided or undecided:
            return f"{len(undecided)} nodes are undecided: a fault is left that no further test among these nodes tells from others"
        return ""

    def _undecided(self) -> list[int]:
        """Return the nodes that gave no results, or that a part may concern which is neither named nor cleared."""
        nodes = set(self.silent) | set(self.unsteady)
        for variable, share in self.beliefs.marginals.items():
            own = variable[0] in (NODE, RAIL)
            if variable not in self.named and share > (self.policy.beta if own else LIKELY):
                nodes.update(members(self._touch(variable)))
        known = passing_nodes(self.trials)
        for variable in self.named:
            known |= self._touch(variable) if variable[0] == PAIR else 0
        return sorted(nodes | {node for node in self.catalog.nodes if not known >> node & 1})

    @cached_property
    def unsteady(self) -> dict[int, tuple[int, int]]:
        """Return node → (failed tests, all tests) of nodes with two failures that no named part explains; none is ever cleared."""
        explained = 0
        for part, bits in zip(self.beliefs.parts, self.beliefs.fails, strict=True):
            if part.variable in self.named or (part.variable[0] == RAIL and (NODE, part.variable[1]) in self.named):
                explained |= bits
        bad = Counter[int]()
        for place, trial in enumerate(self.beliefs.trials):
            if trial.failed and not explained >> place & 1:
                bad.update(trial.nodes)
        tests = Counter(node for trial in self.beliefs.trials for node in trial.nodes)
        return {node: (count, tests[node]) for node, count in sorted(bad.items()) if count > 1}

    def _suspects(self) -> Iterator[Suspect]:
        """Yield the named parts: nodes and rails in fleet order, then pairs, paths and the size that fails."""
        for variable in sorted(self.named, key=lambda part: (NODE, *part[1:]) if part[0] == RAIL else part):
            yield self._suspect(variable)

    def _suspect(self, variable: Variable) -> Suspect:
        kind, *rest = variable
        names, leaves = self.fabric.names, self.fabric.leaf_names
        error = round(max(1 - self.beliefs.marginals[variable], 0.0), 12)
        evidence = self._evidence(variable)
        if kind == NODE:
            return Suspect(kind="node", nodes=(names[rest[0]],), error=error, evidence=evidence)
        if kind == RAIL:
            return Suspect(kind="rail", nodes=(names[rest[0]],), rail=rest[1], error=error, evidence=evidence)
        if kind == PAIR:
            return Suspect(kind="pair", nodes=(names[rest[0]], names[rest[1]]), error=error, evidence=evidence)
        if kind == PATH:
            return Suspect(kind="path", leaves=(leaves[rest[0]], leaves[rest[1]]), error=error, evidence=evidence)
        passes, fails = self.beliefs.sizes(self.doubt)
        return Suspect(kind="scale", at_least_nodes=fails, passes_nodes=passes, error=error, evidence=evidence)

    def _evidence(self, variable: Variable) -> tuple[str, ...]:
        fails = 0
        for part, bits in zip(self.beliefs.parts, self.beliefs.fails, strict=True):
            if part.variable == variable or (variable[0] == NODE and part.variable[:2] == (RAIL, variable[1])):
                fails |= bits
        fails &= self.beliefs.observed
        return tuple(trial.id for place, trial in enumerate(self.beliefs.trials) if fails >> place & 1)[:16]
