"""Verb apply: brings objects into the target by server-side apply, or proves that an earlier run's work still holds."""

from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.kube_http import ApiError
from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass, Verdict, failed, passed
from steps.errors import Conflict
from steps.probes.reader import Scope
from steps.verbs import gating, reuse, target
from steps.verbs.context import Context
from steps.verbs.diagnose import diagnose_refusal


class Arguments(Struct, frozen=True, kw_only=True):
    """`objects` are applied in order; `gate` is the stage's control-plane gate, which reuse must pass again; `reuse` comes from
    the workflow and names an earlier run, or `none`. `node_labels` are set on every expected node that `select` takes, after the
    objects and by force: operators write defaults (`nvidia.com/mig.config=all-disabled`) which this run takes over."""

    objects: tuple[dict[str, Any], ...] = ()
    node_labels: dict[str, str] = {}
    gate: str = ""
    select: str = "all"
    gate_expectations: dict[str, Any] = {}


def run(context: Context) -> ExitCode:
    """Apply what differs; the record says for each object whether it was created, changed or left as it is."""
    wanted = context.arguments(Arguments)
    target.claim(context)
    earlier = reuse.earlier(context)
    if earlier is not None and wanted.gate and _still_holds(context, wanted):
        context.record(passed(_gate_id(context), f"unchanged since run {earlier.run}, and its gate passes now"), reused=earlier.run)
        return ExitCode.OK
    changes: list[str] = []
    for manifest in wanted.objects:
        try:
            changes.append(_apply(context, manifest))
        except (ApiError, Conflict) as error:
            found = diagnose_refusal(context.kube, manifest, str(error))
            context.record(_refusal(context, manifest, error), changes=changes, error=str(error), diagnosis=found)
            return ExitCode.GATE_FAILED
    changes += _label_nodes(context, wanted)
    context.record(passed(_gate_id(context), f"{len(changes)} objects applied"), changes=changes)
    return ExitCode.OK


def _gate_id(context: Context) -> str:
    return f"{context.task.stage}/{context.task.name}"


def _apply(context: Context, manifest: dict[str, Any]) -> str:
    before = context.kube.get(context.kube.path(manifest), target.Named)
    after = context.kube.apply(manifest)["metadata"]
    name = f"{manifest['kind']} {'/'.join(filter(None, (after.get('namespace'), after['name'])))}"
    if before is None:
        return f"created {name}"
    return f"{'unchanged' if before.metadata.resource_version == after['resourceVersion'] else 'changed'} {name}"


class LabelledMeta(Struct, frozen=True):
    """Name and labels of a node."""

    name: str = ""
    labels: dict[str, str] = {}


class LabelledNode(Struct, frozen=True):
    """A node for its labels."""

    metadata: LabelledMeta = LabelledMeta()


def _label_nodes(context: Context, wanted: Arguments) -> list[str]:
    """Label the expected nodes that exist and lack a label; nodes are never created here."""
    if not wanted.node_labels:
        return []
    expected = set(context.expected_nodes(wanted.select))
    found = [node.metadata for node in context.kube.list("/api/v1/nodes", LabelledNode) or () if node.metadata.name in expected]
    lacking = [node.name for node in found if wanted.node_labels.items() - node.labels.items()]
    for name in lacking:
        meta = {"name": name, "labels": wanted.node_labels}
        context.kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta}, force=True)
    text = " ".join(f"{key}={value}" for key, value in sorted(wanted.node_labels.items()))
    word = "changed" if lacking else "unchanged"
    return [f"{word} labels of nodes: {text} ({len(lacking)} of {len(found)} nodes)"]


def _refusal(context: Context, manifest: dict[str, Any], error: ApiError | Conflict) -> Verdict:
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    if isinstance(error, Conflict):
        return failed(
            _gate_id(context),
            error.failure_class,
            seen=f"{name}: {error}",
            expected="bringup to own the fields it sets",
            next_step=error.hint,
            final=True,
        )
    missing = error.status == 404
    return failed(
        _gate_id(context),
        FailureClass.DEPENDENCY if missing else FailureClass.APPLY,
        seen=f"{name}: {error}",
        expected="the API server to accept it",
        next_step=(
            "install what serves this kind first (a CRD or a namespace is missing)"
            if missing
            else "correct the field that the message names in the catalog values or the spec"
        ),
        final=True,
    )


def _still_holds(context: Context, wanted: Arguments) -> bool:
    """Whether the stage's control-plane gate passes right now: what an earlier run proved may be gone."""
    gate, nodes = gating.find(wanted.gate), context.expected_nodes(wanted.select)
    scope = Scope(nodes=nodes, arguments=msgspec.to_builtins(wanted), now=context.clock.now())
    seen = gating.probe(wanted.gate)(context.kube, scope)
    return gate.decide(seen, gate.expect(wanted.gate_expectations, nodes)).is_pass
