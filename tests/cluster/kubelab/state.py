"""The objects of an API server as its etcd holds them (by its JSON gateway): copied, and set back under the running server."""

import base64
import json
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

EVERYTHING = base64.b64encode(b"/registry/").decode()
AFTER = base64.b64encode(b"/registry0").decode()
"""The first key after all that begin with `/registry/`."""

BATCH, BATCH_BYTES = 100, 1_000_000
"""etcd takes 128 operations in one transaction, and 1.5 MiB in one request."""

_KEPT = (
    b"/registry/masterleases/",
    b"/registry/ranges/",
    b"/registry/apiregistration.k8s.io/",
    b"/registry/leases/kube-system/apiserver-",
)
"""Keys that belong to the API server itself: resetting them would disturb the server, and is not needed for the cluster."""


def answers(server: str) -> bool:
    """Return True if etcd answers."""
    try:
        _call(server, "kv/range", {"key": EVERYTHING, "count_only": True})
    except OSError:
        return False
    return True


def snapshot(server: str) -> bytes:
    """All keys with their values."""
    return json.dumps(_read(server)).encode()


def of(server: str, keys: Iterable[str]) -> dict[str, str]:
    """The values of some keys that are there, both as in `put`."""
    named = {base64.b64encode(key.encode()).decode() for key in keys}
    return {key: value for key, value in _read(server).items() if key in named}


def put(server: str, values: Mapping[str, str]) -> None:
    """Write values by key, both in base64; a watcher sees ordinary changes."""
    _change(server, [{"requestPut": {"key": key, "value": value}} for key, value in values.items()])


def restore(server: str, snapshot: bytes) -> None:
    """Put back what changed or is gone, and delete what is new; a watcher sees ordinary changes."""
    wanted: dict[str, str] = json.loads(snapshot)
    present = _read(server)
    changes: list[dict[str, Any]] = [{"requestDeleteRange": {"key": key}} for key in present if key not in wanted]
    changes += [{"requestPut": {"key": key, "value": value}} for key, value in wanted.items() if present.get(key) != value]
    _change(server, changes)


def _change(server: str, changes: Iterable[dict[str, Any]]) -> None:
    for batch in _batches(changes):
        _call(server, "kv/txn", {"success": batch})


def _batches(changes: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Group changes into batches that fit into one transaction; a change that is too large for a batch goes alone."""
    batch: list[dict[str, Any]] = []
    size = 0
    for change in changes:
        more = len(json.dumps(change)) * 3 // 4  # base64
        if batch and (len(batch) == BATCH or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += more
    if batch:
        yield batch


def _read(server: str) -> dict[str, str]:
    """Values by key, both in base64."""
    answer = _call(server, "kv/range", {"key": EVERYTHING, "range_end": AFTER})
    rows = {row["key"]: row["value"] for row in answer.get("kvs", ())}
    return {key: value for key, value in rows.items() if not base64.b64decode(key).startswith(_KEPT)}


def _call(server: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"{server}/v3/{path}", data=json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
