"""The two tasks about login pods: one records the sessions that an approver is shown, one replaces pods by what was approved."""

import msgspec

from steps.contract.objects.login_pods import NONE, OUTPUT, SOME, LoginPods
from steps.contract.runs import approval
from steps.contract.verdict import Verdict
from steps.runtime import login_pod_replacement
from steps.runtime.context import Context
from steps.stages.slurm_login.contract import LISTED_BY, SessionsObservation


def list_sessions(context: Context, wanted: LoginPods) -> None:
    """Record who is logged in to login pods of an old revision, and output if an approval is needed."""
    verdict, seen = login_pod_replacement.listed(context, wanted)
    context.record(verdict, observation=msgspec.to_builtins(seen))
    context.output(OUTPUT, SOME if seen.is_used else NONE)


def replace(context: Context, wanted: LoginPods) -> Verdict:
    """Replace login pods of an old revision that nobody uses, and those whose users the approver of this run was shown."""
    run = context.environment.run
    confirmed = [record.verdict for record in context.store.records(run, context.task.stage, approval.CONFIRM)]
    if not any(verdict is not None and verdict.is_pass for verdict in confirmed):
        return login_pod_replacement.replace(context, wanted, SessionsObservation())
    records = context.store.records(run, *LISTED_BY)
    shown = [msgspec.convert(record.observation, SessionsObservation) for record in records if record.observation is not None]
    return login_pod_replacement.replace(context, wanted, shown[-1] if shown else SessionsObservation())
