"""Judges one registered node: alive, Ready for a while, of the wanted release, with network, labels and taints of the spec."""

from collections.abc import Iterator, Mapping

from steps.contract.host_ranges import expand
from steps.contract.node_taints import from_text
from steps.contract.verdict import FailureClass, NodeVerdict
from steps.stages.rke2.contract import NodesExpectation, NodesObservation, RegisteredNode, RegistrationGroup, parse_version
from steps.stages.rke2.gate_control_plane import why_unsteady
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

CONDITIONS = "node.kubernetes.io/"
"""Prefix of the taints that Kubernetes sets for a node's conditions."""


def rows(seen: NodesObservation, want: NodesExpectation) -> list[NodeVerdict]:
    """Return the verdict on each expected node: its first problem, or a pass."""
    by_name = {node.name: node for node in seen.nodes}
    members = {host: group for group in want.groups.values() for host in expand(group.hosts)}
    return [_row(name, by_name.get(name), members.get(name), want, seen.now) for name in want.nodes]


def version_seen(seen: str, wanted: str) -> str:
    """Return a node's RKE2 version for a message, with a hint on the part that differs from the wanted one.

    Semantic versioning calls v1.35.7+rke2r1 and v1.35.7+rke2r2 equal, but they are different RKE2 releases.
    """
    version, want = parse_version(seen), parse_version(wanted)
    if version is None:
        return f"version {seen!r}, which is no RKE2 version" if seen else "no version"
    # the first four fields are Kubernetes' version: only the RKE2 revision differs
    if want and version[:4] == want[:4]:
        return f"{seen}: the right Kubernetes version in RKE2 revision r{version.revision}"
    return seen


def _row(
    name: str, node: RegisteredNode | None, group: RegistrationGroup | None, want: NodesExpectation, now: float
) -> NodeVerdict:
    if node is None:
        step = f"read journalctl -u rke2-agent on {name} (token, registration address, port 9345)"
        return fail(FailureClass.RUNTIME, "not registered", "a Node of this name", step).of_node(name)

    own = ", ".join(taint for taint in node.taints if from_text(taint)["key"] in want.own_taints)
    summary = f"Ready, {node.version}, {node.address}" + (f"; {own} is the platform's own" if own else "")
    return node_verdict(name, next(_findings(node, group, want, now), None), summary)


def _findings(node: RegisteredNode, group: RegistrationGroup | None, want: NodesExpectation, now: float) -> Iterator[Finding]:
    """Yield the problems of a registered node, causes before their consequences.

    A finding is final if neither the cluster nor the kubelet changes that state by itself.
    """
    yield from _set_aside(node)
    yield from _alive(node, want, now)
    yield from _unplanned(node)
    yield from _registered(node, group, want)
    yield from _network(node, want, now)
    if not node.since or now - node.since < want.settled_seconds:
        ago = f"only {max(now - node.since, 0):.0f} s" if node.since else "a time that is not told"
        expected = f"Ready for {want.settled_seconds:.0f} s"
        yield unknown(FailureClass.RUNTIME, f"Ready for {ago}", expected, "wait, or see why it flaps")


def _alive(node: RegisteredNode, want: NodesExpectation, now: float) -> Iterator[Finding]:
    journal = f"read the kubelet's log on {node.name}"
    if node.version != want.version:
        step = "upgrade this node to the same release as the others"
        yield fail(FailureClass.COMPARISON, f"kubelet {version_seen(node.version, want.version)}", want.version, step)
    if node.ready != "True":
        # a restart of the kubelet sets Ready to False for a moment, which is not a failure yet
        over = node.ready == "False" and now - node.since > want.alive_seconds
        seen = f"Ready is {node.ready}: {node.reason} {node.message}".rstrip()
        yield (fail if over else unknown)(FailureClass.HEALTH, seen, "Ready is True", journal)
    if not node.seen or now - node.seen > want.alive_seconds:
        ago = f"{now - node.seen:.0f} s ago" if node.seen else "never"
        yield unknown(FailureClass.HEALTH, f"last sign of life {ago}", f"one within {want.alive_seconds:.0f} s", journal)
    if node.pressure:
        problem = f"{', '.join(node.pressure)} is True"
        yield fail(FailureClass.HEALTH, problem, "no pressure", "free what is short on the node")
    if not node.address:
        yield fail(FailureClass.INPUT, "no InternalIP", "an InternalIP", "set node-ip in /etc/rancher/rke2/config.yaml")


def _set_aside(node: RegisteredNode) -> Iterator[Finding]:
    """Yield a final failure for a node that this or an earlier run cordoned: it stays cordoned until a person releases it."""
    note = node.quarantine
    if node.cordoned and note is not None:
        why = note.reason.partition("; ")[0].removeprefix(f"{node.name}: ")
        seen = f"cordoned since run {note.run} set it aside in {note.stage} ({why})"
        step = f"repair it, then `bringup quarantine release {node.name} --run {note.run} --as NAME`, and run again"
        yield fail(FailureClass.INPUT, seen, "a released node", step, final=True)


def _unplanned(node: RegisteredNode) -> Iterator[Finding]:
    """Yield a failure for a node that a person or another tool cordoned. Not final: they may uncordon it at any time."""
    if node.cordoned:
        step = f"ask who did that, then `kubectl uncordon {node.name}`"
        yield fail(FailureClass.INPUT, "cordoned, and not by bringup", "schedulable", step)


def _registered(node: RegisteredNode, group: RegistrationGroup | None, want: NodesExpectation) -> Iterator[Finding]:
    """Yield a problem for labels and taints of a node that differ from the spec.

    A kubelet sets them only when it registers its node (https://docs.rke2.io/reference/linux_agent_config), so differences are
    final.
    """
    group = group or want.groups.get(node.labels.get(want.group_label, ""))
    if group is None and want.groups:
        label = f"label {want.group_label}={node.labels.get(want.group_label, '')!r}"
        step = _again(node, want.group_label)
        yield fail(FailureClass.COMPARISON, label, f"one of {', '.join(want.groups)}", step, final=True)
        return
    yield from _taints(node, group.taints if group else (), want.own_taints)
    wanted = {**(group.labels if group else {}), **want.host_labels.get(node.name, {})}
    yield from _labels(node, wanted)


def _labels(node: RegisteredNode, wanted: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in wanted.items():
        if node.labels.get(key) != value:
            seen = f"label {key}={node.labels[key]}" if key in node.labels else f"no label {key}"
            yield fail(FailureClass.COMPARISON, seen, f"{key}={value}", _again(node, f"{key}={value}"), final=True)


def _again(node: RegisteredNode, label: str) -> str:
    return f"RKE2 gives labels at registration only: `kubectl label --overwrite node {node.name} {label}`"


def _taints(node: RegisteredNode, wanted: tuple[str, ...], own: tuple[str, ...]) -> Iterator[Finding]:
    """Yield a problem for taints of a node that are missing or unexpected.

    Taints of the spec must be present. Taints of the platform (`own`) come and go with its work and are ignored.
    """
    strange = [taint for taint in node.taints if taint not in wanted and from_text(taint)["key"] not in own]
    passing = [taint for taint in strange if taint.startswith(CONDITIONS)]
    if passing:
        step = f"read the conditions of {node.name}"
        yield unknown(FailureClass.RUNTIME, f"taint {passing[0]}", "no taint of a condition", step)
    if strange:
        # not final: network plugins and controllers take their own taints away once they are ready
        step = "remove the taint, or add it to the group's taints in the spec"
        yield fail(FailureClass.COMPARISON, f"taint {strange[0]}", "only taints of the spec", step)
    for taint in wanted:
        if taint not in node.taints:
            step = f"RKE2 gives taints at registration only: `kubectl taint node {node.name} {taint}`"
            yield fail(FailureClass.COMPARISON, f"no taint {taint}", "the taints of the spec", step, final=True)


def _network(node: RegisteredNode, want: NodesExpectation, now: float) -> Iterator[Finding]:
    if not want.network:
        return
    step = f"describe its pod: kubectl -n kube-system get pods -o wide --field-selector spec.nodeName={node.name}"
    if node.network is None or not node.network.ready:
        seen = f"no pod of {want.network} runs here" if node.network is None else f"the pod of {want.network} here is not ready"
        yield unknown(FailureClass.HEALTH, seen, "the pod network", step)
    elif problem := why_unsteady(node.network, now, want.settled_seconds, want.storm, want.calm_seconds):
        yield unknown(FailureClass.HEALTH, f"the pod of {want.network} here {problem}", "no fresh restart", step)
