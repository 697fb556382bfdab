"""The whole state as bytes, so that a fault rehearsal can start just before its stage."""

import msgspec

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.entry import Entry
from workflows.rehearsal.apiserver.podlogs import Line, Log
from workflows.rehearsal.apiserver.state import State

FORMAT = 1


class _Table(msgspec.Struct):
    group: str
    plural: str
    entries: list[Entry]


class _Log(msgspec.Struct):
    namespace: str
    pod: str
    container: str
    lines: list[Line]
    previous: list[Line]


class _Snapshot(msgspec.Struct):
    format: int
    revision: int
    tables: list[_Table]
    logs: list[_Log]


def take(state: State) -> bytes:
    """The state as MessagePack."""
    tables = [_Table(group, plural, table.slice()) for (group, plural), table in state.store.tables() if len(table)]
    logs = [
        _Log(namespace, pod, container, list(log.lines), log.previous)
        for (namespace, pod), containers in state.logs.logs.items()
        for container, log in containers.items()
    ]
    return msgspec.msgpack.encode(_Snapshot(FORMAT, state.store.revision, tables, logs))


def restore(state: State, data: bytes) -> None:
    """Puts a state back. Revisions go on, watches and continue tokens end with 410.

    Raises:
        ApiError: 400, not a snapshot of this format.
    """
    try:
        found = msgspec.msgpack.decode(data, type=_Snapshot)
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"not a snapshot: {error}") from error
    if found.format != FORMAT:
        raise errors.bad_request(f"snapshot format {found.format} is not {FORMAT}")
    state.store.replace({(table.group, table.plural): table.entries for table in found.tables}, found.revision)
    state.lists.expire()
    state.definitions.reload()
    state.logs.logs.clear()
    for row in found.logs:
        state.logs.logs.setdefault((row.namespace, row.pod), {})[row.container] = Log(row.lines, row.previous)
