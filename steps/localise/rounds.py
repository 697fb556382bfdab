"""The two functions of a localisation: the next round of tests, and the verdict. Both depend on the history alone."""

from collections.abc import Iterator
from functools import cached_property

from steps.localise.contract import FabricMap, FaultDiagnosis, History, Policy, Round, Suspect
from steps.localise.exact_rounds import LARGEST, ExactLocalisation
from steps.localise.fabric_belief import NODE, PAIR, PATH, RAIL, Variable
from steps.localise.idle_rounds import IdleRound, uncleared
from steps.localise.part_status import PartStatus
from steps.localise.propagation import probability
from steps.localise.residual import SCALE
from steps.localise.serial_splitting import serial_round, serial_verdict

MOST_IN_REASON = 3
"""Most nodes that fail now and then that are named in the reason."""
LIMIT = "limit of rounds or tests reached"
"""Purpose of the empty round that ends a localisation before everything is decided."""


def next_round(history: History) -> Round:
    """Return the tests to run next, all at the same time; a round without tests means that the localisation is finished.

    HistoryError is raised for a history that contradicts itself.
    """
    return HistoryStudy(history).planned


def verdict(history: History) -> FaultDiagnosis:
    """Return the parts that the history proves to be bad, the nodes that are cleared, and bounds of both errors.

    HistoryError is raised for a history that contradicts itself.
    """
    return HistoryStudy(history).verdict


class HistoryStudy:
    """The next round and the verdict of one history, which share the work of weighing its tests: seconds in a large fabric.

    HistoryError is raised for a history that contradicts itself.
    """

    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def planned(self) -> Round:
        """Return the tests to run next, as `next_round` does."""
        if self.history.policy.mode == "serial":
            planned = serial_round(self.history)
        elif _is_small(self.history):
            planned = self._exact.plan()
        else:
            planned = IdleRound(self._status).plan()
        return _limited(planned, self.history)

    @cached_property
    def verdict(self) -> FaultDiagnosis:
        """Return the diagnosis, as `verdict` does."""
        if self.history.policy.mode == "serial":
            return serial_verdict(self.history)
        if _is_small(self.history):
            return self._exact.verdict(unfinished(self.planned))
        return _diagnosis(self._status, self.planned, self.history)

    @cached_property
    def _status(self) -> PartStatus:
        return PartStatus(self.history)

    @cached_property
    def _exact(self) -> ExactLocalisation:
        return ExactLocalisation(self.history)


def _diagnosis(status: PartStatus, planned: Round, history: History) -> FaultDiagnosis:
    suspects = tuple(_suspects(status))
    unclear = status.hopeless.union(uncleared(status))
    undecided = sorted(unclear)
    named = {node for suspect in suspects if suspect.kind in ("node", "rail") for node in suspect.nodes}
    names = status.fabric.names
    rest = status.residual.remaining if status.trials else 1.0
    reason = unfinished(planned)
    if not reason and undecided:
        reason = _doubt(status) or f"{len(undecided)} nodes gave too few or contradictory results"
    if not reason and rest > history.policy.beta and not status.scale:
        reason = "a fault is left that no further test tells from others"
    return FaultDiagnosis(
        suspects=suspects,
        cleared=tuple(name for node, name in enumerate(names) if name not in named and node not in unclear),
        undecided=tuple(names[node] for node in undecided),
        rounds=len(history.rounds),
        tests=sum(len(part.tests) for part in history.rounds),
        false_alarm=round(min(sum(suspect.error for suspect in suspects), 1.0), 9),
        missed=round(max(rest, history.policy.beta if history.policy.noise else 0.0), 9),
        noise=round(status.beliefs.base if history.policy.noise else 0.0, 6),
        finished=not unfinished(planned),
        reason=reason,
    )


def unfinished(planned: Round) -> str:
    """Return why a localisation that would go on with this round is not finished; empty if it is."""
    if planned.tests:
        return f"it was cut off before the next round: {planned.purpose}"
    return LIMIT if planned.purpose == LIMIT else ""


def _doubt(status: PartStatus) -> str:
    """Return which nodes fail now and then without being named; empty if there is none."""
    counts = {status.fabric.names[node]: status.intermittent.failures(node) for node in sorted(status.intermittent.doubt)}
    texts = [f"{name} fails {fails} of {tests} of its tests" for name, (fails, tests) in counts.items()]
    return f"{'; '.join(texts[:MOST_IN_REASON])}, and no named part explains it" if texts else ""


def begin(layout: FabricMap, policy: Policy | None = None) -> History:
    """Return the history of a localisation that has not begun."""
    return History(map=layout, policy=policy or Policy())


def _is_small(history: History) -> bool:
    """Return True if sets of faults can be compared, which few nodes need: one or two partners are no average of many."""
    return 2 <= len(history.map.nodes) <= LARGEST


def _limited(planned: Round, history: History) -> Round:
    """Return the planned round, or an empty one if the policy's limits are reached."""
    policy, tests = history.policy, sum(len(part.tests) for part in history.rounds)
    if planned.tests and (len(history.rounds) >= policy.most_rounds or tests >= policy.most_tests):
        return Round(number=planned.number, purpose=LIMIT)
    return planned


def _suspects(status: PartStatus) -> Iterator[Suspect]:
    """Yield the named parts: nodes and rails in fleet order, then pairs, paths and the size that fails.

    If most rails of a node are bad, their common part is: the node is named.
    """
    rails = status.fabric.rails
    for node in range(status.fabric.size):
        named = status.rails.get(node, ())
        if named and len(named) <= rails // 2 and node not in status.intermittent.named:
            for rail in named:
                yield _suspect(status, (RAIL, node, rail))
        elif node in status.bad or named or (NODE, node) in status.by_groups:
            yield _suspect(status, (NODE, node))
    pairs = {(PAIR, *pair) for pair in status.direct_pairs}
    paths = {(PATH, *path) for path in status.direct_paths}
    edges = (pairs | paths | set(status.by_groups)) - {SCALE}
    for variable in sorted(edge for edge in edges if edge[0] != NODE):
        yield _suspect(status, variable)
    if status.scale:
        yield _suspect(status, SCALE)


def _suspect(status: PartStatus, variable: Variable) -> Suspect:
    kind, *parts = variable
    names, leaves = status.fabric.names, status.fabric.leaf_names
    odds = status.by_groups.get(variable, status.beliefs.odds(variable))
    if kind == NODE:
        odds = max(odds, status.intermittent.named.get(parts[0], odds))
    error, evidence = round(1 - probability(odds), 12), status.evidence(variable)
    if kind == NODE:
        if not status.beliefs.is_bad(variable) and variable not in status.by_groups:
            error = max(error, round(1 - probability(status.limits.named), 12)) if error < 0.5 else status.limits.error
        return Suspect(kind="node", nodes=(names[parts[0]],), error=error, evidence=evidence)
    if kind == RAIL:
        return Suspect(kind="rail", nodes=(names[parts[0]],), rail=parts[1], error=error, evidence=evidence)
    if kind == PAIR:
        return Suspect(kind="pair", nodes=(names[parts[0]], names[parts[1]]), error=error, evidence=evidence)
    if kind == PATH:
        return Suspect(kind="path", leaves=(leaves[parts[0]], leaves[parts[1]]), error=error, evidence=evidence)
    scale = status.scale
    above, upto = (scale.above, scale.upto) if scale else (0, 0)
    return Suspect(kind="scale", at_least_nodes=upto, passes_nodes=above, error=error, evidence=evidence)
