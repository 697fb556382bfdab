"""Release nodes that a run quarantined, on this machine or in a pod: where the run store and the target cluster are reachable.

A pod gets the source of this module as text and the package `steps` from its image, so only `steps` may be imported here.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients.kube.client import Kube
from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.exit import ExitCode
from steps.contract.runs import approval, quarantine
from steps.errors import StepError

KUBECONFIG = "kubeconfig"
ANSWER_PREFIX = "bringup-release "
"""Prefix of the line in which a pod prints its result as JSON."""


class CannotRelease(ValueError):
    """Exception: a node cannot be released; the message says why. Nothing was changed."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class _ObjectMeta(Struct, frozen=True):
    """Uid and annotations of a Kubernetes object."""

    uid: str = ""
    annotations: dict[str, str] = {}


class _NamedObject(Struct, frozen=True):
    """A Kubernetes object, here a Node or the namespace kube-system, reduced to its metadata."""

    metadata: _ObjectMeta = _ObjectMeta()


class QuarantinedNode(Struct, frozen=True, kw_only=True):
    """A node that a run quarantined, with stage and reason; `released` says who released it and when, "" if nobody did."""

    node: str
    stage: str
    reason: str
    released: str = ""


def quarantined_nodes(store: Store, run: str) -> tuple[QuarantinedNode, ...]:
    """Return all nodes that a run quarantined, including released ones, in the order of their names."""
    entries = quarantine.entries(store.keys(quarantine.folder(run)), store.read)
    return tuple(
        QuarantinedNode(node=entry.node, stage=entry.stage, reason=entry.reason, released=_released(store, run, entry.node))
        for entry in entries
    )


def _released(store: Store, run: str, node: str) -> str:
    data = store.read(quarantine.release_key(run, node))
    if data is None:
        return ""
    recorded = quarantine.decode_release(data)
    return f"{recorded.who} at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(recorded.when))} UTC"


def check_name(who: str) -> None:
    """Raise CannotRelease if `who`, the name of the person who releases nodes, is empty or invalid."""
    if not who:
        raise CannotRelease("a release needs the name of the person who releases", "give it with --as NAME; it becomes evidence")
    if not approval.is_name(who):
        raise CannotRelease(
            f"{who!r} cannot be a name: letters, digits and . _ @ + -, at most 64", "write one as in --as ada@example.org"
        )


def release(store: Store, run: str, kubeconfigs: Sequence[Path], nodes: Iterable[str], who: str) -> Iterator[str]:
    """Uncordon these nodes if this run cordoned them, record in the store who released them, and yield a line for each.

    The first existing file of `kubeconfigs` names the cluster. Raises CannotRelease before anything is changed, and the client's
    errors if the cluster does not answer.
    """
    check_name(who)
    names = tuple(dict.fromkeys(nodes))
    quarantined = require_quarantined(run, names, quarantined_nodes(store, run))
    kube = _cluster(store, run, kubeconfigs)
    for node in names:
        holder = _uncordon(kube, node, run) if kube is not None else ""
        uncordoned = holder == run
        entry = quarantined[node]
        record = quarantine.NodeRelease(
            run=run, node=node, stage=entry.stage, reason=entry.reason, who=who, when=time.time(), uncordoned=uncordoned
        )
        store.write(quarantine.release_key(run, node), canonical(record))
        if holder and not uncordoned:
            yield f"released {node} as {who}; its cordon belongs to run {holder}: bringup quarantine release {node} --run {holder}"
        else:
            yield f"released {node} as {who}{', uncordoned' if uncordoned else ''}: it takes part again in the next run"


def require_quarantined(run: str, nodes: Iterable[str], every: Iterable[QuarantinedNode]) -> dict[str, QuarantinedNode]:
    """Return the entries of `every` by node. Raises CannotRelease if one of `nodes` is not among them or was already released."""
    by_name = {entry.node: entry for entry in every}
    for node in nodes:
        entry = by_name.get(node)
        if entry is None:
            remaining = ", ".join(name for name, other in by_name.items() if not other.released)
            raise CannotRelease(f"{node} is not quarantined in run {run}", f"quarantined there: {remaining or 'nobody'}")
        if entry.released:
            raise CannotRelease(f"{node} of run {run} was released by {entry.released}")
    return by_name


def _cluster(store: Store, run: str, kubeconfigs: Sequence[Path]) -> Kube | None:
    """Return a client of the run's target cluster; None for a rehearsal, whose cluster is gone, and if no kubeconfig exists.

    Raises CannotRelease if the kubeconfig leads to another cluster than that of the run.
    """
    header = store.read(run_records.header_key(run))
    path = next((path for path in kubeconfigs if path.exists()), None)
    if path is None or (header is not None and run_records.decode_header(header).simulated):
        return None
    kube = Kube.from_file(path)
    namespace = kube.get("/api/v1/namespaces/kube-system", _NamedObject)
    uid, expected = namespace.metadata.uid if namespace else "", run_records.target_uid(run, store.read)
    if not uid or (expected and uid != expected):
        sentence = f"the kubeconfig of run {run} leads to cluster {uid or 'of unknown identity'}"
        sentence += f", but the run worked on {expected or 'another'}"
        raise CannotRelease(sentence, "nothing was changed; correct the kubeconfig")
    return kube


def _uncordon(kube: Kube, node: str, run: str) -> str:
    """Remove the node's cordon if this run set it, and return the name of the run that set it; "" if no run did."""
    path = f"/api/v1/nodes/{node}"
    kube_node = kube.get(path, _NamedObject)
    if kube_node is None or quarantine.ANNOTATION not in kube_node.metadata.annotations:
        return ""
    # a cordon without the annotation is not from a run of bringup; an unreadable annotation counts as this run's
    holder = _holder(kube_node.metadata.annotations[quarantine.ANNOTATION]) or run
    if holder == run:
        kube.merge(path, {"metadata": {"annotations": {quarantine.ANNOTATION: None}}, "spec": {"unschedulable": None}})
    return holder


def _holder(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=quarantine.CordonNote).run
    except msgspec.DecodeError:
        return ""


def main() -> int:
    """Release the nodes that environment variables name, and print the result as a line of JSON."""
    store, run = Store(Path(os.environ["BRINGUP_STORE"])), os.environ["BRINGUP_RUN"]
    kubeconfigs = (store.root / f"runs/{run}/secrets" / KUBECONFIG, Path(os.environ["BRINGUP_SECRETS"]) / KUBECONFIG)
    lines: list[str] = []
    answer: dict[str, object] = {"said": lines}
    try:
        lines.extend(release(store, run, kubeconfigs, os.environ["NODES"].split(), os.environ["WHO"]))
    except (CannotRelease, StepError) as problem:
        answer |= {"problem": str(problem), "hint": problem.hint, "code": int(problem.exit_code)}
    sys.stdout.write(f"{ANSWER_PREFIX}{json.dumps(answer)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
