"""Identification of the servers before a run changes the first host.

The cluster that they already belong to must be the run's, and no other run may hold it.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from steps.contract import run_records
from steps.contract.host_play import HostOutcome, HostStatus
from steps.contract.run_records import PLAYBOOK, ServerIdentity, ServerState
from steps.errors import Refused, Unreachable
from steps.runtime import play_requests, target
from steps.runtime.context import Context


class ClusterIdentity(Struct, frozen=True, kw_only=True):
    """Cluster that the servers belong to, as recorded in evidence. `uid` is the cluster's; `servers`: state of each in words."""

    uid: str = ""
    servers: dict[str, str] = {}


class Way(Struct, frozen=True):
    """Addresses of the API of a cluster that the servers run: registration address, and `server` of the spec with its name."""

    registration: str = ""
    server: str = ""
    server_name: str = ""


def identify(context: Context, ssh: play_requests.Ssh, way: Way) -> ClusterIdentity:
    """Ask the servers over SSH which cluster they run; nothing is changed on them.

    If the spec names no cluster, the one that was found becomes the run's. It is held from now on if its API answers. Raises
    Refused if the servers run another cluster than the run's, or several, or if another run holds it. If the run's cluster is named
    and no server shows it, this raises Refused if they run none, and Unreachable if that could not be read, unless a kubeconfig can
    prove it later.
    """
    hosts = context.fleet.hosts("server")
    if not hosts:
        return ClusterIdentity()
    from steps.clients.ansible import playing  # imported here: a run without plays does not need it

    played = playing.play(
        play_requests.request(context, PLAYBOOK, ssh, hosts, variables={"rke2_registration_address": way.registration}),
        on_event=context.hear,
    )
    identities = {outcome.host: _identity(outcome) for outcome in played.hosts}
    uids = {identity.uid: name for name, identity in identities.items() if identity.state is ServerState.RUNNING}
    if len(uids) > 1:
        listed = ", ".join(f"{name} of {uid}" for uid, name in sorted(uids.items()))
        raise Refused(
            f"the servers belong to different clusters: {listed}", hint="nothing was changed; correct the hosts in the spec"
        )
    uid = next(iter(uids), "")
    if uid:
        expected = target.agree_on_uid(context, uid)
        if uid != expected:
            raise Refused(
                f"server {uids[uid]} belongs to cluster {uid}, this run is about {expected}",
                hint="nothing was changed; correct the hosts, or target.uid in the spec",
            )
        reserve(context, [identity for identity in identities.values() if identity.uid == uid], way)
    elif run_records.target_uid(context.environment.run, context.store.read) and not context.kubeconfig().exists():
        raise _no_proof(context, identities)
    return ClusterIdentity(uid=uid, servers={name: _summary(identity) for name, identity in identities.items()})


def _identity(outcome: HostOutcome) -> ServerIdentity:
    if outcome.status is not HostStatus.OK and not outcome.facts:  # facts from before a cut-off are still valid
        return ServerIdentity(state=ServerState.UNREADABLE, message=outcome.message)
    try:
        identity = msgspec.convert(outcome.facts, ServerIdentity)
    except msgspec.ValidationError as error:  # facts come from a host and may have any form
        return ServerIdentity(state=ServerState.UNREADABLE, message=f"its facts are no identity: {error}")
    return (
        identity
        if identity.uid or identity.state is not ServerState.RUNNING
        else ServerIdentity(state=ServerState.UNREADABLE, message="no UID")
    )


def reserve(context: Context, servers: Sequence[ServerIdentity], way: Way) -> None:
    """Take the target cluster's lease for this run, through the kubeconfig of one of its servers.

    Raises Refused if the servers or the API show the lease of another run. If the API does not answer here, no lease is taken: a
    broken cluster must stay open for the run that repairs it or rolls it back.
    """
    # before anything is written: the servers see the lease even if the API is not reachable from here
    for server in servers:
        if server.lease is not None:
            target.keep_out(context, server.lease)
    kubeconfig = next((server.kubeconfig for server in servers if server.kubeconfig), "")
    if kubeconfig or context.kubeconfig().exists():
        why = target.reserve(
            context, target.readdress_server(context, kubeconfig, way.server, way.server_name) if kubeconfig else ""
        )
        context.say(
            f"this cluster is not held against other runs until its API answers here: {why}" if why else "holds the cluster"
        )


def _no_proof(context: Context, shown: Mapping[str, ServerIdentity]) -> Refused | Unreachable:
    expected = run_records.target_uid(context.environment.run, context.store.read)
    silent = next(
        (f"{name}: {_summary(identity)}" for name, identity in shown.items() if identity.state is ServerState.UNREADABLE), ""
    )
    if silent:
        return Unreachable(
            f"this run is about cluster {expected}, and no server says which it belongs to; {silent}",
            hint="bring a server's API up, or leave target.uid out of the spec to go on without this check",
        )
    return Refused(
        f"this run is about cluster {expected}, but no cluster runs on its servers",
        hint="nothing was changed; leave target.uid out of the spec for a new cluster, or name the cluster's kubeconfig",
    )


def _summary(identity: ServerIdentity) -> str:
    """Return a server's identity in words: `bare`, `running rke2 UID`, or `unreadable` with the last line of the reason."""
    last = identity.message.strip().splitlines()[-1:]
    return " ".join(part for part in (identity.state.value, identity.kind, identity.uid, *last) if part)[:300]
