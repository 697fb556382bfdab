"""Before the first host is changed: do the servers already belong to a cluster, is it the one that the run is about, and does no
other run hold it?"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from steps.contract import run as contract
from steps.contract.identity import PLAYBOOK, ServerIdentity, State
from steps.contract.play import HostOutcome, HostStatus
from steps.errors import Refused, Unreachable
from steps.verbs import reach, target
from steps.verbs.context import Context


class Found(Struct, frozen=True, kw_only=True):
    """What the servers show, for the evidence: `uid` is the cluster that they run; `servers` is what each of them said."""

    uid: str = ""
    servers: dict[str, str] = {}


class Way(Struct, frozen=True):
    """How the API of a cluster that the servers run is reached: at their registration address, or where the spec says."""

    registration: str = ""
    server: str = ""
    server_name: str = ""


def identify(context: Context, ssh: reach.Ssh, way: Way) -> Found:
    """Ask the servers over SSH; nothing is changed there. A cluster that nobody named becomes the one that this run is about, and
    is held from now on where its API answers.

    Raises Refused where they run another cluster than the run is about, or several, or where another run holds it; where the run
    is about a named cluster and none shows: Refused if they run none, Unreachable if that could not be read. A kubeconfig then
    still has to prove it.
    """
    hosts = context.fleet.hosts("server")
    if not hosts:
        return Found()
    from steps.clients.ansible import playing  # a run without plays does not pay for it

    played = playing.play(
        reach.request(context, PLAYBOOK, ssh, hosts, variables={"rke2_registration_address": way.registration}),
        on_event=context.hear,
    )
    shown = {one.host: _identity(one) for one in played.hosts}
    uids = {one.uid: name for name, one in shown.items() if one.state is State.RUNNING}
    if len(uids) > 1:
        said = ", ".join(f"{name} of {uid}" for uid, name in sorted(uids.items()))
        raise Refused(
            f"the servers belong to different clusters: {said}", hint="nothing was changed; correct the hosts in the spec"
        )
    uid = next(iter(uids), "")
    if uid:
        _compare(context, uid, uids[uid])
        reserve(context, [one for one in shown.values() if one.uid == uid], way)
    elif contract.target_uid(context.environment.run, context.store.read) and not context.kubeconfig().exists():
        raise _no_proof(context, shown)
    return Found(uid=uid, servers={name: _said(one) for name, one in shown.items()})


def _identity(one: HostOutcome) -> ServerIdentity:
    if one.status is not HostStatus.OK and not one.facts:  # what was said before the play was cut off is said
        return ServerIdentity(state=State.UNREADABLE, message=one.message)
    try:
        said = msgspec.convert(one.facts, ServerIdentity)
    except msgspec.ValidationError as error:  # facts are a host's word
        return ServerIdentity(state=State.UNREADABLE, message=f"its facts are no identity: {error}")
    return said if said.uid or said.state is not State.RUNNING else ServerIdentity(state=State.UNREADABLE, message="no UID")


def _compare(context: Context, uid: str, server: str) -> None:
    wanted = target.agreed(context, uid)
    if uid != wanted:
        raise Refused(
            f"server {server} belongs to cluster {uid}, this run is about {wanted}",
            hint="nothing was changed; correct the hosts, or target.uid in the spec",
        )


def reserve(context: Context, servers: Sequence[ServerIdentity], way: Way) -> None:
    """Keep out of a cluster that another run holds, as its servers say, and hold it through the kubeconfig of one of them. Where
    its API does not answer here that was all: a cluster that is not well stays within reach of what repairs it or takes it back."""
    for one in servers:
        if one.lease is not None:
            target.keep_out(context, one.lease)
    found = next((one.kubeconfig for one in servers if one.kubeconfig), "")
    if found or context.kubeconfig().exists():
        why = target.reserve(context, target.by_way_of(context, found, way.server, way.server_name) if found else "")
        context.say(
            f"this cluster is not held against other runs until its API answers here: {why}" if why else "holds the cluster"
        )


def _no_proof(context: Context, shown: Mapping[str, ServerIdentity]) -> Refused | Unreachable:
    wanted = contract.target_uid(context.environment.run, context.store.read)
    silent = next((f"{name}: {_said(one)}" for name, one in shown.items() if one.state is State.UNREADABLE), "")
    if silent:
        return Unreachable(
            f"this run is about cluster {wanted}, and no server says which it belongs to; {silent}",
            hint="bring a server's API up, or leave target.uid out of the spec to go on without this check",
        )
    return Refused(
        f"this run is about cluster {wanted}, but no cluster runs on its servers",
        hint="nothing was changed; leave target.uid out of the spec for a new cluster, or name the cluster's kubeconfig",
    )


def _said(one: ServerIdentity) -> str:
    """`bare`, `running rke2 UID`, or `unreadable` with the reason's last line."""
    last = one.message.strip().splitlines()[-1:]
    return " ".join(part for part in (one.state.value, one.kind, one.uid, *last) if part)[:300]
