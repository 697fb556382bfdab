"""Verb open: check plan, fleet, servers and the run to reuse; create the run, hold an existing cluster, and output the shards."""

import msgspec
from msgspec import Struct

from steps.clients.store import AlreadyWritten
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.exit import ExitCode
from steps.contract.runs import revision
from steps.errors import BadTask, Refused
from steps.runtime import play_requests, reuse
from steps.runtime.context import Context
from steps.runtime.identify import ClusterIdentity, Way, identify


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of verb open, which creates a run.

    `plan` is the plan's digest. `ssh` is given if the plan changes hosts; then the servers are asked which cluster they run.
    `registration` is the API address of a cluster that they run, by which it is held before anything is changed; `server` and
    `server_name` are as for a play. `needs_running_cluster`: the operation is refused without one. The other fields are kept in
    `run.json` (`steps.contract.run_records.Header`).
    """

    plan: str
    cluster: str
    owner: str
    revision: str
    target_uid: str = ""
    lease_seconds: int = run_records.LEASE_SECONDS
    left_out: tuple[str, ...] = ()
    operation: str = ""
    targetless: bool = False
    needs_running_cluster: bool = False
    ssh: play_requests.Ssh | None = None
    registration: str = ""
    server: str = ""
    server_name: str = ""


def run(context: Context) -> ExitCode:
    """Create the run; output JSON lists of shard numbers: those with a host that plays may change, and of these the agents'."""
    arguments = context.arguments(Arguments)
    index = context.fleet.index()
    if index.plan != arguments.plan:
        raise BadTask(
            f"fleet belongs to plan {index.plan}, the task to {arguments.plan}", hint="render again and submit both together"
        )
    shards = {number: context.fleet.shard(number) for number in range(index.shards)}
    counted = sum(len(hosts) for hosts in shards.values())
    # a chunk of the fleet is missing, or is from another plan
    if counted != index.hosts:
        raise BadTask(f"fleet holds {counted} hosts, its index says {index.hosts}", hint="render again")
    header = _header(context, arguments)
    _keep(context, run_records.header_key(header.run), canonical(header))
    _keep(context, run_records.hosts_key(header.run), canonical([host for hosts in shards.values() for host in hosts]))
    summary = context.environment.tasks / run_records.PLAN_FILE
    if summary.exists():
        _keep(context, run_records.plan_key(header.run), summary.read_bytes())
    origin = _origin(context)
    if origin is not None:
        _keep(context, revision.key(header.run), canonical(origin))
    identity = (
        identify(context, arguments.ssh, Way(arguments.registration, arguments.server, arguments.server_name))
        if arguments.ssh is not None
        else ClusterIdentity()
    )
    if arguments.needs_running_cluster and not identity.uid and not context.kubeconfig().exists():
        raise Refused(
            f"{arguments.operation} is for a cluster that runs, and no server of {arguments.cluster} shows one",
            hint="nothing was changed; `bringup run` makes the cluster",
        )
    unreached = _check_reuse(context, header)
    # a shard without a host to change needs no pod
    touched = [number for number, hosts in shards.items() if not all(host.untouched for host in hosts)]
    agents = [number for number in touched if any(host.role != "server" for host in shards[number])]
    seen = {"hosts": counted, "shards": len(shards), "identity": identity, **({"source": origin} if origin else {})}
    if unreached:
        seen["reuse"] = unreached
        context.say(unreached)
    context.record(observation=seen, changes=[f"created run {header.run}"])
    context.output("shards", msgspec.json.encode(touched).decode())
    context.output("agents", msgspec.json.encode(agents).decode())
    # an approval before the first stage shows it to whoever answers
    context.output("evidence", context.store.evidence_digest(context.environment.run, context.task.stage))
    return ExitCode.OK


def _origin(context: Context) -> revision.SpecSource | None:
    """Return the Git source of the spec, from a file or, if many runs share the tasks, from a parameter; None if unknown.

    It is recorded but is no part of the plan.
    """
    source = context.environment.tasks / revision.FILE
    if source.exists():
        return revision.decode(source.read_bytes())
    try:
        return revision.from_token(context.environment.source)
    except ValueError as error:
        raise BadTask(str(error), hint="leave the parameter `source` out, or take the one that bringup submits") from error


def _header(context: Context, arguments: Arguments) -> run_records.Header:
    """Return the header of the run. A rehearsal gets the UID of its simulated cluster, whatever UID the spec names."""
    simulated = bool(context.environment.simulator)
    return run_records.Header(
        run=context.environment.run,
        engine=context.environment.engine,
        plan=arguments.plan,
        cluster=arguments.cluster,
        owner=arguments.owner,
        revision=arguments.revision,
        target_uid="" if simulated else arguments.target_uid,
        simulated=simulated,
        lease_seconds=arguments.lease_seconds,
        left_out=arguments.left_out,
        operation=arguments.operation,
        targetless=arguments.targetless,
    )


def _check_reuse(context: Context, header: run_records.Header) -> str:
    """Return a sentence if the earlier run left nothing to reuse, else an empty text. Raises BadTask if it may not be reused.

    A cluster that is not known yet is compared later, by each task.
    """
    earlier = context.environment.reuse
    if earlier in ("", reuse.NONE):
        return ""
    if earlier == header.run:
        raise BadTask(f"run {earlier} cannot reuse itself", hint="resume it, or name an earlier run")
    uid = run_records.target_uid(header.run, context.store.read)
    problem = run_records.reuse_obstacle(earlier, context.store.read, cluster=header.cluster, uid=uid, simulated=header.simulated)
    if problem:
        raise BadTask(problem, hint="name an earlier run of this very cluster, or start without reuse")
    return run_records.unreached_sentence(earlier, context.store.read)


def _keep(context: Context, key: str, data: bytes) -> None:
    try:
        context.store.write(key, data)
    except AlreadyWritten:
        # a retried attempt writes the same data again
        if context.store.read(key) != data:
            raise BadTask(f"run {context.environment.run} exists with another plan", hint="choose another run name") from None
