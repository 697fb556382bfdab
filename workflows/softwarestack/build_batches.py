"""Batches of builds: which builds share a task, so that the tasks of a stack fit into Argo's DAGs and the stack takes no longer.

Argo's CRDs admit 200 tasks in a DAG (`maxItems` of `dag.tasks`, Argo Workflows 4.1.2). A stack with more builds first puts tiny
builds together. If that would take too long, it keeps more batches in several groups, each a DAG of its own; a group starts once
the groups that it needs have ended. The last group holds builds that nothing waits for: they fill slots while chains end.

Pure: equal schedules give equal batches.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from workflows.softwarestack import build_tasks
from workflows.softwarestack.batch_contraction import contract
from workflows.softwarestack.build_schedule import BuildSchedule

LIMIT: Final = 200
"""Most batches of one group."""
MOST: Final = 1400
"""Most batches of all groups together: Argo stores the state of all in one object of 1 MiB, 700 bytes for each that is retried."""
TOLERANCE: Final = 1.05
"""Duration of the batches, as a multiple of the least possible one, above which groups are tried."""
_SLOTS: Final = 64
"""Builds at a time that are assumed if nothing limits them."""
_CONTRACTED: Final = 600
"""Number of builds up to which all are put into one DAG: beyond it, batches get too long for many slots."""
_HELD_BACK: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""Shares of all work that are tried for the group that fills slots at the end."""
_POOR: Final = 1.25
"""Duration of groups, as a multiple of the least possible one, above which a larger stack is tried as one DAG too."""
_END: Final = "end of group "


@dataclass(frozen=True)
class BuildBatches:
    """Batches of builds by key, which is the hash of the first build, and the group of each.

    `packages` has the builds of each batch in the order in which they run. `needs` has, for each batch, the batches that it waits
    for; batches are listed after those.
    """

    seconds: Mapping[str, float]
    packages: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, tuple[str, ...]]
    group: Mapping[str, int]

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Keys of the batches in the order in which ready ones start, by descending critical path, each after all that it needs."""
        return tuple(key for key in self.schedule.by_priority if key in self.packages)

    @cached_property
    def direct(self) -> Mapping[str, tuple[str, ...]]:
        """For each batch the batches that it waits for, without those that another of them waits for anyway."""
        return build_tasks.direct_needs(BuildSchedule(self.seconds, self.needs))

    @cached_property
    def schedule(self) -> BuildSchedule:
        """The schedule of the batches, in which a group's end is a build that takes no time."""
        if len(set(self.group.values())) == 1:
            return BuildSchedule(self.seconds, self.needs)
        members, before = dict[int, list[str]](), dict[int, set[int]]()
        for key, group in self.group.items():
            members.setdefault(group, []).append(key)
            before.setdefault(group, set()).update(self.group[needed] for needed in self.needs[key])
        seconds, needs = dict[str, float](), dict[str, tuple[str, ...]]()
        for group in sorted(members):
            ends = tuple(f"{_END}{earlier}" for earlier in sorted(before[group] - {group}))
            for key in members[group]:
                seconds[key] = self.seconds[key]
                needs[key] = (*(needed for needed in self.needs[key] if self.group[needed] == group), *ends)
            seconds[f"{_END}{group}"], needs[f"{_END}{group}"] = 0.0, tuple(members[group])
        return BuildSchedule(seconds, needs)

    def makespan(self, slots: int) -> float:
        """Return the seconds until all batches are done, with at most `slots` of them at any time.

        Engines start what is ready in one group before they look into the next one.
        """
        first = dict.fromkeys(self.group[key] for key in self.order)
        place = {group: number for number, group in enumerate(first)}
        by_group = sorted(self.order, key=lambda key: place[self.group[key]])
        ends = [key for key in self.schedule.seconds if key not in self.packages]
        return self.schedule.makespan(slots, [*ends, *by_group])


def batches(schedule: BuildSchedule, slots: int = 0, limit: int = LIMIT, most: int = MOST) -> BuildBatches:
    """Return the batches of a schedule: a batch for each build if `limit` admits it, else as many as cost little time.

    `slots` is the largest number of builds at a time, 0 if nothing limits it.
    """
    if len(schedule.seconds) <= limit:
        return _batches(schedule, [[hash_] for hash_ in schedule.seconds])
    at_once = slots or _SLOTS
    tried = list[BuildBatches]()
    for made in _candidates(schedule, at_once, limit, most):
        tried.append(made)
        if made.makespan(at_once) <= TOLERANCE * schedule.bound(at_once):
            return made
    return min(tried, key=lambda made: made.makespan(at_once))


def _candidates(schedule: BuildSchedule, slots: int, limit: int, most: int) -> Iterator[BuildBatches]:
    """Yield possible batches of a schedule, those that usually take the least time first."""
    # a bound for many slots keeps more of the graph's width, one for these slots merges more
    bounds = dict.fromkeys(schedule.bound(number) for number in (max(slots, _SLOTS), slots))
    is_small = len(schedule.seconds) <= min(most, _CONTRACTED)
    if is_small:
        yield from (_batches(schedule, contract(schedule, bound, limit)) for bound in bounds)
    best = math.inf
    followers = _followers(schedule)
    for hub in (limit, 4 * limit):
        for share in _HELD_BACK:
            made = _grouped(schedule, followers, _Cut(hub, share, limit, most))
            best = min(best, made.makespan(slots))
            yield made
    if not is_small and len(schedule.seconds) <= most and best > _POOR * schedule.bound(slots):
        yield _batches(schedule, contract(schedule, max(bounds), limit))


def _batches(schedule: BuildSchedule, members: Sequence[Sequence[str]], groups: Sequence[int] = ()) -> BuildBatches:
    """Return batches with these members, each in topological order; `members` themselves may come in any order."""
    place = {hash_: number for number, hash_ in enumerate(schedule.seconds)}
    batch_of = {hash_: number for number, batch in enumerate(members) for hash_ in batch}
    waits = [
        dict.fromkeys(batch_of[needed] for hash_ in batch for needed in schedule.needs[hash_] if batch_of[needed] != number)
        for number, batch in enumerate(members)
    ]
    ordered = _topological(waits, [max(place[hash_] for hash_ in batch) for batch in members])
    keys = [batch[0] for batch in members]
    return BuildBatches(
        seconds={keys[number]: sum(schedule.seconds[hash_] for hash_ in members[number]) for number in ordered},
        packages={keys[number]: tuple(members[number]) for number in ordered},
        needs={keys[number]: tuple(keys[needed] for needed in waits[number]) for number in ordered},
        group={keys[number]: groups[number] if groups else 0 for number in ordered},
    )


def _topological(waits: Sequence[Iterable[int]], place: Sequence[int]) -> list[int]:
    """Return the numbers of batches, each after those that it waits for, otherwise by `place`."""
    ordered, visited = list[int](), set[int]()
    for first in sorted(range(len(place)), key=place.__getitem__):
        waiting = [first]
        while waiting:
            number = waiting[-1]
            fresh = [needed for needed in waits[number] if needed not in visited]
            if number in visited or not fresh:
                waiting.pop()
                if number not in visited:
                    visited.add(number)
                    ordered.append(number)
            else:
                waiting += fresh
    return ordered


@dataclass(frozen=True)
class _Cut:
    """Rule by which builds are cut into groups.

    Builds that at least `hub` others wait for come first. Of the others, those that nothing waits for are held back for a last
    group, until they are `share` of all work. `limit` and `most` are the largest numbers of batches of a group and of all groups.
    """

    hub: int
    share: float
    limit: int
    most: int


def _grouped(schedule: BuildSchedule, followers: Mapping[str, int], cut: _Cut) -> BuildBatches:
    """Return batches in groups: hubs, then what hangs together beside these, then builds that were held back.

    Engines start what is ready in one group before they look into the next one, so the last components run alone at the end, and
    their chains leave slots free. Builds that nothing waits for fill these slots if they come from earlier components.
    """
    hubs = [hash_ for hash_ in schedule.seconds if followers[hash_] >= cut.hub][: cut.most // 2]
    components = _components(schedule, frozenset(hubs))
    held, components = _held_back(schedule, followers, components, cut.share)
    fillers = _balanced(schedule, held, min(cut.limit, cut.most // 6))
    members: list[Sequence[str]] = [[hash_] for hash_ in hubs]
    groups = [number // cut.limit for number in range(len(hubs))]
    next_group, free = (groups[-1] + 1 if groups else 0), 0
    room = _chunk_seconds(schedule, components, cut.most - len(hubs) - cut.most // 20 - len(fillers))
    for neighbours in _joined(schedule, components, room):
        chunks = _chunks(schedule, neighbours, room)
        if len(chunks) > free:
            next_group, free = next_group + 1, cut.limit
        for chunk in chunks:
            if not free:
                next_group, free = next_group + 1, cut.limit
            members.append(chunk)
            groups.append(next_group - 1)
            free -= 1
    return _batches(schedule, [*members, *fillers], [*groups, *[next_group] * len(fillers)])


def _held_back(
    schedule: BuildSchedule, followers: Mapping[str, int], components: Sequence[Sequence[str]], share: float
) -> tuple[list[str], list[list[str]]]:
    """Return builds of the first components that nothing waits for, as long as they are `share` of all work, and the rest."""
    held, kept, work = list[str](), list[list[str]](), 0.0
    for component in components:
        rest = [hash_ for hash_ in component if followers[hash_]]
        for hash_ in sorted((hash_ for hash_ in component if not followers[hash_]), key=schedule.seconds.__getitem__):
            if work < share * schedule.serial:
                held.append(hash_)
                work += schedule.seconds[hash_]
            else:
                rest.append(hash_)
        kept.append(rest)
    return held, [component for component in kept if component]


def _balanced(schedule: BuildSchedule, builds: Iterable[str], most: int) -> list[list[str]]:
    """Return builds that do not need each other in at most `most` batches of about the same duration."""
    ordered = sorted(builds, key=lambda hash_: -schedule.seconds[hash_])
    batched: list[list[str]] = [[] for _ in ordered[: max(1, most)]]
    lightest = [(0.0, number) for number in range(len(batched))]
    for hash_ in ordered:
        seconds, number = lightest[0]
        batched[number].append(hash_)
        heapq.heapreplace(lightest, (seconds + schedule.seconds[hash_], number))
    return batched


def _followers(schedule: BuildSchedule) -> dict[str, int]:
    """Return for each build how many others wait for it, directly or through others."""
    number = {hash_: place for place, hash_ in enumerate(schedule.seconds)}
    behind = dict.fromkeys(schedule.seconds, 0)  # bit sets
    for hash_ in reversed(tuple(schedule.seconds)):
        through = behind[hash_] | 1 << number[hash_]
        for needed in schedule.needs[hash_]:
            behind[needed] |= through
    return {hash_: bits.bit_count() for hash_, bits in behind.items()}


def _components(schedule: BuildSchedule, hubs: frozenset[str]) -> list[list[str]]:
    """Return the builds beside the hubs in sets between which no build needs another, each in topological order."""
    head = {hash_: hash_ for hash_ in schedule.seconds if hash_ not in hubs}

    def root(hash_: str) -> str:
        while head[hash_] != hash_:
            head[hash_] = hash_ = head[head[hash_]]
        return hash_

    for hash_ in head:
        for needed in schedule.needs[hash_]:
            if needed not in hubs:
                head[root(needed)] = root(hash_)
    components = dict[str, list[str]]()
    for hash_ in head:
        components.setdefault(root(hash_), []).append(hash_)
    return sorted(components.values(), key=len, reverse=True)


def _chunk_seconds(schedule: BuildSchedule, components: Sequence[Sequence[str]], most: int) -> float:
    """Return the duration up to which neighbours are put together, so that at most `most` batches are left."""
    low, high = 0.0, 2 * schedule.serial
    if sum(map(len, components)) <= most:
        return low
    for _ in range(24):
        middle = (low + high) / 2
        if sum(len(_chunks(schedule, neighbours, middle)) for neighbours in _joined(schedule, components, middle)) > most:
            low = middle
        else:
            high = middle
    return high


def _joined(schedule: BuildSchedule, components: Sequence[Sequence[str]], room: float) -> list[list[str]]:
    """Return the components with small ones put together, as long as they take at most `room` seconds."""
    joined, seconds = list[list[str]](), 0.0
    for component in components:
        own = sum(schedule.seconds[hash_] for hash_ in component)
        seconds += own
        if joined and seconds <= room:
            joined[-1] += component
        else:
            joined.append([*component])
            seconds = own
    return joined


def _chunks(schedule: BuildSchedule, component: Sequence[str], room: float) -> list[list[str]]:
    """Return neighbours in a topological order as batches that take at most `room` seconds; a longer build is alone."""
    chunks, seconds = list[list[str]](), 0.0
    for hash_ in component:
        seconds += schedule.seconds[hash_]
        if chunks and seconds <= room:
            chunks[-1].append(hash_)
        else:
            chunks.append([hash_])
            seconds = schedule.seconds[hash_]
    return chunks
