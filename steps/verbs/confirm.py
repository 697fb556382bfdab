"""Verb confirm: check the answer to an approval and record it as evidence.

The task ends with exit code 0 only if an approver said yes to the evidence as it is now, with a valid signature if one is required;
with 65 after a rejection, a time-out or an invalid answer.
"""

import time

from msgspec import Struct

from steps.clients import signature
from steps.contract.canonical import digest_bytes
from steps.contract.exit import ExitCode
from steps.contract.runs import approval, evidence
from steps.contract.runs.evidence import Diagnosis
from steps.contract.verdict import FailureClass, Verdict, failed, passed
from steps.runtime.context import Context

MOST_RECORDS = 100
"""Number of records that a refusal lists: enough for the stages of the largest fleet, with one record for each shard."""


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of verb confirm.

    `approved` is the stage whose evidence the approver was shown. `approvers` maps names to SSH public keys. If it is not empty,
    only those people may approve, with a signature if they have keys. `timeout_seconds` is how long the run waits for an answer; 0
    means unknown.
    """

    approved: str
    timeout_seconds: int = 0
    approvers: dict[str, tuple[str, ...]] = {}


def run(context: Context) -> ExitCode:
    """Check decision, evidence digest and signature of the answer, and store answer and verdict. Return 0 for a pass, else 65."""
    arguments = context.arguments(Arguments)
    answer = {name: context.inputs.get(name, default) for name, default in approval.PARAMETERS.items()}
    digest = context.store.evidence_digest(context.environment.run, arguments.approved)
    verdict = _judge(context, arguments, answer, digest)
    signed = verdict.is_pass and bool(arguments.approvers.get(answer["approver"]))
    diagnosis = () if verdict.is_pass else _found(context, arguments, answer, digest)
    observation = {**answer, "approved": arguments.approved, "evidence_now": digest, "signed": signed}
    context.record(verdict, observation=observation, diagnosis=diagnosis)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK if verdict.is_pass else ExitCode.GATE_FAILED


def _judge(context: Context, arguments: Arguments, answer: dict[str, str], current: str) -> Verdict:
    gate, who = f"{context.task.stage}/approval", answer["approver"]
    # a bare resume and a time-out leave `hold`, which is no approval
    if answer["decision"] != approval.PASS:
        seen = _unanswered(context, arguments) if answer["decision"] == approval.HOLD else f"{who} answered {answer['decision']}"
        return _refused(gate, seen, f"a yes to {arguments.approved} before {context.task.stage}", _start_again(context))
    if not approval.is_name(who) or (who == approval.REHEARSAL and not context.environment.simulator):
        return _refused(gate, "an approval without a name", "the approver's name", "approve with `bringup approve RUN --as NAME`")
    # records may have been added since the approver looked, for example by a retry
    if answer["evidence"] != current:
        return _refused(
            gate,
            f"{who} approved evidence {answer['evidence']}",
            f"the evidence as it is now, {current}",
            "look at the report again and approve what it shows now",
        )
    problem = _signature_problem(context, arguments, who, current)
    if problem:
        return _refused(
            gate, problem, "a valid signature of a listed approver", "sign with the key that the spec lists for this name"
        )
    about = f"{arguments.approved}, before {context.task.stage}"
    if _is_rehearsal_itself(context, who):
        return passed(gate, f"the rehearsal itself approved {about}; in a real run a person does")
    return passed(gate, f"{who} approved {about}{' with a signature' if arguments.approvers.get(who) else ''}")


def _unanswered(context: Context, arguments: Arguments) -> str:
    """Return how a run went on without an answer: by its time-out, or earlier by somebody who resumed it without one.

    The wait began after the last record of the approved stage, so an end that comes sooner than the time-out after it is none.
    """
    if context.environment.simulator:  # the embedded engine lets simulated time pass while a rehearsal waits
        return "nobody approved in time"
    records = context.store.keys(f"runs/{context.environment.run}/evidence/{arguments.approved}")
    own = [context.store.read(key) for key in records if key.split("/")[4] not in approval.TASKS]
    finished = max((evidence.decode(data).finished for data in own if data is not None), default=0.0)
    if finished and time.time() - finished < arguments.timeout_seconds:
        return "somebody resumed the run without an answer (a bare `argo resume`, or Resume in Argo's UI), which approves nothing"
    return "nobody approved in time"


def _start_again(context: Context) -> str:
    if context.environment.simulator:
        return "start the rehearsal again"
    return f"start a new run with `--reuse {context.environment.run}`: stages proven here that still hold are not done again"


def _signature_problem(context: Context, arguments: Arguments, who: str, current: str) -> str:
    if not arguments.approvers or _is_rehearsal_itself(context, who):
        return ""
    if who not in arguments.approvers:
        return f"{who} is not among the approvers ({', '.join(sorted(arguments.approvers))})"
    if not arguments.approvers[who]:
        return ""
    run = context.environment.run
    signed = context.store.read(approval.signature_key(run, arguments.approved, who))
    if signed is None:
        return f"no signature of {who} in the store"
    statement = approval.Statement(run=run, stage=arguments.approved, evidence=current, decision=approval.PASS, approver=who)
    return signature.verify(approval.statement_bytes(statement), signed, who, arguments.approvers[who])


def _is_rehearsal_itself(context: Context, who: str) -> bool:
    """Return True if this is a rehearsal that answered its own approval, which is accepted without a signature in no other run."""
    return bool(context.environment.simulator) and who == approval.REHEARSAL


def _refused(gate: str, seen: str, expected: str, next_step: str) -> Verdict:
    return failed(gate, FailureClass.PERMISSION, seen=seen, expected=expected, next_step=next_step, final=True)


def _found(context: Context, arguments: Arguments, answer: dict[str, str], current: str) -> tuple[Diagnosis, ...]:
    """Return findings for a refused answer: the answer and its evidence digest, the current evidence, and who may approve."""
    run, who = context.environment.run, answer["approver"]
    answered = [
        f"decision {answer['decision']}",
        f"approver {who}",
        f"evidence approved {answer['evidence']}",
        f"evidence now {current}",
    ]
    listed = [f"{name}: {f'{len(keys)} keys' if keys else 'name alone'}" for name, keys in sorted(arguments.approvers.items())]
    if arguments.approvers.get(who):
        key = approval.signature_key(run, arguments.approved, who)
        listed.append(f"signature {key}: {'there' if context.store.read(key) is not None else 'not there'}")
    findings = (
        ("answer", f"approval of {arguments.approved}", answered),
        ("records behind the evidence now", f"stage {arguments.approved}", _records(context, arguments.approved)),
        ("approvers", "the spec", listed or ["anybody with a name"]),
    )
    return tuple(Diagnosis(what=what, source=source, content="\n".join(lines)) for what, source, lines in findings)


def _records(context: Context, stage: str) -> list[str]:
    """Return lines with end time, key and digest of the stage's records, newest first, so those after the answer are on top."""
    keys = context.store.keys(f"runs/{context.environment.run}/evidence/{stage}")
    stored = [(key, context.store.read(key) or b"") for key in keys if key.split("/")[4] not in approval.TASKS]
    rows = sorted(((evidence.decode(data).finished, key, digest_bytes(data)) for key, data in stored), reverse=True)
    lines = [f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(end))} {key} {digest}" for end, key, digest in rows[:MOST_RECORDS]]
    return [*lines, *([f"and {len(rows) - len(lines)} older"] if len(rows) > len(lines) else [])] or ["there are none"]
