"""Brings what the store of home has of a run to this machine, by short reader pods; every byte is checked against a digest."""

import base64
import binascii
import hashlib
import inspect
import io
import re
import tarfile
import time

import msgspec
from msgspec import Struct

from steps.clients.store import Store
from steps.errors import Refused, Temporary
from workflows.engines.argo import pods, read_store, remembered
from workflows.engines.argo.home import Home, WorkflowGone
from workflows.engines.argo.objects import Meta, Spec, Status, TemplateRef, Workflow
from workflows.engines.folders import RunFolder

LIMIT = 4 << 20
"""Compressed bytes a pod prints: as base64 well below the 10 MiB at which a kubelet rotates a log."""

MOST = 512 << 20
"""Unpacked bytes of one pod's answer: a store is outside data until it is checked."""


GONE = "Gone"
"""Phase that we give a run whose Workflow was deleted: it has ended, nobody knows any more how."""

_NAME = re.compile(r"[a-z0-9][-.a-z0-9]*")
"""Of a Workflow; anything else would lead a reader elsewhere in the store."""


class NoReader(WorkflowGone):
    """The Workflow is gone, and so is all that its store could be read with."""

    hint = (
        "a finished Workflow may have been deleted; its evidence is read with any WorkflowTemplate of bringup there, but there is"
        " none, or it may not be listed (Role bringup-submitter)"
    )


class NeverThere(WorkflowGone):
    """Neither a Workflow nor anything in the store has that name."""

    hint = "runs of bringup: kubectl get workflows -l bringup/pipeline, in the namespace that --namespace names"


class Damaged(Temporary):
    """What a reader pod printed did not arrive whole."""


class _Trailer(Struct, frozen=True):
    bytes: int
    sha256: str
    next: str = ""
    files: int = 0


def pull(home: Home, workflow: Workflow, folder: RunFolder, limit: int = LIMIT) -> int:
    """Copy the run into this machine's store; the number of files. Raises ErrandFailed, Damaged, NeverThere."""
    store, after, count, began = Store(folder.home.store), "", 0, time.time()
    while True:
        said = pods.run(home, workflow, _errand(workflow.metadata.name, after, limit))
        archive, after = unpacked(said)
        count += _keep(store, folder.name, archive)
        if not after:
            if not count and workflow.status.phase == GONE:
                run = workflow.metadata.name
                raise NeverThere(f"namespace {home.namespace} of the home cluster has no Workflow {run}, its store no such run")
            remembered.pulled(folder, began, ended=workflow.finished)
            return count


def without_workflow(home: Home, gone: WorkflowGone, run: str) -> Workflow:
    """What a run is read with whose Workflow is gone: any WorkflowTemplate of ours mounts the store. Raises WorkflowGone."""
    if not _NAME.fullmatch(run):
        raise gone
    try:
        template = home.newest_template()
    except Refused:
        template = ""
    if not template:
        raise NoReader(str(gone))
    return Workflow(metadata=Meta(name=run), spec=Spec(workflow_template_ref=TemplateRef(name=template)), status=Status(phase=GONE))


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


def _keep(store: Store, run: str, archive: bytes) -> int:
    """Files into the store; a key that would leave it is refused by the store itself, one of another run here."""
    count, total = 0, 0
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        for member in members:
            stream = members.extractfile(member)
            total += member.size
            if stream is None or total > MOST:
                raise Damaged(f"a reader pod's archive holds {member.name}, which is no file or makes it too large")
            key, data = member.name, stream.read()
            if not key.startswith((f"runs/{run}/", f"releases/{run}/")):
                raise Damaged(f"a reader pod's archive holds {key}, which is not of run {run}")
            if store.read(key) != data:
                store.replace(key, data)
            count += 1
    return count
