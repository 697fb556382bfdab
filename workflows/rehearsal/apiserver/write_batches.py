"""Many writes in one HTTP request: a batch is answered as its writes would be one by one, in their order.

Half the CPU time of a small write goes into HTTP. A simulated fleet of 1,000 nodes makes a hundred thousand of them.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from workflows.rehearsal.apiserver import bodies, errors, patching, routing
from workflows.rehearsal.apiserver.cluster_state import ClusterState
from workflows.rehearsal.apiserver.lifecycle import Deletion, FieldValidation, WriteOptions
from workflows.rehearsal.apiserver.patching import MERGE_PATCH, PatchRequest
from workflows.rehearsal.apiserver.representations import Presenter, Representation
from workflows.rehearsal.apiserver.routing import RequestTarget
from workflows.rehearsal.apiserver.stored_object import StoredObject
from workflows.rehearsal.apiserver.subresources import PodActions

_YIELD_EVERY = 32
"""Writes after which other requests get their turn, so that they wait for some milliseconds at most."""
_SUCCESS = msgspec.Raw(msgspec.json.encode(errors.SUCCESS))


class BatchedWrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One write: a POST that creates an object or binds a pod, a PATCH with a merge patch, or a DELETE without grace period."""

    method: str
    path: str
    body: Any = None


class WriteAnswer(msgspec.Struct, frozen=True):
    """The answer to one write: its HTTP status, and the object or the `Status` that a request of its own would get."""

    status: int
    body: msgspec.Raw


def decode_writes(data: bytes) -> list[BatchedWrite]:
    """Return the writes in the body of a request. Raises StatusError (400) if it is no list of writes."""
    try:
        return msgspec.json.decode(data, type=list[BatchedWrite])
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"not a list of writes: {error}") from error


async def write_all(state: ClusterState, agent: str, writes: Sequence[BatchedWrite]) -> list[WriteAnswer]:
    """Make a client's writes in order and return an answer for each; a refused one stops no other. `agent` is its User-Agent."""
    batch, answers = _Batch(state, agent), list[WriteAnswer]()
    for number, write in enumerate(writes, 1):
        try:
            answers.append(await batch.answer(write))
        except errors.StatusError as error:
            answers.append(WriteAnswer(error.code, msgspec.Raw(msgspec.json.encode(error.status()))))
        if not number % _YIELD_EVERY:
            await asyncio.sleep(0)
    return answers


class _Batch:
    def __init__(self, state: ClusterState, agent: str) -> None:
        self._state = state
        self._agent = agent
        self._options = WriteOptions(agent.partition("/")[0], unknown=FieldValidation.IGNORE)  # an answer has no warnings
        self._pods = PodActions(state.store, state.resources, state.lifecycle)

    async def answer(self, write: BatchedWrite) -> WriteAnswer:
        """Make one write. Raises StatusError if it is refused."""
        steps = [unquote(step) for step in write.path.split("/") if step]
        self._state.requests.add(routing.request_kind(self._agent, write.method, steps, {}))
        await self._state.disturbance.before(write.method, write.path)
        if steps[:1] not in (["api"], ["apis"]) or len(steps) < 3:
            raise errors.no_such_path()
        target = routing.request_target(steps, self._state.resources)
        match write.method, bool(target.name), target.subresource:
            case "POST", False, "":
                return self._create(target, write)
            case "POST", True, "binding":
                self._pods.bind(self._entry(target), bodies.as_object(write.body), self._options)
                return WriteAnswer(201, _SUCCESS)
            case "PATCH", True, "" | "status":
                return self._merge(target, write)
            case "DELETE", True, "":
                self._state.lifecycle.delete(target.resource, self._entry(target), Deletion(grace_s=0, propagation="Background"))
                return WriteAnswer(200, _SUCCESS)
            case _:
                raise errors.method_not_allowed()

    def _entry(self, target: RequestTarget) -> StoredObject:
        return self._state.store.get(target.resource, target.namespace, target.name)

    def _create(self, target: RequestTarget, write: BatchedWrite) -> WriteAnswer:
        resource = target.resource
        if resource.namespaced and not target.namespace:
            raise errors.method_not_allowed()
        entry = self._state.lifecycle.create(resource, target.namespace, bodies.as_object(write.body), self._options)
        return WriteAnswer(201, msgspec.Raw(Presenter(resource, Representation.OBJECT).object(entry)))

    def _merge(self, target: RequestTarget, write: BatchedWrite) -> WriteAnswer:
        resource, entry = target.resource, self._entry(target)
        presenter = Presenter(resource, Representation.OBJECT)
        old = entry.decode()
        new = patching.apply_patch(presenter.shown(old), PatchRequest(MERGE_PATCH, write.body), resource)
        updated = self._state.lifecycle.update(resource, entry, new, target.subresource, self._options, old=old)
        return WriteAnswer(200, msgspec.Raw(presenter.object(updated)))
