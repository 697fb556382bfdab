"""Reads from the store all that a report of one run is made of."""

from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.store import Store
from steps.contract import cancelled, evidence, fleet, log, quarantine, revision, run
from steps.contract.cancelled import Cancelled
from steps.contract.canonical import digest_bytes
from steps.contract.revision import Source as Origin
from steps.errors import BadTask


class Record(Struct, frozen=True):
    """One stored record with its key below `runs/RUN/` and the digest of its bytes."""

    key: str
    sha256: str
    evidence: evidence.Evidence


class Source(Struct, frozen=True, kw_only=True):
    """One run as stored. `plan` is the summary that was rendered with the tasks; empty where there was none. `logged` are the tasks
    (stage, task) that kept a log, with a record or without one."""

    header: run.Header
    target_uid: str
    plan: dict[str, Any]
    hosts: tuple[fleet.Host, ...]
    records: tuple[Record, ...]
    quarantine: tuple[quarantine.Entry, ...]
    logged: tuple[tuple[str, str], ...] = ()
    origin: Origin | None = None
    cancelled: Cancelled | None = None


def read(store: Store, name: str) -> Source:
    """Everything the store has of a run. Raises BadTask when there is no such run, or it could not even be created."""
    header = store.read(run.header_key(name))
    if header is None:
        raise _missing(store, name)
    target = store.read(run.target_key(name))
    prefix = f"runs/{name}/"
    records = []
    for key in store.keys(f"runs/{name}/evidence"):
        data = store.path(key).read_bytes()
        records.append(Record(key.removeprefix(prefix), digest_bytes(data), evidence.decode(data)))
    aside = (store.read(key) for key in store.keys(f"runs/{name}/quarantine"))
    return Source(
        header=run.decode_header(header),
        target_uid=str(msgspec.json.decode(target).get("uid", "")) if target else "",
        plan=_json(store.read(run.plan_key(name))),
        hosts=_hosts(store.read(run.hosts_key(name))),
        records=tuple(sorted(records, key=lambda record: (record.evidence.started, record.key))),
        quarantine=tuple(entry for data in aside if data for entry in quarantine.decode(data)),
        logged=tuple(dict.fromkeys((key.split("/")[3], key.split("/")[4]) for key in store.keys(log.folder(name)))),
        origin=revision.decode(found) if (found := store.read(revision.key(name))) else None,
        cancelled=cancelled.decode(found) if (found := store.read(cancelled.key(name))) else None,
    )


def _missing(store: Store, name: str) -> BadTask:
    """Why there is no run, where its first task left that much."""
    told = next((record.verdict.reason for record in store.records(name, run.STAGE, run.OPEN) if record.verdict), "")
    if told:
        return BadTask(f"run {name} was not created: {told}", hint=f"bringup logs {run.STAGE}.{run.OPEN} --run {name}")
    return BadTask(f"the store has no run {name}", hint="the run did not get as far as its first task, or the name is wrong")


def _json(data: bytes | None) -> dict[str, Any]:
    return dict(msgspec.json.decode(data)) if data else {}


def _hosts(data: bytes | None) -> tuple[fleet.Host, ...]:
    return fleet.decode_hosts(data) if data else ()
