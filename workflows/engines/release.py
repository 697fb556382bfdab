"""Releases nodes that a run set aside, where its store and its cluster are within reach: on this machine, or in a pod of home.

A pod is handed this file as text, and has `steps` in the version of the run's own image: nothing else is imported.
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
from steps.contract import approval, quarantine
from steps.contract import run as contract
from steps.contract.canonical import canonical
from steps.contract.exit import ExitCode
from steps.errors import StepError

KUBECONFIG = "kubeconfig"
SAID = "bringup-release "
"""Before the answer that a pod prints."""


class CannotRelease(ValueError):
    """A node that cannot be released; the message says why. Nothing was changed."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Meta(Struct, frozen=True):
    """Identity and annotations of an object."""

    uid: str = ""
    annotations: dict[str, str] = {}


class Named(Struct, frozen=True):
    """A Node or the namespace kube-system."""

    metadata: Meta = Meta()


class Aside(Struct, frozen=True, kw_only=True):
    """One node that a run set aside; `released` says by whom and when, empty while it is not."""

    node: str
    stage: str
    reason: str
    released: str = ""


def listed(store: Store, run: str) -> tuple[Aside, ...]:
    """All nodes that a run set aside, by name."""
    found = quarantine.entries(store.keys(quarantine.folder(run)), store.read)
    return tuple(
        Aside(node=entry.node, stage=entry.stage, reason=entry.reason, released=_released(store, run, entry.node))
        for entry in found
    )


def _released(store: Store, run: str, node: str) -> str:
    data = store.read(quarantine.release_key(run, node))
    if data is None:
        return ""
    known = quarantine.decode_release(data)
    return f"{known.who} at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(known.when))} UTC"


def check_name(who: str) -> None:
    """Raise CannotRelease where nobody says who releases, or by what can be no name."""
    if not who:
        raise CannotRelease("a release needs a name", "give it with --as NAME; it becomes evidence")
    if not approval.is_name(who):
        raise CannotRelease(
            f"{who!r} cannot be a name: letters, digits and . _ @ + -, at most 64", "write one as in --as ada@example.org"
        )


def release(store: Store, run: str, kubeconfigs: Sequence[Path], nodes: Iterable[str], who: str) -> Iterator[str]:
    """Release nodes of a run: take our cordon off in its cluster, then store who did it and when. Yields a line for each node.

    The cluster is that of the first of these kubeconfigs that is there. Raises CannotRelease before anything is changed, and what
    the client raises where the cluster does not answer.
    """
    check_name(who)
    wanted = tuple(dict.fromkeys(nodes))
    known = check(run, wanted, listed(store, run))
    kube = _cluster(store, run, kubeconfigs)
    for node in wanted:
        holder = _uncordon(kube, node, run) if kube is not None else ""
        uncordoned = holder == run
        one = known[node]
        made = quarantine.Release(
            run=run, node=node, stage=one.stage, reason=one.reason, who=who, when=time.time(), uncordoned=uncordoned
        )
        store.write(quarantine.release_key(run, node), canonical(made))
        if holder and not uncordoned:
            yield f"released {node} as {who}; its cordon is that of run {holder}: bringup quarantine release {node} --run {holder}"
        else:
            yield f"released {node} as {who}{', uncordoned' if uncordoned else ''}: it takes part again in the next run"


def check(run: str, nodes: Iterable[str], every: Iterable[Aside]) -> dict[str, Aside]:
    """What was set aside, by node. Raises CannotRelease where one of these nodes was not, or was released."""
    known = {one.node: one for one in every}
    for node in nodes:
        one = known.get(node)
        if one is None:
            left = ", ".join(name for name, other in known.items() if not other.released)
            raise CannotRelease(f"{node} is not quarantined in run {run}", f"quarantined there: {left or 'nobody'}")
        if one.released:
            raise CannotRelease(f"{node} of run {run} was released by {one.released}")
    return known


def _cluster(store: Store, run: str, kubeconfigs: Sequence[Path]) -> Kube | None:
    """The cluster of a run, by its own kubeconfig; None for a rehearsal, whose cluster is gone, and where a run never had one."""
    header = store.read(contract.header_key(run))
    path = next((path for path in kubeconfigs if path.exists()), None)
    if path is None or (header is not None and contract.decode_header(header).simulated):
        return None
    kube = Kube.from_file(path)
    found = kube.get("/api/v1/namespaces/kube-system", Named)
    uid, wanted = found.metadata.uid if found else "", contract.target_uid(run, store.read)
    if not uid or (wanted and uid != wanted):
        said = f"the kubeconfig of run {run} leads to cluster {uid or 'of unknown identity'}"
        raise CannotRelease(f"{said}, the run was about {wanted or 'another'}", "nothing was changed; correct the kubeconfig")
    return kube


def _uncordon(kube: Kube, node: str, run: str) -> str:
    """Take off the cordon if it is this run's; whose it is. One without our annotation is somebody else's, and one of another run
    stands for what that has seen. An annotation that nobody can read is taken for ours."""
    path = f"/api/v1/nodes/{node}"
    found = kube.get(path, Named)
    if found is None or quarantine.ANNOTATION not in found.metadata.annotations:
        return ""
    holder = _holder(found.metadata.annotations[quarantine.ANNOTATION]) or run
    if holder == run:
        kube.merge(path, {"metadata": {"annotations": {quarantine.ANNOTATION: None}}, "spec": {"unschedulable": None}})
    return holder


def _holder(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=quarantine.Note).run
    except msgspec.DecodeError:
        return ""


def main() -> int:
    """In a pod: release what the environment names (BRINGUP_STORE, BRINGUP_SECRETS, BRINGUP_RUN, NODES, WHO), say how it went."""
    store, run = Store(Path(os.environ["BRINGUP_STORE"])), os.environ["BRINGUP_RUN"]
    kubeconfigs = (store.root / f"runs/{run}/secrets" / KUBECONFIG, Path(os.environ["BRINGUP_SECRETS"]) / KUBECONFIG)
    said: list[str] = []
    answer: dict[str, object] = {"said": said}
    try:
        said.extend(release(store, run, kubeconfigs, os.environ["NODES"].split(), os.environ["WHO"]))
    except (CannotRelease, StepError) as problem:
        answer |= {"problem": str(problem), "hint": problem.hint, "code": int(problem.exit_code)}
    sys.stdout.write(f"{SAID}{json.dumps(answer)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
