"""Compact form of a history: 20 kB where JSON takes a megabyte, so that the state of a localisation fits into a small object.

Tests are stored as node numbers: ten bits a node of 1,024 for pairs, a bit for groups, one entry for all rails of a pair. Ids of
tests are their places (`ROUND.PLACE`). Figures are left to the evidence, because decisions do not need them.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from steps.localise.contract import FabricMap, FabricTest, History, HistoryError, Kind, Outcome, Policy, Result, Round
from steps.localise.trials import IndexedFabric, members

VERSION = 1
LARGEST = 4 << 20
"""Bytes of the largest history that is read."""
KINDS: tuple[Kind, ...] = ("pair", "group", "rail", "self")
RESULTS: tuple[Result, ...] = ("pass", "fail", "unknown")
MISSING = 3
"""Code of a test without an outcome, after those of `RESULTS`."""


class PackedTests(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Neighbouring tests of one kind: their nodes, and for rail tests the rails of each pair as a bit mask."""

    kind: int
    nodes: bytes
    rails: tuple[int, ...] = ()


class PackedRound(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A round: tests, two bits a result, and repeats by the test's place."""

    purpose: str
    tests: tuple[PackedTests, ...]
    results: bytes
    repeats: dict[int, int] = {}


class PackedHistory(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A history: each name as the length of the beginning that it shares with the one before, and its rest."""

    version: int
    names: tuple[tuple[int, str], ...]
    leaf_names: tuple[str, ...]
    leaves: bytes
    rails: int
    policy: Policy
    rounds: tuple[PackedRound, ...]


def encode(history: History) -> bytes:
    """Return the compact form of a history. Tests must have the ids that `next_round` gives; others raise HistoryError."""
    fabric = IndexedFabric(history.map)
    packed = PackedHistory(
        version=VERSION,
        names=tuple(_shortened(fabric.names)),
        leaf_names=fabric.leaf_names,
        leaves=_wide(fabric.leaf, _bits(len(fabric.leaf_names))),
        rails=fabric.rails,
        policy=history.policy,
        rounds=tuple(_packed(part, fabric) for part in history.rounds),
    )
    return msgspec.msgpack.encode(packed)


def decode(data: bytes) -> History:
    """Return the history of a compact form. HistoryError is raised for bytes that `encode` of this version did not write."""
    if len(data) > LARGEST:
        raise HistoryError(f"a history has at most {LARGEST} bytes, not {len(data)}")
    try:
        packed = msgspec.msgpack.decode(data, type=PackedHistory)
        if packed.version != VERSION:
            raise HistoryError(f"the history has version {packed.version}, expected {VERSION}")
        numbers = _narrow(packed.leaves, _bits(len(packed.leaf_names)))
        layout = FabricMap(
            nodes=tuple(_lengthened(packed.names)),
            leaves=tuple(packed.leaf_names[number] for number in numbers),
            rails=packed.rails,
        )
        fabric = IndexedFabric(layout)
        rounds = tuple(_unpacked(part, fabric, number) for number, part in enumerate(packed.rounds, start=1))
    except (msgspec.DecodeError, msgspec.ValidationError, IndexError, ValueError) as error:
        if isinstance(error, HistoryError):
            raise
        raise HistoryError(f"the state of the localisation cannot be read: {error}") from None
    return History(map=layout, policy=packed.policy, rounds=rounds)


def _shortened(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    before = ""
    for name in names:
        alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, name, strict=False))
        shared = sum(1 for _ in alike)
        yield shared, name[shared:]
        before = name


def _lengthened(names: Iterable[tuple[int, str]]) -> Iterator[str]:
    before = ""
    for shared, rest in names:
        if not 0 <= shared <= len(before):
            raise HistoryError("a name shares more with the one before than that has")
        before = before[:shared] + rest
        yield before


def _bits(numbers: int) -> int:
    """Return the bits of one of `numbers` numbers: at least eight, so that the last byte's padding is never taken for a number."""
    return max(8, (numbers - 1).bit_length())


def _wide(numbers: Sequence[int], width: int) -> bytes:
    """Return numbers in `width` bits each, the first one lowest."""
    digits = "".join(format(number, f"0{width}b") for number in reversed(numbers))
    return int(digits or "0", 2).to_bytes((len(numbers) * width + 7) // 8, "little")


def _narrow(data: bytes, width: int) -> list[int]:
    """Return the numbers that `_wide` packed."""
    count = len(data) * 8 // width
    digits = format(int.from_bytes(data, "little"), f"0{len(data) * 8}b") if data else ""
    return [int(digits[len(digits) - (place + 1) * width : len(digits) - place * width], 2) for place in range(count)]


def _packed(part: Round, fabric: IndexedFabric) -> PackedRound:
    if any(test.id != f"{part.number}.{place}" for place, test in enumerate(part.tests, start=1)):
        raise HistoryError(f"round {part.number} has tests with other ids than ROUND.PLACE")
    outcomes = {outcome.test: outcome for outcome in part.outcomes}
    if len(outcomes) != len(part.outcomes) or not outcomes.keys() <= {test.id for test in part.tests}:
        raise HistoryError(f"round {part.number} has two outcomes of a test, or one of a test that it did not ask for")
    codes, repeats = 0, dict[int, int]()
    for place, test in enumerate(part.tests):
        outcome = outcomes.get(test.id)
        codes |= (RESULTS.index(outcome.result) if outcome else MISSING) << 2 * place
        if outcome and outcome.repeat:
            repeats[place] = outcome.repeat
    results = codes.to_bytes((len(part.tests) + 3) // 4, "little")
    return PackedRound(part.purpose, tuple(_packed_tests(part.tests, fabric)), results, repeats)


def _packed_tests(tests: Sequence[FabricTest], fabric: IndexedFabric) -> Iterator[PackedTests]:
    """Yield the tests in runs of one kind; each group is a run of its own."""
    width = (fabric.size + 7) // 8
    place = 0
    while place < len(tests):
        kind, nodes, rails = tests[place].kind, list[int](), list[int]()
        if kind == "group":
            mask = sum(1 << fabric.index[name] for name in tests[place].nodes)
            yield PackedTests(KINDS.index(kind), mask.to_bytes(width, "little"))
            place += 1
            continue
        pair: tuple[str, ...] = ()
        while place < len(tests) and tests[place].kind == kind:
            test = tests[place]
            bit = 1 << (test.rail or 0)
            if kind == "rail" and test.nodes == pair and bit > rails[-1]:
                rails[-1] |= bit
            else:
                nodes += [fabric.index[name] for name in test.nodes]
                pair = test.nodes
                if kind == "rail":
                    rails.append(bit)
            place += 1
        alike = len(set(rails)) == 1
        yield PackedTests(KINDS.index(kind), _wide(nodes, _bits(fabric.size)), tuple(rails[:1] if alike else rails))


def _unpacked(part: PackedRound, fabric: IndexedFabric, number: int) -> Round:
    shapes = [shape for tests in part.tests for shape in _unpacked_tests(tests, fabric.size)]
    tests = tuple(
        FabricTest(id=f"{number}.{place}", kind=kind, nodes=tuple(fabric.names[node] for node in nodes), rail=rail)
        for place, (kind, nodes, rail) in enumerate(shapes, start=1)
    )
    if len(part.results) != (len(tests) + 3) // 4:
        raise HistoryError(f"round {number} has {len(tests)} tests but {len(part.results)} bytes of results")
    codes = int.from_bytes(part.results, "little")
    outcomes = tuple(
        Outcome(test=test.id, result=RESULTS[code], repeat=part.repeats.get(place, 0))
        for place, test in enumerate(tests)
        if (code := codes >> 2 * place & 3) != MISSING
    )
    return Round(number=number, purpose=part.purpose, tests=tests, outcomes=outcomes)


def _unpacked_tests(tests: PackedTests, count: int) -> Iterator[tuple[Kind, tuple[int, ...], int | None]]:
    if not 0 <= tests.kind < len(KINDS):
        raise HistoryError(f"tests have kind {tests.kind}, expected 0 to {len(KINDS) - 1}")
    kind = KINDS[tests.kind]
    if kind == "group":
        yield kind, tuple(members(int.from_bytes(tests.nodes, "little"))), None
        return
    nodes, size = _narrow(tests.nodes, _bits(count)), 1 if kind == "self" else 2
    parts = [tuple(nodes[first : first + size]) for first in range(0, len(nodes), size)]
    rails = tests.rails * len(parts) if len(tests.rails) == 1 else tests.rails
    if kind == "rail" and len(rails) != len(parts):
        raise HistoryError(f"{len(parts)} pairs but rails of {len(rails)}")
    for number, part in enumerate(parts):
        for rail in members(rails[number]) if kind == "rail" else (None,):
            yield kind, part, rail
