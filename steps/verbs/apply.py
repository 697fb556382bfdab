"""Verb apply: apply objects to the target by server-side apply, or prove that an earlier run's work still holds."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.kube.api import ApiError
from steps.contract import fleet
from steps.contract.delivery import ConfigMapKeys, KnownHosts, RepositorySecret, ServerCertificates
from steps.contract.exit import ExitCode
from steps.contract.gres_conf import GresConf
from steps.contract.objects import object_files
from steps.contract.objects.login_pods import LoginPods
from steps.contract.objects.object_files import TaskObjects
from steps.contract.objects.pod_script import PodScript
from steps.contract.objects.target_secret import FileSecret
from steps.contract.plain_text import count
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import FailureClass, Verdict, failed, passed
from steps.errors import BadTask, Conflict, Refused
from steps.runtime import (
    config_maps,
    delivery_inputs,
    gating,
    gres_settlement,
    job_removal,
    leaf_annotation,
    login_pod_tasks,
    pod_scripts,
    reuse,
    settings,
    target,
    trust,
    upgrade_path,
)
from steps.runtime.context import Context
from steps.runtime.diagnose import diagnose_refusal
from steps.runtime.job_removal import ReplacedJobs
from steps.runtime.leaf_annotation import LeafAnnotation
from steps.stages.shared.kube_reader import Scope

Object = dict[str, Any]
Refusal = tuple[Object, ApiError | Refused]
"""An object that the API server refused to write, and the error."""


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of a task that applies objects.

    - `objects`: manifests, applied in order; `file` is a file of further ones beside the task, applied after them.
    - `gate`: the stage's control-plane gate, which must pass again before reuse; `gate_expectations` are its expectations.
    - `node_labels`: set on every expected node that `select` takes, after the objects. They are forced, because operators write
      defaults (`nvidia.com/mig.config=all-disabled`) that this run takes over. `group_labels` are labels by host group.
    - `leaf_annotation`: writes into an annotation of nodes, before the objects, which leaf switch each has; see `leaf_annotation`.
    - `upgrade_from`: releases → lines from which the vendor supports the upgrade (see `upgrade_path`).
    - `secrets`: Secrets that are made of secret files, after the objects.
    - `replaced_jobs`: ended Jobs that are deleted before the objects are applied, since they are immutable; see `job_removal`.
    - `pod_script`: runs in a container until it succeeds, and is all that the task does; see `pod_scripts`.
    - `login_sessions`: lists sessions on login pods of an old revision, and changes nothing; `login_replacement` replaces such pods
      if those who are logged in were seen by an approver; see `login_pod_tasks`.
    - `gres_conf`: corrects SUNK's gres.conf, and does nothing else; see `gres_settlement`.
    - `config_map`, `known_hosts`, `certificates`, `repository`: set up Argo CD after the objects; see `settings` and `trust`.
    """

    objects: tuple[dict[str, Any], ...] = ()
    file: TaskObjects | None = None
    node_labels: dict[str, str] = {}
    group_labels: dict[str, dict[str, str]] = {}
    leaf_annotation: LeafAnnotation | None = None
    gate: str = ""
    select: str = "all"
    gate_expectations: dict[str, Any] = {}
    upgrade_from: dict[str, tuple[str, ...]] = {}
    secrets: tuple[FileSecret, ...] = ()
    gres_conf: GresConf | None = None
    login_sessions: LoginPods | None = None
    login_replacement: LoginPods | None = None
    pod_script: PodScript | None = None
    replaced_jobs: ReplacedJobs | None = None
    config_map: ConfigMapKeys | None = None
    known_hosts: KnownHosts | None = None
    certificates: ServerCertificates | None = None
    repository: RepositorySecret | None = None


def run(context: Context) -> ExitCode:
    """Apply the objects. The record says for each whether it was created, changed or left as it is."""
    arguments = context.arguments(Arguments)
    target.claim(context)
    earlier = reuse.earlier(context)
    if earlier is not None and arguments.gate and _still_holds(context, arguments):
        return _reuse(context, arguments, earlier)
    if _did_one_thing(context, arguments):
        return ExitCode.OK
    if (forbidden := upgrade_path.refusal(context.kube, context.own_gate, arguments.upgrade_from)) is not None:
        context.record(forbidden)
        return ExitCode.GATE_FAILED
    objects = (*arguments.objects, *_file_objects(context, arguments.file))
    if arguments.replaced_jobs is not None:
        job_removal.remove(context, arguments.replaced_jobs)
    refusal = (
        _annotate(context, arguments)
        or _apply_all(context, objects)
        or _label_nodes(context, arguments)
        or _set_up(context, arguments)
    )
    if refusal is not None:
        return _record_refusal(context, refusal)
    # without a gate to pass again, the earlier run's work still holds if applying it again changed nothing
    reused = earlier.run if earlier is not None and not arguments.gate and not context.changed else ""
    context.record(passed(context.own_gate, f"{count(len(objects), 'object')} applied"), reused=reused)
    return ExitCode.OK


def _reuse(context: Context, arguments: Arguments, earlier: Evidence) -> ExitCode:
    """Record an earlier run's work as reused, whose gate passes now, if objects, annotations and labels are as that run left them.

    Gates do not compare every field of every object with the plan. What somebody has changed is applied again, and not reused.
    """
    # Jobs have ended and are gone
    if arguments.replaced_jobs is None:
        objects = (*arguments.objects, *_file_objects(context, arguments.file))
        refusal = _annotate(context, arguments) or _apply_all(context, objects) or _label_nodes(context, arguments)
        if refusal is not None:
            return _record_refusal(context, refusal)
    if context.changed:
        again = f"its gate passes, and what somebody changed since run {earlier.run} was applied again"
        context.record(passed(context.own_gate, again))
    else:
        context.record(passed(context.own_gate, f"unchanged since run {earlier.run}, and its gate passes now"), reused=earlier.run)
    return ExitCode.OK


def _record_refusal(context: Context, refusal: Refusal) -> ExitCode:
    manifest, error = refusal
    diagnosis = diagnose_refusal(context, manifest, error)
    context.record(_refused(context, manifest, error), error=str(error), diagnosis=diagnosis)
    return ExitCode.GATE_FAILED


def _did_one_thing(context: Context, arguments: Arguments) -> bool:
    """Do and record the work of a task that does one thing instead of applying objects; return False for every other task."""
    if arguments.gres_conf is not None:
        context.record(gres_settlement.settle(context, arguments.gres_conf))
    elif arguments.pod_script is not None:
        context.record(pod_scripts.run(context, arguments.pod_script))
    elif arguments.login_sessions is not None:
        login_pod_tasks.list_sessions(context, arguments.login_sessions)
    elif arguments.login_replacement is not None:
        context.record(login_pod_tasks.replace(context, arguments.login_replacement))
    else:
        return False
    return True


def _file_objects(context: Context, file: TaskObjects | None) -> tuple[Object, ...]:
    """Return the objects of a file beside the task; none without a file. Raises BadTask if it is missing or another one."""
    if file is None:
        return ()
    try:
        return object_files.decode(file, (context.environment.tasks / file.name).read_bytes())
    except (OSError, object_files.NotTheObjects) as error:
        raise BadTask(f"objects of the task: {error}", hint="render again and submit all files together") from error


def _apply_all(context: Context, objects: Iterable[Object]) -> Refusal | None:
    """Apply the objects in order. Return the first refusal, at which this stops; None if there was none.

    The record lists the finished changes in any case.
    """
    for manifest in objects:
        try:
            context.did(_apply(context, manifest))
        except (ApiError, Refused) as error:
            return manifest, error
    return None


def _apply(context: Context, manifest: Object) -> str:
    before = context.kube.get(context.kube.path(manifest), target.IdentifiedObject)
    after = context.kube.apply(manifest)["metadata"]
    name = f"{manifest['kind']} {'/'.join(filter(None, (after.get('namespace'), after['name'])))}"
    if before is None:
        return f"created {name}"
    return f"{'unchanged' if before.metadata.resource_version == after['resourceVersion'] else 'changed'} {name}"


def _annotate(context: Context, arguments: Arguments) -> Refusal | None:
    if arguments.leaf_annotation is None:
        return None
    return leaf_annotation.write(context, arguments.leaf_annotation, context.leaves(arguments.select))


def _label_nodes(context: Context, arguments: Arguments) -> Refusal | None:
    """Set the labels on expected nodes that exist and lack one. Return the refusal that stopped it, else None. Create no Node."""
    wanted = {f"{fleet.GROUP}{group}": labels for group, labels in arguments.group_labels.items()}
    wanted |= {arguments.select: arguments.node_labels} if arguments.node_labels else {}
    if not wanted:
        return None
    every = context.kube.list("/api/v1/nodes", target.IdentifiedObject) or ()
    refusals = (_label_some(context, select, labels, every) for select, labels in wanted.items())
    return next((refusal for refusal in refusals if refusal is not None), None)


def _label_some(context: Context, select: str, labels: dict[str, str], every: Iterable[target.IdentifiedObject]) -> Refusal | None:
    """Set labels on the expected nodes that a selector takes."""
    expected = set(context.expected_nodes(select))
    nodes, done = [node.metadata for node in every if node.metadata.name in expected], 0
    try:
        for name in (node.name for node in nodes if labels.items() - node.labels.items()):
            manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            # by force: operators own these labels with default values
            context.kube.apply(manifest, force=True)
            done += 1
    except (ApiError, Refused) as error:
        return manifest, error
    finally:
        text = " ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        context.did(f"{'changed' if done else 'unchanged'} labels of nodes: {text} ({done} of {len(nodes)} nodes)")
    return None


def _set_up(context: Context, arguments: Arguments) -> Refusal | None:
    """Write Secrets from files, and Argo CD's settings, trusted servers and repository. Return the refusal that stopped this."""
    if refusal := _apply_all(context, [settings.file_secret(context, wanted) for wanted in arguments.secrets]):
        return refusal
    if (config := arguments.config_map) is not None:
        try:
            settings.merge(context, config)
        except (ApiError, Refused) as error:
            return config_maps.config_map(config), error
    if (hosts := arguments.known_hosts) is not None:
        try:
            trust.hosts(context, hosts)
        except (ApiError, Refused) as error:
            return config_maps.config_map(hosts), error
    if (servers := arguments.certificates) is not None:
        try:
            trust.servers(context, servers)
        except (ApiError, Refused) as error:
            return config_maps.config_map(servers), error
    return _apply_all(context, [settings.secret(context, arguments.repository)]) if arguments.repository is not None else None


def _refused(context: Context, manifest: Object, error: ApiError | Refused) -> Verdict:
    if isinstance(error, Conflict):
        kind, expected, next_step = error.failure_class, "bringup to own the fields it sets", error.hint
    elif isinstance(error, Refused):
        kind, expected, next_step = error.failure_class, "the right to write it, and room in its namespace's quota", error.hint
    elif error.status == 404:
        kind, expected = FailureClass.DEPENDENCY, "the API server to accept it"
        next_step = "install what serves this kind first (a CRD or a namespace is missing)"
    else:
        kind, expected = FailureClass.APPLY, "the API server to accept it"
        next_step = "correct the field that the message names in the catalog values or the spec"
    seen = f"{manifest['kind']} {manifest['metadata']['name']}: {error}"
    return failed(context.own_gate, kind, seen=seen, expected=expected, next_step=next_step, final=True)


def _still_holds(context: Context, arguments: Arguments) -> bool:
    """Return True if the stage's control-plane gate passes now; the state that an earlier run proved may be gone."""
    gate, nodes = gating.find(arguments.gate), context.expected_nodes(arguments.select)
    scope = Scope(
        nodes=nodes,
        arguments=msgspec.to_builtins(arguments),
        now=context.clock.now(),
        commit=delivery_inputs.delivered_commit(context),
    )
    seen = gating.probe(arguments.gate)(context.kube, scope)
    return gate.decide(seen, gate.expect(arguments.gate_expectations, nodes)).is_pass
