"""Drives a localisation: rounds of tests until it is finished, with the history kept after each round.

Runners of any kind (Kubernetes Jobs, Slurm steps, SSH) implement `steps.localise.contract.RoundRunner`.
"""

from collections.abc import Callable

import msgspec

from steps import timeouts
from steps.localise.contract import History, RoundRunner
from steps.localise.rounds import HistoryStudy


def drive(history: History, runner: RoundRunner, keep: Callable[[History], object], expired: Callable[[], bool]) -> HistoryStudy:
    """Run rounds until no test is left, time is up, or rounds in a row gave no result at all; return the history and its verdict.

    The diagnosis of a history that was cut off is not finished, and its reason says what the next round would have been.
    `keep` stores the history after each round, so that a task that starts again goes on from there.
    """
    silent, study = 0, HistoryStudy(history)
    while not expired() and silent < timeouts.FABRIC_SILENT_ROUNDS:
        planned = study.planned
        if not planned.tests:
            break
        outcomes = tuple(runner.run(planned.tests))
        history = msgspec.structs.replace(history, rounds=(*history.rounds, msgspec.structs.replace(planned, outcomes=outcomes)))
        study = HistoryStudy(history)
        keep(history)
        silent = 0 if any(outcome.result != "unknown" for outcome in outcomes) else silent + 1
    return study
