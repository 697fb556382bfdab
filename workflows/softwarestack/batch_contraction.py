"""Contract a graph of builds: merge pairs, the lightest build first, as long as no path gets longer than the stack takes anyway."""

from collections.abc import Iterable
from typing import Final

from workflows.softwarestack.build_schedule import BuildSchedule

_MOST_PARTNERS: Final = 30
_EXACT: Final = 250
"""Number of batches up to which all paths are measured after each merger; with twice as many, after every second one."""


def contract(schedule: BuildSchedule, bound: float, limit: int) -> list[list[str]]:
    """Return at most `limit` batches of the builds, each in topological order, which can be run without circles between them.

    Paths through the batches stay below `bound` seconds as far as that is possible.
    """
    graph, tolerance, mergers = _BatchGraph(schedule, bound), 0.0, 0
    blocked = set[int]()
    while len(graph.seconds) > limit:
        if mergers % (1 + len(graph.seconds) // _EXACT) == 0:
            graph.measure()
        mergers += 1
        if not graph.merge_lightest(blocked, tolerance):
            tolerance = 1.5 * tolerance + bound / 200
            blocked.clear()
    return graph.batches()


class _BatchGraph:
    """Batches by number with their durations and edges. `after` and `behind` are seconds before and after a batch's own."""

    def __init__(self, schedule: BuildSchedule, bound: float) -> None:
        self.bound = bound
        self.hashes = tuple(schedule.seconds)
        number = {hash_: place for place, hash_ in enumerate(self.hashes)}
        self.seconds = dict(enumerate(schedule.seconds.values()))
        self.members = {place: [place] for place in self.seconds}
        self.needs = {number[hash_]: {number[needed] for needed in schedule.needs[hash_]} for hash_ in self.hashes}
        self.followers: dict[int, set[int]] = {place: set() for place in self.seconds}
        for place, earlier in self.needs.items():
            for each in earlier:
                self.followers[each].add(place)
        self.after = dict[int, float]()
        self.behind = dict[int, float]()
        self.reaches = dict.fromkeys(self.seconds, 0)  # bit sets of the batches that wait for each
        for batch in reversed(self._order()):
            for needed in self.needs[batch]:
                self.reaches[needed] |= self.reaches[batch] | 1 << batch

    def measure(self) -> None:
        """Compute the seconds of the longest paths before and after each batch."""
        order = self._order()
        self.after, self.behind = dict.fromkeys(order, 0.0), dict.fromkeys(order, 0.0)
        for batch in order:
            end = self.after[batch] + self.seconds[batch]
            for follower in self.followers[batch]:
                self.after[follower] = max(self.after[follower], end)
        for batch in reversed(order):
            through = self.behind[batch] + self.seconds[batch]
            for needed in self.needs[batch]:
                self.behind[needed] = max(self.behind[needed], through)

    def merge_lightest(self, blocked: set[int], tolerance: float) -> bool:
        """Merge the lightest batch that can be, so that no path exceeds the bound by more than `tolerance` seconds.

        Return False if there is none. `blocked` are batches that need not be tried; those that were tried in vain are added.
        """
        for batch in sorted(self.seconds.keys() - blocked, key=lambda each: (self.seconds[each], each)):
            scores = [(self._excess(batch, other), self.seconds[other], other) for other in self._partners(batch)]
            for excess, _, partner in sorted(scores):
                if excess > tolerance:
                    break
                if self._is_acyclic(batch, partner):
                    self._merge(batch, partner)
                    return True
            blocked.add(batch)
        return False

    def batches(self) -> list[list[str]]:
        """Return the hashes of each batch, each after those that it needs."""
        return [[self.hashes[place] for place in sorted(places)] for places in self.members.values()]

    def _order(self) -> list[int]:
        waits = {batch: len(needed) for batch, needed in self.needs.items()}
        ready = [batch for batch, count in waits.items() if not count]
        for batch in ready:
            for follower in self.followers[batch]:
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
        return ready

    def _partners(self, batch: int) -> list[int]:
        """Return batches that may be merged with this one: neighbours, and light ones with a neighbour in common."""
        near = self.needs[batch] | self.followers[batch]
        beside = {other for needed in self.needs[batch] for other in self.followers[needed]}
        beside |= {other for follower in self.followers[batch] for other in self.needs[follower]}
        if not self.needs[batch] or not near:
            beside |= {other for other, needed in self.needs.items() if not needed}
        beside -= near | {batch}
        return [*sorted(near), *sorted(beside, key=lambda each: (self.seconds[each], each))[:_MOST_PARTNERS]]

    def _is_acyclic(self, batch: int, other: int) -> bool:
        """Return True if no path leads from one of the two to the other, except for an edge between them."""
        first, last = (other, batch) if self._reaches(other, batch) else (batch, other)
        return not any(self._reaches(between, last) for between in self.followers[first] if between != last)

    def _reaches(self, batch: int, later: int) -> bool:
        return bool(self.reaches[batch] >> later & 1)

    def _excess(self, batch: int, partner: int) -> float:
        """Return by how many seconds the longest path through both together would exceed the bound; 0 if it does not."""
        if partner in self.needs[batch] or partner in self.followers[batch]:
            pair = {batch, partner}
            before = _longest(self.after[each] + self.seconds[each] for each in (self.needs[batch] | self.needs[partner]) - pair)
            behind = _longest(
                self.behind[each] + self.seconds[each] for each in (self.followers[batch] | self.followers[partner]) - pair
            )
        else:  # in the usual case what was measured says it all
            before = max(self.after[batch], self.after[partner])
            behind = max(self.behind[batch], self.behind[partner])
        return max(0.0, before + self.seconds[batch] + self.seconds[partner] + behind - self.bound)

    def _merge(self, batch: int, partner: int) -> None:
        """Make `batch` a part of `partner`. Paths stay as they were measured, bit sets of what waits are kept exact."""
        pair = {batch, partner}
        self.seconds[partner] += self.seconds.pop(batch)
        self.members[partner] += self.members.pop(batch)
        self.needs[partner] = (self.needs[partner] | self.needs.pop(batch)) - pair
        self.followers[partner] = (self.followers[partner] | self.followers.pop(batch)) - pair
        for edges, back in ((self.needs, self.followers), (self.followers, self.needs)):
            for other in edges[partner]:
                back[other].discard(batch)
                back[other].add(partner)
        self.after[partner] = _longest(self.after[each] + self.seconds[each] for each in self.needs[partner])
        self.behind[partner] = _longest(self.behind[each] + self.seconds[each] for each in self.followers[partner])
        own = 1 << batch | 1 << partner
        reached = (self.reaches.pop(batch) | self.reaches[partner]) & ~own
        self.reaches[partner] = reached
        for other, bits in self.reaches.items():
            if bits & own:
                self.reaches[other] = bits | own | reached


def _longest(seconds: Iterable[float]) -> float:
    return max(seconds, default=0.0)
