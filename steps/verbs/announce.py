"""Verb announce: tell a webhook that an approval waits. A failure is recorded, but does not delay the run.

The webhook may get the message twice if an attempt is lost before its record is written. The task runs beside the approval. If the
webhook is unreachable the task ends as temporary, so the engine retries it. If the webhook refuses the message, or may have taken
it, the task ends with exit code 65. The run waits for the approval in any case.
"""

import time

from msgspec import Struct

from steps.clients import certificates, webhook
from steps.contract import stage_contracts
from steps.contract.exit import ExitCode
from steps.contract.runs import approval, evidence
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import FailureClass, Status, Verdict, failed, inconclusive, passed
from steps.errors import BadTask, StepError, Temporary
from steps.runtime.context import Context

_PLAIN = "over plain http: whoever listens on the way knows its URL and may write to it; https keeps it"
_EXPECTED = "approvers who know that the run waits for them"


class NoWebhook(StepError):
    """Raised if the secret file with the webhook's URL or CA certificates is missing or unusable."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.INPUT


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of verb announce.

    `webhook` is the secret file with the URL. `approved` is the stage whose evidence is to be approved. `ca` is the secret file
    with the only CA certificates to trust; empty for those that this machine trusts.
    """

    cluster: str
    webhook: str
    approved: str
    ca: str = ""
    approvers: tuple[str, ...] = ()


def run(context: Context) -> ExitCode:
    """Send the announcement unless an earlier attempt did, or somebody has answered meanwhile. A rehearsal sends none."""
    arguments = context.arguments(Arguments)
    problem: StepError | None = None
    gate, before = context.own_gate, _earlier(context)
    verdict = _needless(context, gate, before)
    if verdict is None:
        digest = context.store.evidence_digest(context.environment.run, arguments.approved)
        here = context.environment
        # for a run on Argo the command finds the run from any machine
        how = approval.command(here.run, evidence=digest, namespace=here.namespace if here.is_on_argo else None)
        try:
            plain = _tell(context, arguments, min((record.started for record in before), default=time.time()), digest, how)
            took = "the webhook took it"  # without names of approvers: reports repeat this text
            verdict = passed(gate, f"{took}, {_PLAIN}" if plain else took)
        except StepError as error:
            problem, verdict = error, _told_nobody(gate, error, how)
    context.record(verdict)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK if problem is None else problem.exit_code


def _earlier(context: Context) -> tuple[Evidence, ...]:
    keys = context.store.keys(f"runs/{context.environment.run}/evidence/{context.task.stage}/{context.task.name}")
    return tuple(evidence.decode(data) for data in map(context.store.read, keys) if data is not None)


def _needless(context: Context, gate: str, before: tuple[Evidence, ...]) -> Verdict | None:
    """Return the verdict to record if the announcement need not be sent; None if it must be sent."""
    if context.environment.simulator:
        return Verdict(gate=gate, status=Status.SKIPPED, reason="a rehearsal tells nobody")
    # an attempt may have sent the message and been lost before its record; then it is sent twice
    if any(record.verdict is not None and record.verdict.is_pass for record in before):
        return passed(gate, "an earlier attempt told them")
    if before and context.store.records(context.environment.run, context.task.stage, approval.CONFIRM):
        return Verdict(gate=gate, status=Status.SKIPPED, reason="it was answered before anybody could be told")
    return None


def _tell(context: Context, arguments: Arguments, since: float, digest: str, how: str) -> bool:
    """Send the announcement; return True if it went over plain http.

    Raises NoWebhook, WebhookUnavailable or NotTaken.
    """
    try:
        url = (context.environment.secrets / arguments.webhook).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoWebhook(f"the webhook's URL cannot be read from secret {arguments.webhook} ({type(error).__name__})") from None
    ca = _ca(context, arguments)
    run, stage = context.environment.run, context.task.stage
    subject = {"run": run, "cluster": arguments.cluster, "stage": stage, "evidence": digest, "how": how}
    body = approval.body(**subject, since=since, approvers=arguments.approvers, changes=_changes(context))
    webhook.post(url, body, ca)
    context.say(f"announced the approval before {stage}")
    return webhook.is_plain(url)


def _changes(context: Context) -> str:
    """Return the line about what is going to change, from the comparisons of earlier stages; empty if they compared nothing."""
    run = context.environment.run
    stages = sorted(path.name for path in context.store.path(f"runs/{run}/evidence").glob("*"))
    lines = (
        declaration.changes(record.observation for record in context.store.records(run, declaration.stage, declaration.task))
        for declaration in stage_contracts.declared_shortcuts(stages)
    )
    return "; ".join(line for line in lines if line)


def _ca(context: Context, arguments: Arguments) -> tuple[str, ...]:
    """Return the CA certificates that alone are trusted, from the secret file; none if the spec names none. Raises NoWebhook."""
    if not arguments.ca:
        return ()
    try:
        return certificates.read(context.environment.secrets, arguments.ca, webhook.CA)
    except BadTask as error:
        raise NoWebhook(str(error), hint=error.hint) from None


def _told_nobody(gate: str, error: StepError, how: str) -> Verdict:
    seen, kind = str(error), error.failure_class
    by_hand = f"tell the approvers ({how}), then correct what `announce` in the spec names"
    by_hand += f": {error.hint}" if error.hint else ""
    if isinstance(error, Temporary):
        return inconclusive(gate, seen=seen, expected=_EXPECTED, next_step=by_hand, failure_class=kind)
    return failed(gate, kind, seen=seen, expected=_EXPECTED, next_step=by_hand, final=True)
