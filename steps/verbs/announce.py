"""Verb announce: tells a webhook that an approval waits, at least once; what goes wrong is evidence, and holds nothing up.

Twice is told whom an attempt told that was lost before its record was written. The task runs beside the approval. A webhook that
is away ends it as temporary, so the engine tries again; one that refuses, or of which nobody can tell whether it took the message,
ends it with 65. What comes after the approval starts either way.
"""

import time

from msgspec import Struct

from steps.clients import certificates, webhook
from steps.contract import announcement, approval, evidence
from steps.contract.evidence import Evidence
from steps.contract.exit import ExitCode
from steps.contract.stages import image_standing
from steps.contract.verdict import FailureClass, Status, Verdict, failed, inconclusive, passed
from steps.errors import BadTask, StepError, Temporary
from steps.verbs.context import Context

_PLAIN = "over plain http: whoever listens on the way knows its URL and may write to it; https keeps it"
_EXPECTED = "approvers who know that the run waits for them"


class NoWebhook(StepError):
    """The secret that should hold the URL, or who signs its server's certificate, is not there or holds something else."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.INPUT


class Arguments(Struct, frozen=True, kw_only=True):
    """What the announcement says, and in which secret file the webhook's URL lies. `approved` is the stage whose evidence is
    approved. `ca` is the secret file of the certificates that alone may sign its server's; empty for those that this machine
    trusts."""

    cluster: str
    webhook: str
    approved: str
    ca: str = ""
    approvers: tuple[str, ...] = ()


def run(context: Context) -> ExitCode:
    """Announce it, unless an earlier attempt did, or somebody has answered meanwhile."""
    wanted = context.arguments(Arguments)
    problem: StepError | None = None
    gate, before = f"{context.task.stage}/{context.task.name}", _earlier(context)
    verdict = _needless(context, gate, before)
    if verdict is None:
        digest = context.store.evidence_digest(context.environment.run, wanted.approved)
        how = _how(context, digest)
        try:
            plain = _tell(context, wanted, min((one.started for one in before), default=time.time()), digest, how)
            took = "the webhook took it"  # names of people are no part of what reports repeat
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
    """Why nobody is to be told (any more); None where somebody is."""
    if context.environment.simulator:
        return Verdict(gate=gate, status=Status.SKIPPED, reason="a rehearsal tells nobody")
    if any(one.verdict is not None and one.verdict.is_pass for one in before):
        return passed(gate, "an earlier attempt told them")
    if before and context.store.records(context.environment.run, context.task.stage, approval.CONFIRM):
        return Verdict(gate=gate, status=Status.SKIPPED, reason="it was answered before anybody could be told")
    return None


def _tell(context: Context, wanted: Arguments, since: float, digest: str, how: str) -> bool:
    """Whether it was told over plain http. Raises NoWebhook, Away, NotTaken."""
    try:
        url = (context.environment.secrets / wanted.webhook).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoWebhook(f"the webhook's URL cannot be read from secret {wanted.webhook} ({type(error).__name__})") from None
    ca = _ca(context, wanted)
    run, stage = context.environment.run, context.task.stage
    told = {"run": run, "cluster": wanted.cluster, "stage": stage, "evidence": digest, "how": how}
    compared = context.store.records(run, image_standing.ID, image_standing.TASK)
    changes = image_standing.against(one.observation for one in compared)
    body = announcement.body(**told, since=since, approvers=wanted.approvers, changes=changes)
    webhook.post(url, body, ca)
    context.say(f"announced the approval before {stage}")
    return webhook.is_plain(url)


def _how(context: Context, digest: str) -> str:
    """The command that answers: on Argo one that finds the run from any machine."""
    here = context.environment
    return announcement.command(here.run, evidence=digest, namespace=here.namespace if here.is_on_argo else None)


def _ca(context: Context, wanted: Arguments) -> tuple[str, ...]:
    """The certificates that alone may sign the server's; none where the spec names none. Raises NoWebhook."""
    if not wanted.ca:
        return ()
    try:
        return certificates.read(context.environment.secrets, wanted.ca, webhook.CA)
    except BadTask as error:
        raise NoWebhook(str(error), hint=error.hint) from None


def _told_nobody(gate: str, error: StepError, how: str) -> Verdict:
    seen, kind = str(error), error.failure_class
    by_hand = f"tell the approvers ({how}), then correct what `announce` in the spec names"
    by_hand += f": {error.hint}" if error.hint else ""
    if isinstance(error, Temporary):
        return inconclusive(gate, seen=seen, expected=_EXPECTED, next_step=by_hand, failure_class=kind)
    return failed(gate, kind, seen=seen, expected=_EXPECTED, next_step=by_hand, final=True)
