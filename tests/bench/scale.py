"""Measure on a real API server what grows with a fleet: manifests, Workflow status, API calls, watch traffic, check pods.

Needs what `tests/cluster` needs (root on Linux, its programs). The controller's part is played: see argo_played.py.
"""

import argparse
import functools
import os
import tempfile
import time
from pathlib import Path

import msgspec
from figures import Figures
from real_server import able
from render import neutral

from workflows import bringup, examples
from workflows.engines.argo.home import Home
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle, render
from workflows.spec import load

HOSTS_A_SHARD, SERVERS = 50, 3
MIB = 1 << 20
ETCD = 1.5 * MIB
"""The largest request that etcd takes (`--max-request-bytes`); a larger object loses its managedFields first."""
SHARDS = (1, 50, 200, 400)
FOLLOWED = 200
CHECK_MIB = 128
"""Of check pods at one time: etcd keeps 2 GiB unless told otherwise, old revisions included."""
CALLS = {"submit": 60, "following, two idle minutes": 4, "status": 4, "status, the first": 12, "approve": 12}
"""Most requests of each part of a run, at any size of the fleet."""


def spec_text(nodes: int) -> str:
    """The default example with another number of GPU nodes."""
    text = examples.path("h200-16").read_text().replace("gpu[001-016]", f"gpu[00001-{nodes:05d}]")
    text = text.replace('{pattern: "10.10.1.{1}"}', "{start: 10.64.0.1}").replace("15/16", "90%")
    return text.replace("  cni: canal", "  cni: canal\n  cluster_cidr: 10.128.0.0/9")


@functools.cache
def rendered(nodes: int) -> tuple[Plan, Bundle]:
    """Plan and bundle of so many GPU nodes."""
    plan = compile_plan(load(spec_text(nodes)))
    return plan, render(plan, bringup.build)


def manifests(figures: Figures) -> None:
    """Measure the manifests that are submitted for 10 and for 10,000 nodes."""
    (_, small), (_, large) = rendered(10), rendered(10_000)
    for name, size in (("WorkflowTemplate", len(_json(large.template))), ("Workflow", len(_json(large.workflow)))):
        figures.note(f"{name}, any number of nodes", f"{size} bytes")
    figures.at_least("manifests of 10 and 10,000 nodes equal but for ids", float(neutral(small) == neutral(large)), 1, "")
    for nodes, bundle in ((10, small), (10_000, large)):
        figures.at_most(f"fleet ConfigMap, {nodes} nodes", len(_json(bundle.config_maps[1])) / 1024, MIB / 1024, "KiB")
    figures.at_most("tasks ConfigMap, any number of nodes", len(_json(large.config_maps[0])) / 1024, MIB / 1024, "KiB")


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def status_sizes(figures: Figures, folder: Path) -> None:
    """The finished run's Workflow on the API server: as Argo first writes it, and with the nodes compressed."""
    from argo_home import create, measured

    from workflows.engines.argo import submission

    with measured(folder) as home:
        for shards in SHARDS:
            plan, bundle = rendered(shards * HOSTS_A_SHARD - SERVERS)
            create(home.admin, bundle.template)
            _weighed(figures, home.admin, (plan, bundle), 1, f"{shards} shards, no retries")
            sent = _weighed(figures, home.admin, (plan, bundle), 4, f"{shards} shards, every attempt used")
            share = sent / submission.check(plan, bundle)
            figures.at_most(f"{shards} shards: measured against the submission's guard", share, 1, "")
            figures.at_least(f"{shards} shards: the guard is exact enough", share, 0.7, "")


def _weighed(figures: Figures, home: Home, rendered: tuple[Plan, Bundle], attempts: int, what: str) -> int:
    """Write one run's last status plain, if Argo would, and compressed; the bytes of that Workflow."""
    from argo_home import create, put
    from argo_played import Played, last

    from workflows.engines.argo.workflow_objects import compress_nodes

    played = Played(f"run-{len(rendered[0].hosts)}-{attempts}", *rendered, attempts)
    state = last(played.states())
    found = create(home, {**rendered[1].workflow, "metadata": {"name": played.name, "namespace": home.namespace}})
    status = played.status(state, time.time())
    plain, nodes = len(_json({**found, "status": status})), _json(status["nodes"])
    said = f"{len(state.nodes)} nodes, {plain} bytes"
    if plain <= MIB:
        began = time.perf_counter()
        found, plain = put(home, found, status)
        took, stored = time.perf_counter() - began, len(_json(found))
        figures.note(f"{what}: plain", f"{said} in {took:.2f} s, stored as {stored}: {stored - plain} of managedFields")
        figures.at_most(f"{what}: plain, stored", stored / 1024, ETCD / 1024, "KiB")
    else:
        figures.note(f"{what}: plain", f"{said}: Argo compresses it")
    began = time.perf_counter()
    found, sent = put(home, found, {**status, "nodes": None, "compressedNodes": compress_nodes(nodes)})
    said = f"{len(compress_nodes(nodes))} bytes, {len(compress_nodes(nodes)) / len(state.nodes):.1f} a node"
    figures.note(f"{what}: compressed nodes", f"{said}, in {time.perf_counter() - began:.2f} s")
    figures.at_most(f"{what}: compressed, the Workflow", sent / 1024, MIB / 1024, "KiB")
    return sent


def followed(figures: Figures, folder: Path, shards: int) -> None:
    """One run by the command line, from submit to the end."""
    from argo_followed import Followed, Run
    from argo_home import measured

    nodes = shards * HOSTS_A_SHARD - SERVERS
    spec = folder / "cluster.yaml"
    spec.write_text(spec_text(nodes))
    for name in ("id_ed25519", "known_hosts"):
        (folder / name).write_text("measured\n")
    with measured(folder) as home:
        found: Followed = Run(home, folder, *rendered(nodes), spec).follow()
    for part, calls in found.calls.items():
        said = ", ".join(f"{count} {what}" for what, count in calls.most_common())
        figures.note(f"{shards} shards: {part}", f"{calls.total()} calls: {said}")
        if part in CALLS:
            figures.at_most(f"{shards} shards: calls of {part}", calls.total(), CALLS[part], "")
    for part, seconds in found.seconds.items():
        figures.note(f"{shards} shards: seconds of {part}", f"{seconds:.1f} s, load of this machine {os.getloadavg()[0]:.1f}")
    figures.note(f"{shards} shards: writes of the controller", f"{found.writes}, up to {max(found.sent)} bytes")
    figures.note(f"{shards} shards: watched", f"{found.events} events, {found.bytes / MIB:.1f} MiB")
    figures.at_most(f"{shards} shards: watch bytes for each byte of status written", found.bytes / sum(found.sent), 1.6, "")
    figures.note(f"{shards} shards: evidence in the store", f"{found.pulled / MIB:.1f} MiB")


def check_pods(figures: Figures) -> None:
    """Measure the size of all pods of one per-node check: each pod lists the names of the nodes that it may, or may not, run on."""
    from steps.runtime import check_manifests
    from workflows.stages import manifest_objects

    pod = {"containers": [manifest_objects.container("docker.io/library/busybox:1.37.0", manifest_objects.script("dns_ring.sh"))]}
    manifest = manifest_objects.per_node_job("rke2", "dns", pod, seconds=300)
    for nodes, failed in ((100, 1), (1000, 10), (10_000, 100), (10_000, 500)):
        names = tuple(f"gpu{number:05d}" for number in range(nodes))
        others = (*(f"sv{number}" for number in range(3)), *names[:failed])
        one = check_manifests.on_nodes(manifest, names[failed:], others if nodes > check_manifests.LISTED else None)
        size = len(_json(one["spec"]["template"]))
        what = f"check on {nodes} nodes, {failed} left out"
        figures.note(what, f"{size} bytes a pod")
        figures.at_most(f"{what}: all pods", size * one["spec"]["completions"] / MIB, CHECK_MIB, "MiB")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=FOLLOWED, help="of the run that is followed")
    parser.add_argument("--only", choices=("manifests", "pods", "sizes", "calls"), action="append")
    given = parser.parse_args()
    figures = Figures("scale: 10,000 nodes in 200 shards and more")
    wanted = given.only or ("manifests", "pods", "sizes", "calls")
    if "manifests" in wanted:
        manifests(figures)
    if "pods" in wanted:
        check_pods(figures)
    for part, measure in (("sizes", status_sizes), ("calls", functools.partial(followed, shards=given.shards))):
        if part in wanted and able(figures, part):
            with tempfile.TemporaryDirectory(prefix="bringup-bench-") as folder:
                measure(figures, Path(folder))
    figures.exit()


if __name__ == "__main__":
    main()
