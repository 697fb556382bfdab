"""Copy a run on Argo to this machine: its tasks from a ConfigMap, and its files from the run store.

Short reader pods print the files, and a digest proves that every byte arrived.
"""

import base64
import binascii
import hashlib
import inspect
import io
import os
import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.store import Store
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.runs.lost_attempts import LostAttempt
from steps.errors import Refused, Temporary
from workflows.engines.argo import helper_pods, run_memory, store_reader
from workflows.engines.argo.home import Home, NoTemplate, NotOurs, WorkflowGone
from workflows.engines.argo.workflow_objects import (
    ResourceMeta,
    SubmittedSpec,
    TemplateRef,
    UnreadableStatus,
    Workflow,
    WorkflowStatus,
    node_status,
)
from workflows.engines.attempt_history import lost_attempts
from workflows.engines.folders import RunFolder

LIMIT = 4 << 20
"""Number of compressed bytes that one pod prints; as base64 well below the 10 MiB at which a kubelet rotates a log."""

MOST = 512 << 20
"""Largest unpacked size in bytes of one pod's output. It bounds memory, as a store is untrusted data until it is checked."""


GONE = "Gone"
"""Phase that a stand-in for a deleted Workflow gets: the run has ended in an unknown way."""

_NAME = re.compile(r"[a-z0-9][-.a-z0-9]*")
"""Pattern of a Workflow's name, to refuse names that could lead a reader pod out of the run's folder."""


class NoReader(WorkflowGone):
    """Exception: the Workflow was deleted, and there is no WorkflowTemplate from which a pod that reads its store could be made."""

    hint = (
        "a finished Workflow may have been deleted; its evidence can be read with any WorkflowTemplate of bringup, but there is "
        "none, or it may not be listed (Role bringup-submitter)"
    )


class NeverThere(WorkflowGone):
    """Exception: the home cluster has neither a Workflow nor a folder in the run store of that name."""

    hint = "runs of bringup: kubectl get workflows -l bringup/pipeline, in the namespace that --namespace names"


class Damaged(Temporary):
    """Exception: the output of a reader pod did not arrive completely or is not valid."""


class _Trailer(Struct, frozen=True):
    bytes: int
    sha256: str
    next: str = ""
    files: int = 0


def pull(home: Home, workflow: Workflow, folder: RunFolder, limit: int = LIMIT) -> int:
    """Copy the run's files into this machine's store and return their number. Raises HelperPodFailed, Damaged, NeverThere."""
    store, run, after, count, began = Store(folder.home.store), workflow.metadata.name, "", 0, time.time()
    command = ("python", "-c", inspect.getsource(store_reader))
    while True:
        environment = {"BRINGUP_STORE": "/bringup/store", "BRINGUP_RUN": run, "AFTER": after, "LIMIT": str(limit)}
        output = helper_pods.run(home, workflow, helper_pods.HelperPod(purpose="read", command=command, environment=environment))
        archive, after = unpack_answer(output, after)
        count += keep(store, folder.name, archive)
        if not after:
            if not count and workflow.status.phase == GONE:
                place = f"namespace {home.namespace} of the home cluster"
                raise NeverThere(f"{place} has no Workflow {run}, and its store no run of that name")
            run_memory.record_pull(folder, began, _lost(workflow, folder), ended=workflow.finished)
            return count


def _lost(workflow: Workflow, folder: RunFolder) -> tuple[LostAttempt, ...]:
    try:
        nodes = workflow.nodes()
    except UnreadableStatus:  # the evidence is worth having without them
        return ()
    return lost_attempts(folder, (node_status(node, nodes) for node in nodes.values()))


def without_workflow(home: Home, gone: WorkflowGone, run: str) -> Workflow:
    """Return a stand-in for a deleted Workflow that refers to any WorkflowTemplate of bringup, as all of them mount the run store.

    Raises WorkflowGone if the name is invalid, NoReader if there is no such template.
    """
    if not _NAME.fullmatch(run):
        raise gone
    try:
        template = home.newest_template()
    except Refused:
        template = ""
    if not template:
        raise NoReader(str(gone))
    return Workflow(
        metadata=ResourceMeta(name=run),
        spec=SubmittedSpec(workflow_template_ref=TemplateRef(name=template)),
        status=WorkflowStatus(phase=GONE),
    )


def unpack_answer(log: bytes, after: str = "") -> tuple[bytes, str]:
    """Return the archive that a reader pod printed, and the key after which the next pod continues ("" if none).

    `after` is the last key of the pod before. Raises Damaged.
    """
    lines = log.decode(errors="replace").splitlines()
    try:
        # a log may also hold warnings of the interpreter, so the answer is searched between its marks
        first = lines.index(store_reader.BEGIN)
        last = next(number for number in range(len(lines) - 1, first, -1) if lines[number].startswith(store_reader.END))
        trailer = msgspec.json.decode(lines[last].removeprefix(store_reader.END), type=_Trailer)
        data = base64.b64decode("".join(lines[first + 1 : last]), validate=True)
    except (ValueError, StopIteration, binascii.Error, *UNREADABLE_JSON) as error:
        raise Damaged(f"a reader pod's log is incomplete ({len(log)} bytes): {error!r}") from error
    if len(data) != trailer.bytes or hashlib.sha256(data).hexdigest() != trailer.sha256:
        raise Damaged(f"a reader pod printed {trailer.bytes} bytes, but {len(data)} arrived, or their digest differs")
    if trailer.next and trailer.next <= after:  # each pod prints later keys, so that there is an end
        raise Damaged(f"a reader pod would go on after {trailer.next[:200]!r}, which was read already")
    return data, trailer.next


def keep(store: Store, run: str, archive: bytes, most: int = MOST) -> int:
    """Write an archive's files into this machine's store and return their number.

    The store refuses keys that lead out of it. A file of another run, more than `most` unpacked bytes, or what is no archive
    raises Damaged.
    """
    try:
        return _kept(store, run, _unpacked(archive, most))
    except (tarfile.TarError, zlib.error, EOFError, UnicodeError, ValueError) as error:
        raise Damaged(f"a reader pod printed what is no archive: {error}") from error


def _unpacked(archive: bytes, most: int) -> bytes:
    """Return the tar in a gzip file. It is unpacked before tarfile sees it, which reads headers of any length."""
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    data = unpacking.decompress(archive, most + 1)
    if len(data) > most:
        raise Damaged(f"a reader pod's archive has more than {most >> 20} MiB")
    if not unpacking.eof:
        raise Damaged("a reader pod's archive ends in its middle")
    return data


def _kept(store: Store, run: str, tar: bytes) -> int:
    count = 0
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as members:
        for member in members:
            stream = members.extractfile(member)
            if stream is None:
                raise Damaged(f"a reader pod's archive holds {member.name}, which is not a file")
            key, data = member.name, stream.read()
            if not key.startswith((f"runs/{run}/", f"releases/{run}/")):
                raise Damaged(f"a reader pod's archive holds {key}, which does not belong to run {run}")
            if store.read(key) != data:
                store.replace(key, data)
            count += 1
    return count


def fetch_tasks(home: Home, workflow: Workflow, folder: RunFolder) -> None:
    """Copy the run's tasks (what was planned, who may approve) from the home cluster unless this machine has them.

    Raises NotOurs if the template mounts no tasks, NoTemplate if the template or its ConfigMap was deleted.
    """
    if run_memory.knows_tasks(folder):
        return
    volumes = home.made_from(workflow).get("volumes") or ()
    name = next((volume["configMap"]["name"] for volume in volumes if volume["name"] == "tasks" and "configMap" in volume), "")
    if not name:
        raise NotOurs(f"WorkflowTemplate {workflow.template} mounts no tasks: it belongs to another version of bringup")
    config_map = home.ask(lambda kube: kube.get(home.core("configmaps", name), dict[str, Any]))
    if config_map is None:
        raise NoTemplate(f"namespace {home.namespace} of the home cluster has no ConfigMap {name}, which holds the run's tasks")
    _keep_tasks(folder, config_map.get("data") or {})


def _keep_tasks(folder: RunFolder, tasks: Mapping[str, str]) -> None:
    """Write all task files or none: a process that is killed half-way leaves only a hidden temporary folder."""
    place, fresh = folder.inputs / "tasks", folder.inputs / f".tasks.{os.getpid()}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for file, text in tasks.items():
        (fresh / file).write_text(text)
    if place.exists() and not run_memory.knows_tasks(folder):
        shutil.rmtree(place, ignore_errors=True)
    try:
        fresh.rename(place)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not run_memory.knows_tasks(folder):
            raise  # otherwise another command has fetched the tasks meanwhile
