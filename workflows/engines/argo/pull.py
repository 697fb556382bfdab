"""Brings what the store of home has of a run to this machine, by short reader pods; every byte is checked against a digest."""

import base64
import binascii
import hashlib
import inspect
import io
import tarfile

import msgspec
from msgspec import Struct

from steps.clients.store import Store
from steps.errors import Temporary
from workflows.engines.argo import pods, read_store
from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import Workflow
from workflows.engines.folders import RunFolder

LIMIT = 4 << 20
"""Compressed bytes a pod prints: as base64 well below the 10 MiB at which a kubelet rotates a log."""

MOST = 512 << 20
"""Unpacked bytes of one pod's answer: a store is outside data until it is checked."""


class Damaged(Temporary):
    """What a reader pod printed did not arrive whole."""


class _Trailer(Struct, frozen=True):
    bytes: int
    sha256: str
    next: str = ""
    files: int = 0


def pull(home: Home, workflow: Workflow, folder: RunFolder, limit: int = LIMIT) -> int:
    """Copy the run into this machine's store; the number of files. Raises ErrandFailed, Damaged."""
    store, after, count = Store(folder.home.store), "", 0
    while True:
        said = pods.run(home, workflow, _errand(workflow.metadata.name, after, limit))
        archive, after = unpacked(said)
        count += _keep(store, f"runs/{folder.name}", archive)
        if not after:
            return count


def _errand(run: str, after: str, limit: int) -> pods.Errand:
    environment = {"BRINGUP_STORE": "/bringup/store", "BRINGUP_RUN": run, "AFTER": after, "LIMIT": str(limit)}
    return pods.Errand(purpose="read", command=("python", "-c", inspect.getsource(read_store)), environment=environment)


def unpacked(said: bytes) -> tuple[bytes, str]:
    """The archive that a reader pod printed, and the key after which the next one goes on. Raises Damaged."""
    lines = said.decode(errors="replace").splitlines()
    try:
        first = lines.index(read_store.BEGIN)
        last = next(number for number in range(len(lines) - 1, first, -1) if lines[number].startswith(read_store.END))
        trailer = msgspec.json.decode(lines[last].removeprefix(read_store.END), type=_Trailer)
        data = base64.b64decode("".join(lines[first + 1 : last]), validate=True)
    except (ValueError, StopIteration, binascii.Error, msgspec.MsgspecError) as error:
        raise Damaged(f"a reader pod's log has no whole answer ({len(said)} bytes): {error!r}") from error
    if len(data) != trailer.bytes or hashlib.sha256(data).hexdigest() != trailer.sha256:
        raise Damaged(f"a reader pod printed {trailer.bytes} bytes, {len(data)} arrived, or others than it printed")
    return data, trailer.next


def _keep(store: Store, prefix: str, archive: bytes) -> int:
    """Files into the store; a key that would leave it is refused by the store itself."""
    count, total = 0, 0
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        for member in members:
            stream = members.extractfile(member)
            total += member.size
            if stream is None or total > MOST:
                raise Damaged(f"a reader pod's archive holds {member.name}, which is no file or makes it too large")
            key, data = f"{prefix}/{member.name}", stream.read()
            if store.read(key) != data:
                store.replace(key, data)
            count += 1
    return count
