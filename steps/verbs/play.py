"""Verb play: runs a playbook on one shard's hosts (or on a selection), judges what each host showed, and stores it."""

from contextlib import nullcontext, suppress
from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.ansible import playing
from steps.clients.fleet import selected
from steps.contract import run as run_contract
from steps.contract import site_roles
from steps.contract.exit import ExitCode
from steps.contract.fleet import Host
from steps.contract.play import HostStatus, PlayResult, RoleArchive
from steps.contract.plural import count
from steps.contract.verdict import Status, Verdict
from steps.errors import Unreachable
from steps.verbs import gating, reach, target
from steps.verbs.context import KUBECONFIG, Context
from steps.verbs.diagnose import diagnose_play


class Arguments(Struct, frozen=True, kw_only=True):
    """`fanned`: the hosts are those of this shard; else all that `select` takes. `gate` judges the observations that the hosts
    returned; without one the outcome itself is the verdict's data. `kubeconfig_from` names the fact that carries the new
    cluster's kubeconfig, which goes to the run's secrets and nowhere else, like every fact in `keep` (fact → secret file).
    `server`: where this run reaches the API server of that kubeconfig, whose certificate is then checked for `server_name`.
    `helpers` selects hosts that the play does not change and may ask: a server drains and removes nodes for the others.
    `after` is a task of this stage that must have passed: without it there is nothing to join, and waiting would tell no more.
    `everyone`: also hosts that the run leaves untouched otherwise, where the playbook only reads them.
    `role` is the site's own that the playbook runs, a file of the tasks folder. `passed` are tasks of this stage: a host that did
    not pass one of them is left out, and the judge names it by that.
    `together`: a host that fails stops those after it, and a second try is one of all.
    `may_be_down`: the play is about a cluster that may not answer any more; it is claimed where it does.
    `restores`: it may set etcd back, and with it the lease to what another run left there.
    `secret_variables` are variables of the play whose values lie in secret files: the run's own win over the secrets folder."""

    playbook: str
    ssh: reach.Ssh
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
    forks: int = reach.FORKS
    kubeconfig_from: str = ""
    server: str = ""
    server_name: str = ""
    keep: dict[str, str] = {}
    secret_variables: dict[str, str] = {}
    role: RoleArchive | None = None
    passed: tuple[str, ...] = ()


def run(context: Context) -> ExitCode:
    """Play, judge, store. Ends with 0 once the record is written, whatever the hosts said: the judge decides."""
    wanted = context.arguments(Arguments)
    hosts = _hosts(context, wanted)
    names = tuple(host.name for host in hosts)
    gate = gating.find(wanted.gate)
    if reason := _why_not(context, wanted, hosts):
        context.record(Verdict(gate=wanted.gate, status=Status.SKIPPED, reason=reason))
        return ExitCode.OK
    with suppress(Unreachable) if wanted.may_be_down else nullcontext():
        if context.kubeconfig().exists():  # a play changes machines of a cluster that may be another run's
            target.claim(context, restored=wanted.restores)
        else:
            target.renew(context, restored=wanted.restores)
    result = playing.play(
        reach.request(
            context,
            wanted.playbook,
            wanted.ssh,
            hosts,
            helpers=_helpers(context, wanted, names),
            variables=wanted.variables | _known(context),
            secret_variables=wanted.secret_variables,
            forks=wanted.forks,
            role=wanted.role,
            together=wanted.together,
        ),
        on_event=context.hear,
    )
    result = keep_secrets(context, wanted, result)
    seen = _observe(gate, result.hosts)
    verdict = gate.decide(seen, gate.expect(context.task.expectations, names))
    if wanted.role is not None:  # a stage may have several roles of the site: in its records each gate has its role's name
        verdict = msgspec.structs.replace(verdict, gate=site_roles.gate(wanted.role.name))
    changed = [f"{outcome.host}: {count(outcome.changed, 'change')}" for outcome in result.hosts if outcome.changed]
    found = () if verdict.is_pass else diagnose_play(result.hosts, verdict)
    context.record(verdict, observation=seen, changes=changed, error=result.message, diagnosis=found)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK


def _why_not(context: Context, wanted: Arguments, hosts: tuple[Host, ...]) -> str:
    """Why there is nothing to play; empty where there is."""
    if wanted.after and not _passed(context, wanted.after):
        return f"{wanted.after} did not pass"
    return "" if hosts else "no host of this shard takes part: all are set aside, failed before, left untouched, or another task's"


def _hosts(context: Context, wanted: Arguments) -> tuple[Host, ...]:
    aside = {*context.quarantined(), *context.not_passed(wanted.passed)}
    hosts = context.fleet.shard(context.shard) if wanted.fanned else context.fleet.hosts(wanted.select)
    taken = (host for host in hosts if host.name not in aside and selected(host, wanted.select))
    return tuple(host for host in taken if wanted.everyone or not host.untouched)


def _helpers(context: Context, wanted: Arguments, played: tuple[str, ...]) -> tuple[Host, ...]:
    aside = context.quarantined()
    chosen = context.fleet.hosts(wanted.helpers) if wanted.helpers else ()
    return tuple(host for host in chosen if host.name not in aside and host.name not in played)


def _passed(context: Context, task: str) -> bool:
    """Whether a task of this stage left records, and every one of them is a pass."""
    records = context.store.records(context.environment.run, context.task.stage, task)
    return bool(records) and all(record.verdict is not None and record.verdict.is_pass for record in records)


def _known(context: Context) -> dict[str, Any]:
    """The cluster that this run is about, where it is known: a play must not found a second one in its place."""
    uid = run_contract.target_uid(context.environment.run, context.store.read)
    return {"bringup_target_uid": uid} if uid else {}


def _observe(gate: gating.Gate, outcomes: Any) -> Any:
    """Host outcomes as the gate's observation: its module of probes turns them, which is pure."""
    return gating.reader(gate.id)(tuple(outcomes))


def keep_secrets(context: Context, wanted: Arguments, result: PlayResult) -> PlayResult:
    """Move secret facts into the run's secrets, out of what is recorded; a new kubeconfig pins the identity of the new cluster."""
    keep = {**wanted.keep, **({wanted.kubeconfig_from: KUBECONFIG} if wanted.kubeconfig_from else {})}
    kept: dict[str, str] = {}
    outcomes = []
    for outcome in result.hosts:
        facts = dict(outcome.facts)
        for fact, name in keep.items():
            text = str(facts.pop(fact, ""))
            if text and outcome.status is HostStatus.OK:
                kept.setdefault(name, text)
        outcomes.append(msgspec.structs.replace(outcome, facts=facts))
    if KUBECONFIG in kept:
        kept[KUBECONFIG] = _reachable(context, wanted, kept[KUBECONFIG])
    for name, text in kept.items():
        context.keep_secret(name, text)
    if KUBECONFIG in kept:
        target.claim(context, restored=wanted.restores)
    return msgspec.structs.replace(result, hosts=tuple(outcomes))


def _reachable(context: Context, wanted: Arguments, kubeconfig: str) -> str:
    """A new cluster's kubeconfig with the way to it that the spec gives, once it has been seen to lead to the run's cluster."""
    kubeconfig = target.by_way_of(context, kubeconfig, wanted.server, wanted.server_name)
    try:
        target.recognize(context, kubeconfig)
    except Unreachable as error:
        error.hint = f"{error.hint} SSH's jump hosts and proxies do not stand before it: target.server in the spec says another way"
        raise
    return kubeconfig
