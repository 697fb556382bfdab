"""What follows an attempt that ended: success, another attempt, a wait before it, or the end of the Retry node."""

from __future__ import annotations

from workflows.engines.local.model import Backoff, Retry
from workflows.engines.local.run import Run
from workflows.engines.local.state import RUNNING, SUCCEEDED, Node
from workflows.engines.local.substitution import boolean
from workflows.render.grammar.gotext import number_text, seconds


def judge(run: Run, node: Node, strategy: Retry) -> bool:
    """Whether to carry on with an attempt (the open one or a new one); False: the node is complete, or waits.

    SubstitutionError when the strategy's expression is no boolean.
    """
    if node.fulfilled:
        return False
    attempts = run.attempts(node)
    if not attempts or not attempts[-1].fulfilled:
        return True
    last = attempts[-1]
    if not last.unsuccessful:
        return _end(run, node, last, SUCCEEDED, "")
    if run.shutdown:
        return _end(run, node, last, last.phase, f"Stopped with strategy '{run.shutdown}'")
    if run.past_deadline(node.on_exit):
        return _end(run, node, last, last.phase, "retry exceeded workflow deadline")
    # the real controller sits out the backoff first and then finds that there is no retry: same end, so no wait here
    if not strategy.covers(last.phase):
        return _end(run, node, last, last.phase, last.message)
    if strategy.limit is not None and len(attempts) > strategy.limit:
        return _end(run, node, last, last.phase, "No more retries left")
    if strategy.expression and not boolean(strategy.expression, expression_scope(attempts)):
        return _end(run, node, last, last.phase, "retryStrategy.expression evaluated to false")
    return strategy.backoff is None or _backed_off(run, node, attempts, strategy.backoff, strategy.limit)


def expression_scope(attempts: list[Node]) -> dict[str, str]:
    """`lastRetry.*` and `retries` for the expression, all as text; -1 where there was no exit code (hera_argo §2.5)."""
    last = attempts[-1]
    code = last.outputs.exit_code
    return {
        "retries": str(len(attempts) - 1),
        "lastRetry.exitCode": "-1" if code is None else str(code),
        "lastRetry.status": last.phase,
        "lastRetry.duration": number_text(round((last.finished or last.started) - last.started, 3)),
        "lastRetry.message": last.message,
    }


def _end(run: Run, node: Node, last: Node, phase: str, message: str) -> bool:
    run.set_outputs(node.path, last.outputs)
    run.mark(node.path, phase, message)
    return False


def _backed_off(run: Run, node: Node, attempts: list[Node], backoff: Backoff, limit: int | None) -> bool:
    """Whether the wait is over; may end the node when `maxDuration` (from the first start) leaves no time."""
    last = attempts[-1]
    latest = attempts[0].started + seconds(backoff.max_duration) if backoff.max_duration else None
    if latest is not None and run.at > latest:
        return _end(run, node, last, last.phase, "Max duration limit exceeded")
    wait = seconds(backoff.duration)
    if backoff.factor > 0:
        wait *= float(backoff.factor ** min(len(attempts) - 1, 60))
    if backoff.cap:
        wait = min(wait, seconds(backoff.cap))
    due = (last.finished or run.at) + wait
    if latest is not None and due > latest:
        return _end(run, node, last, last.phase, "Backoff would exceed max duration limit")
    if run.at < due and (limit is None or len(attempts) <= limit):
        run.timers[node.path] = due
        run.mark(node.path, RUNNING, f"Backoff for {number_text(round(wait, 3))} seconds")
        return False
    run.timers.pop(node.path, None)
    run.mark(node.path, RUNNING, "")
    return True
