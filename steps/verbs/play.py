"""Verb play: run a playbook on one shard's hosts or on a selection, judge what each host showed, and store the result."""

from contextlib import nullcontext, suppress
from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.ansible import playing
from steps.clients.fleet_folder import is_selected
from steps.contract import run_records
from steps.contract.exit import ExitCode
from steps.contract.fleet import Host
from steps.contract.host_play import HostStatus, PlayResult, RoleArchive
from steps.contract.plain_text import count
from steps.contract.verdict import NodeVerdict, Status, Verdict
from steps.errors import Unreachable
from steps.runtime import gating, play_requests, target
from steps.runtime.context import KUBECONFIG, Context
from steps.runtime.diagnose import diagnose_play
from steps.stages.site_roles import contract as site_roles


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of verb play.

    - `fanned`: play the hosts of this shard, else all that `select` takes.
    - `gate`: judges the observations that the hosts returned.
    - `kubeconfig_from`: the fact with the new cluster's kubeconfig. Like every fact in `keep` (fact → secret file), it goes to the
      run's secrets and nowhere else.
    - `server`: address at which this run reaches that API server, whose certificate is checked for `server_name`.
    - `helpers`: selector of hosts that the play may ask but does not change: a server drains and removes nodes for others.
    - `after`: a task of this stage that must have passed, else the play is skipped: there is no cluster to join.
    - `everyone`: include hosts that the run leaves untouched otherwise; the playbook only reads them.
    - `role`: the site's own role that the playbook runs, a file of the tasks folder.
    - `passed`: tasks of this stage. A host that did not pass one of them is not played; the judge names it for that task.
    - `together`: a host that fails stops those after it, and a retry plays all hosts again.
    - `may_be_down`: the cluster may not answer any more; it is claimed only if it does.
    - `restores`: the play may restore an older etcd state, and with it a lease that another run held then.
    - `secret_variables`: variables whose values are in secret files; the run's own secrets take precedence.
    """

    playbook: str
    ssh: play_requests.Ssh
    gate: str
    select: str = "all"
    fanned: bool = False
    everyone: bool = False
    together: bool = False
    may_be_down: bool = False
    restores: bool = False
    after: str = ""
    helpers: str = ""
    variables: dict[str, Any] = {}
    forks: int = play_requests.FORKS
    kubeconfig_from: str = ""
    server: str = ""
    server_name: str = ""
    keep: dict[str, str] = {}
    secret_variables: dict[str, str] = {}
    role: RoleArchive | None = None
    passed: tuple[str, ...] = ()


def run(context: Context) -> ExitCode:
    """Play, judge and store the record.

    Returns 0 once the record is written, whatever the hosts returned, because the judge decides about the stage.
    """
    arguments = context.arguments(Arguments)
    hosts = _hosts(context, arguments)
    names = tuple(host.name for host in hosts)
    gate = gating.find(arguments.gate)
    if reason := _why_not(context, arguments, hosts):
        # named, because they will not join in this run: a later task of the stage does not wait for them until its deadline
        rows = tuple(NodeVerdict(node=name, status=Status.SKIPPED) for name in names)
        context.record(Verdict(gate=arguments.gate, status=Status.SKIPPED, reason=reason, nodes=rows))
        return ExitCode.OK
    with suppress(Unreachable) if arguments.may_be_down else nullcontext():
        if context.kubeconfig().exists():  # a play changes machines of a cluster that another run may hold
            target.claim(context, restored=arguments.restores)
        else:
            target.renew(context, restored=arguments.restores)
    uid = run_records.target_uid(context.environment.run, context.store.read)
    result = playing.play(
        play_requests.request(
            context,
            arguments.playbook,
            arguments.ssh,
            hosts,
            helpers=_helpers(context, arguments, names),
            # a play must not create a second cluster in the place of a known one
            variables=arguments.variables | ({"bringup_target_uid": uid} if uid else {}),
            secret_variables=arguments.secret_variables,
            forks=arguments.forks,
            role=arguments.role,
            together=arguments.together,
        ),
        on_event=context.hear,
    )
    result = keep_secrets(context, arguments, result)
    seen = gating.reader(gate.id)(result.hosts)
    verdict = gate.decide(seen, gate.expect(context.task.expectations, names, context.groups(names)))
    if arguments.role is not None:  # a stage may have several roles of the site, so each gate in its records is named by its role
        verdict = msgspec.structs.replace(verdict, gate=site_roles.gate(arguments.role.name))
    changed = [f"{outcome.host}: {count(outcome.changed, 'change')}" for outcome in result.hosts if outcome.changed]
    diagnosis = () if verdict.is_pass else diagnose_play(result.hosts, verdict)
    context.record(verdict, observation=seen, changes=changed, error=result.message, diagnosis=diagnosis)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK


def _why_not(context: Context, arguments: Arguments, hosts: tuple[Host, ...]) -> str:
    """Return why the play is skipped: task `after` did not pass, or no host takes part. Empty if it is not."""
    if arguments.after and not _passed(context, arguments.after):
        return f"{arguments.after} did not pass"
    return "" if hosts else "no host of this shard takes part: all are set aside, failed before, left untouched, or another task's"


def _hosts(context: Context, arguments: Arguments) -> tuple[Host, ...]:
    aside = {*context.quarantined(), *context.not_passed(arguments.passed)}
    hosts = context.fleet.shard(context.shard) if arguments.fanned else context.fleet.hosts(arguments.select)
    taken = (host for host in hosts if host.name not in aside and is_selected(host, arguments.select))
    return tuple(host for host in taken if arguments.everyone or not host.untouched)


def _helpers(context: Context, arguments: Arguments, played: tuple[str, ...]) -> tuple[Host, ...]:
    aside = context.quarantined()
    chosen = context.fleet.hosts(arguments.helpers) if arguments.helpers else ()
    return tuple(host for host in chosen if host.name not in aside and host.name not in played)


def _passed(context: Context, task: str) -> bool:
    """Return True if a task of this stage left records and all of them are passes."""
    records = context.store.records(context.environment.run, context.task.stage, task)
    return bool(records) and all(record.verdict is not None and record.verdict.is_pass for record in records)


def keep_secrets(context: Context, arguments: Arguments, result: PlayResult) -> PlayResult:
    """Move secret facts from the play's result into the run's secret files; return the result without them.

    A new kubeconfig fixes the identity of the run's cluster.
    """
    keep = {**arguments.keep, **({arguments.kubeconfig_from: KUBECONFIG} if arguments.kubeconfig_from else {})}
    secrets: dict[str, str] = {}
    outcomes = []
    for outcome in result.hosts:
        facts = dict(outcome.facts)
        for fact, name in keep.items():
            text = str(facts.pop(fact, ""))
            if text and outcome.status is HostStatus.OK:
                secrets.setdefault(name, text)
        outcomes.append(msgspec.structs.replace(outcome, facts=facts))
    if KUBECONFIG in secrets:
        # before it is kept: a kubeconfig of another cluster must never become the run's
        secrets[KUBECONFIG] = _reachable(context, arguments, secrets[KUBECONFIG])
    for name, text in secrets.items():
        context.keep_secret(name, text)
    if KUBECONFIG in secrets:
        target.claim(context, restored=arguments.restores)
    return msgspec.structs.replace(result, hosts=tuple(outcomes))


def _reachable(context: Context, arguments: Arguments, kubeconfig: str) -> str:
    """Return a new cluster's kubeconfig with the API address that the spec gives.

    Raises Refused if it does not lead to the run's cluster, Unreachable if its API does not answer.
    """
    kubeconfig = target.readdress_server(context, kubeconfig, arguments.server, arguments.server_name)
    try:
        target.recognize(context, kubeconfig)
    except Unreachable as error:
        error.hint = f"{error.hint} SSH's jump hosts and proxies do not stand before it: target.server in the spec says another way"
        raise
    return kubeconfig
