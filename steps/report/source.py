"""Reads what the store has of one run, as the source of a report."""

from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.store import Store
from steps.contract import fleet, run_records
from steps.contract.canonical import UNREADABLE_JSON, digest_bytes
from steps.contract.run_records import OPEN, STAGE, Cancelled
from steps.contract.runs import evidence, log_keys, quarantine, revision
from steps.contract.runs.revision import SpecSource
from steps.contract.task import Verb
from steps.errors import BadTask

UNREAD = frozenset({"pods", "members", "nodes"})
"""Parts of a probe's observation that no report reads. Those of 10,000 nodes would take a gigabyte as objects."""
VERSION_FACTS = ("version", "kept", "restored")
"""Facts of a host that reports read: its release of RKE2, the one that it keeps for a rollback, and a restored snapshot of etcd."""


class _PlayedHost(Struct, frozen=True):
    """A host in a play's observation, whose facts are not decoded yet: each has thousands of bytes."""

    node: str = ""
    changed: Any = False
    facts: dict[str, msgspec.Raw] | None = None


class _UndecodedRecord(evidence.Evidence, frozen=True, kw_only=True):
    """A record whose observation is not decoded yet."""

    observation: msgspec.Raw = msgspec.Raw(b"null")


class _PlannedTaskForm(Struct, frozen=True):
    name: str
    verb: str = ""


class _PlannedStageForm(Struct, frozen=True):
    id: str
    tasks: tuple[_PlannedTaskForm, ...] = ()
    title: str = ""


class _PlanForm(Struct, frozen=True):
    """The parts of a plan's summary that reports read."""

    stages: tuple[_PlannedStageForm, ...] = ()
    releases: tuple[dict[str, Any], ...] = ()
    untested: tuple[dict[str, Any], ...] = ()


class Record(Struct, frozen=True):
    """A record as stored: its key below `runs/RUN/`, the digest of its bytes, and its content, with what reports read of it."""

    key: str
    sha256: str
    evidence: evidence.Evidence


class StoredRun(Struct, frozen=True, kw_only=True):
    """Everything of one run that a report is made from.

    `plan` is the summary rendered with the tasks, empty if there is none. `logged` are the tasks (stage, task) that kept a log,
    with or without a record.
    """

    header: run_records.Header
    target_uid: str
    plan: dict[str, Any]
    hosts: tuple[fleet.Host, ...]
    records: tuple[Record, ...]
    quarantine: tuple[quarantine.QuarantineEntry, ...]
    logged: tuple[tuple[str, str], ...] = ()
    origin: SpecSource | None = None
    cancelled: Cancelled | None = None


def read(store: Store, name: str) -> StoredRun:
    """Return records, plan, hosts and quarantine of a run.

    Raises BadTask if there is no such run, if it was not created, and if one of its files cannot be read as what it should be.
    """
    try:
        return _read(store, name)
    except UNREADABLE_JSON as error:
        raise BadTask(
            f"a file of run {name} is broken: {error}", hint=f"bringup verify {name} names files that were changed"
        ) from error


def _read(store: Store, name: str) -> StoredRun:
    header = store.read(run_records.header_key(name))
    if header is None:
        raise _missing(store, name)
    target = store.read(run_records.target_key(name))
    prefix = f"runs/{name}/"
    records = []
    for key in store.keys(f"runs/{name}/evidence"):
        data = store.read(key)
        if data is None:  # taken away since it was listed
            continue
        records.append(Record(key.removeprefix(prefix), digest_bytes(data), _decoded(key, data)))
    aside = (store.read(key) for key in store.keys(f"runs/{name}/quarantine"))
    return StoredRun(
        header=run_records.decode_header(header),
        target_uid=msgspec.json.decode(target, type=run_records.TargetIdentity).uid if target else "",
        plan=_plan(store.read(run_records.plan_key(name)) or b"{}"),
        hosts=fleet.decode_hosts(store.read(run_records.hosts_key(name)) or b"[]"),
        records=tuple(sorted(records, key=lambda record: (record.evidence.started, record.key))),
        quarantine=tuple(entry for data in aside if data for entry in quarantine.decode(data)),
        logged=tuple(dict.fromkeys((key.split("/")[3], key.split("/")[4]) for key in store.keys(log_keys.folder(name)))),
        origin=revision.decode(stored) if (stored := store.read(revision.key(name))) else None,
        cancelled=run_records.decode_cancellation(stored) if (stored := store.read(run_records.cancellation_key(name))) else None,
    )


def _plan(data: bytes) -> dict[str, Any]:
    """Return a plan's summary. Raises MsgspecError if a part that reports read is not of its form."""
    msgspec.json.decode(data, type=_PlanForm)
    return dict(msgspec.json.decode(data, type=dict[str, Any]))


def _decoded(key: str, data: bytes) -> evidence.Evidence:
    try:
        record = msgspec.json.decode(data, type=_UndecodedRecord)
        values = {name: getattr(record, name) for name in record.__struct_fields__}
        return evidence.Evidence(**values | {"observation": _read_parts(record)})
    except UNREADABLE_JSON as error:
        raise BadTask(f"{key} is no record of a task: {error}", hint=f"bringup verify {key.split('/')[1]}") from error


def _read_parts(record: _UndecodedRecord) -> Any:
    """Return the parts of a record's observation that reports read."""
    try:
        parts = msgspec.json.decode(record.observation, type=dict[str, msgspec.Raw])
        if record.verb == Verb.PLAY:
            rows = msgspec.json.decode(parts.pop("nodes", b"[]"), type=tuple[_PlayedHost, ...])
            return {key: msgspec.json.decode(part) for key, part in parts.items()} | {"nodes": [_row(host) for host in rows]}
    except msgspec.ValidationError:  # another version's, or no object at all
        return msgspec.json.decode(record.observation)
    unread = UNREAD if record.verb in (Verb.WAIT, Verb.JOB) else ()
    return {key: msgspec.json.decode(part) for key, part in parts.items() if key not in unread}


def _row(host: _PlayedHost) -> dict[str, Any]:
    facts = host.facts or {}
    versions = {name: msgspec.json.decode(facts[name]) for name in VERSION_FACTS if name in facts}
    return {"node": host.node, "changed": host.changed, "facts": versions}


def _missing(store: Store, name: str) -> BadTask:
    """Return the error for a run without header; if its first task left a verdict, with the reason in it."""
    reason = next((record.verdict.reason for record in store.records(name, STAGE, OPEN) if record.verdict), "")
    if reason:
        return BadTask(f"run {name} was not created: {reason}", hint=f"bringup logs {STAGE}.{OPEN} --run {name}")
    return BadTask(f"the store has no run {name}", hint="the run did not get as far as its first task, or the name is wrong")
