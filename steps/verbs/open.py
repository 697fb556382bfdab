"""Verb open: starts a run: checks that tasks and fleet belong to the plan, creates the run, and hands out the shards."""

import msgspec
from msgspec import Struct

from steps.clients.store import AlreadyWritten
from steps.contract import run as contract
from steps.contract.canonical import canonical
from steps.contract.exit import ExitCode
from steps.errors import BadTask
from steps.verbs.context import Context


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plan` is the plan's digest; the rest says what the run is about and is kept in `run.json`."""

    plan: str
    cluster: str
    owner: str
    revision: str
    target_uid: str = ""


def run(context: Context) -> ExitCode:
    """Create the run and output the shard numbers as a JSON list (all, and those of agents only)."""
    wanted = context.arguments(Arguments)
    index = context.fleet.index()
    if index.plan != wanted.plan:
        raise BadTask(
            f"fleet belongs to plan {index.plan}, the task to {wanted.plan}", hint="render again and submit both together"
        )
    shards = {number: context.fleet.shard(number) for number in range(index.shards)}
    counted = sum(len(hosts) for hosts in shards.values())
    if counted != index.hosts:
        raise BadTask(f"fleet holds {counted} hosts, its index says {index.hosts}", hint="render again")
    header = contract.Header(
        simulated=bool(context.environment.simulator),
        run=context.environment.run,
        engine=context.environment.engine,
        **msgspec.structs.asdict(wanted),
    )
    _keep(context, contract.header_key(header.run), canonical(header))
    _keep(context, contract.hosts_key(header.run), canonical([host for hosts in shards.values() for host in hosts]))
    summary = context.environment.tasks / contract.PLAN_FILE
    if summary.exists():
        _keep(context, contract.plan_key(header.run), summary.read_bytes())
    agents = [number for number, hosts in shards.items() if any(host.role != "server" for host in hosts)]
    context.record(observation={"hosts": counted, "shards": len(shards)}, changes=[f"created run {header.run}"])
    context.output("shards", msgspec.json.encode(list(shards)).decode())
    context.output("agents", msgspec.json.encode(agents).decode())
    return ExitCode.OK


def _keep(context: Context, key: str, data: bytes) -> None:
    try:
        context.store.write(key, data)
    except AlreadyWritten:
        if context.store.read(key) != data:
            raise BadTask(f"run {context.environment.run} exists with another plan", hint="choose another run name") from None
