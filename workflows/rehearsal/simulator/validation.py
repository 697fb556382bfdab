"""Stage validation: a simulated MPI operator, and reports of NCCL and DCGM checks in the formats of these tools.

Formats: https://github.com/NVIDIA/nccl-tests, https://github.com/NVIDIA/nccl and https://github.com/kubeflow/mpi-operator. Figures:
`steps/docs/facts/acceptance.md`, expected bus bandwidth.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from workflows.rehearsal.simulator import fabric_links, launcher_log, simulated_pods, validation_failures
from workflows.rehearsal.simulator.api_kinds import (
    CRDS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    Obj,
    custom,
    definitions,
    has_condition,
    ref,
)
from workflows.rehearsal.simulator.operators import ensure_deployment, has_ready_pod
from workflows.rehearsal.simulator.simulated_fleet import HardwareProfile
from workflows.rehearsal.simulator.simulated_pods import Behaviour, Exit, LongRunning, check, environment, keep_log, pack
from workflows.rehearsal.simulator.world import Changes, World

MPI_JOBS = custom("kubeflow.org", "MPIJob")
NAMESPACE, OPERATOR = "mpi-operator", "mpi-operator"
JOB_NAME, ROLE = "training.kubeflow.org/job-name", "training.kubeflow.org/job-role"
INDEX = "training.kubeflow.org/replica-index"


@simulated_pods.pod_program("bringup/install", OPERATOR)
def install(world: World, pod: Obj, _node: str) -> Behaviour:
    """Play the pod that runs `kubectl apply -f URL` for mpi-operator; it fails if a fault makes the URL unreachable."""
    url = next((argument for argument in pod["spec"]["containers"][0].get("args") or () if "://" in argument), "")
    if world.fault("mpi_manifest_unreachable"):
        message = f'error: unable to read URL "{url}": dial tcp: lookup raw.githubusercontent.com on 10.43.0.10:53: no such host'
        return Exit(code=1, log=f"{message}\n", message=message)
    return Exit(log="customresourcedefinition serverside-applied\n", effect=functools.partial(_apply, world, url))


def _apply(world: World, url: str) -> None:
    """Create namespace, CRD and Deployment of mpi-operator. The image has the release in `url`, as in the manifest of its tag."""
    tag = url.partition("/mpi-operator/")[2].partition("/")[0].removeprefix("v")
    image = "master" if world.fault("mpi_operator_floating_image") else tag
    for definition in definitions("kubeflow.org"):
        world.ensure(CRDS, definition)
    world.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    ensure_deployment(world, NAMESPACE, OPERATOR, f"mpioperator/mpi-operator:{image}")


class MpiOperator:
    """Simulated mpi-operator. The scheduler that a pod template names assigns the pods."""

    name = "mpi_operator"
    kinds = (MPI_JOBS, JOBS, PODS, DEPLOYMENTS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Take the next step of each unfinished MPIJob: workers, launcher, status, clean-up."""
        if not changed.concern(*self.kinds) or not world.served(MPI_JOBS) or not has_ready_pod(world, NAMESPACE, OPERATOR):
            return
        for job in world.objects(MPI_JOBS):
            over = has_condition(job, "Succeeded") or has_condition(job, "Failed")
            if not over and "deletionTimestamp" not in job["metadata"]:
                _step(world, job)


def workers(world: World, namespace: str, job: str) -> list[Obj]:
    """Return the worker pods of an MPIJob, sorted by index."""
    pods = world.select(PODS, namespace, {JOB_NAME: job, ROLE: "worker"})
    return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"][INDEX]))


def _step(world: World, job: Obj) -> None:
    at = ref(job)
    specs = job["spec"]["mpiReplicaSpecs"]
    wanted = int(specs["Worker"].get("replicas", 1))
    for index in range(wanted):
        _worker(world, job, index)
    own = workers(world, at.namespace, at.name)
    ready = len(own) == wanted and all(simulated_pods.ready(pod) for pod in own)
    launcher = world.find(JOBS, f"{at.name}-launcher", at.namespace)
    if launcher is None and (ready or job["spec"].get("launcherCreationPolicy") != "WaitForWorkersReady"):
        _launcher(world, job)
    conditions = _operator_conditions(world, job, launcher, running=ready and launcher is not None)
    active = sum(simulated_pods.phase(pod) == "Running" for pod in own)
    status = {"conditions": conditions, "replicaStatuses": {"Worker": {"active": active}}}
    world.patch(MPI_JOBS, job, {"status": status}, status=True)
    if _ended(launcher) and job["spec"].get("runPolicy", {}).get("cleanPodPolicy", "Running") != "None":
        for pod in own:
            world.delete_soon(PODS, pod)


def _worker(world: World, job: Obj, index: int) -> None:
    at = ref(job)
    name = f"{at.name}-worker-{index}"
    if world.find(PODS, name, at.namespace) is not None:
        return
    replica = job["spec"]["mpiReplicaSpecs"]["Worker"]
    labels = {JOB_NAME: at.name, ROLE: "worker", INDEX: str(index)}
    pod = simulated_pods.from_template(replica["template"], name, MPI_JOBS, job, labels=labels)
    pod["spec"] |= {"hostname": name, "restartPolicy": replica.get("restartPolicy", "Never")}
    world.create_soon(PODS, pod)


def _launcher(world: World, job: Obj) -> None:
    at = ref(job)
    replica = job["spec"]["mpiReplicaSpecs"]["Launcher"]
    template = replica["template"]
    labels = (template.get("metadata", {}).get("labels") or {}) | {JOB_NAME: at.name, ROLE: "launcher"}
    policy = job["spec"].get("runPolicy", {})
    pod = template["spec"] | {"restartPolicy": replica.get("restartPolicy", "Never"), "hostname": f"{at.name}-launcher"}
    spec = {"backoffLimit": policy.get("backoffLimit", 6), "template": {"metadata": {"labels": labels}, "spec": pod}}
    if "activeDeadlineSeconds" in policy:
        spec["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    meta = {"name": f"{at.name}-launcher", "namespace": at.namespace, "ownerReferences": [MPI_JOBS.owner(job)]}
    world.create(JOBS, {"metadata": meta, "spec": spec})


def _ended(launcher: Obj | None) -> str:
    """Return `Complete` or `Failed` if the launcher Job has ended so, else an empty text."""
    return next((kind for kind in ("Complete", "Failed") if launcher and has_condition(launcher, kind)), "")


def _operator_conditions(world: World, job: Obj, launcher: Obj | None, *, running: bool) -> list[Obj]:
    """Return the status conditions of an MPIJob, in mpi-operator's words."""
    at = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    kinds = [("Created", f"MPIJob {at} is created.")]
    if running:
        kinds.append(("Running", f"MPIJob {at} is running."))
    match _ended(launcher):
        case "Complete":
            kinds.append(("Succeeded", f"MPIJob {at} successfully completed."))
        case "Failed":
            kinds.append(("Failed", "Job has reached the specified backoff limit"))
    return world.conditions(job, *((kind, "True", f"MPIJob{kind}", message) for kind, message in kinds))


INTRA = {
    "NVIDIA-A100-SXM4-80GB": 236.0,
    "NVIDIA-H100-80GB-HBM3": 477.0,
    "NVIDIA-H200": 474.0,
    "NVIDIA-B200": 739.0,
    "NVIDIA-L40S": 24.0,
}
"""Bus bandwidth in GB/s that an all-reduce over the eight GPUs of one machine approaches at large sizes, by GPU product."""

SHARE = 0.965
"""Share of all ports' line rate that a large all-reduce between machines reaches.

It is 386 of 400 GB/s with 64 × H100 (https://github.com/coreweave/nccl-tests).
"""

SOCKET = 4.1
"""Bus bandwidth in GB/s between machines over TCP."""

RAMP = 0.11
"""Share of the bandwidth that an all-reduce of 512 MiB lacks; it halves with every doubling of the size."""

NCCL = "2.26.2+cuda12.8"


class Communicator(Struct, frozen=True, kw_only=True):
    """The GPUs of one all-reduce: hosts by name, GPUs on each, and the bus bandwidth in GB/s that it reaches at large sizes.

    `slow_at`, if not 0, is the bandwidth at the largest size; `wrong` is the number of wrong elements there.
    """

    hosts: tuple[str, ...]
    gpus: int
    busbw: float
    product: str
    slow_at: float = 0.0
    wrong: int = 0

    @property
    def ranks(self) -> int:
        """The number of ranks, one for each GPU."""
        return len(self.hosts) * self.gpus


def node_bandwidth(hardware: HardwareProfile) -> float:
    """Return the bus bandwidth in GB/s between the GPUs of a machine."""
    return INTRA.get(hardware.product, 200.0)


def fabric_bandwidth(hardware: HardwareProfile) -> float:
    """Return the bus bandwidth in GB/s between machines over all fabric ports of each."""
    return SHARE * hardware.nics * hardware.nic_gbit / 8


def size_of(text: str) -> int:
    """Return a size such as `8G` in bytes; K, M and G are powers of 1024."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * factor


def table(shape: Communicator, first: str, last: str, jitter: float) -> Iterator[str]:
    """Yield the lines that all_reduce_perf prints in one run over sizes from `first` to `last`, such as `1G`.

    `jitter` in [-1, 1] moves the figures by up to one percent.
    """
    low, high = size_of(first), size_of(last)
    yield "# nccl-tests version 2.17.8 nccl-headers=22602 nccl-library=22602"
    yield "# Collective test starting: all_reduce_perf"
    yield f"# nThread 1 nGpus 1 minBytes {low} maxBytes {high} step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1"
    yield "#"
    yield "# Using devices"
    yield from _devices(shape)
    yield "#"
    yield f"#{'out-of-place':>72}{'in-place':>33}"
    yield "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
    yield "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)"
    figures = [*_rows(shape, low, high, jitter)]
    for size, outer, inner, wrong in figures:
        sides = f"{_side(shape, size, outer, wrong)}{_side(shape, size, inner, 0)}"
        yield f"{size:12d}{size // 4:14d}{'float':>10}{'sum':>8}{-1:>8}{sides}"
    yield f"# Out of bounds values : {bool(shape.wrong):d} {'FAILED' if shape.wrong else 'OK'}"
    yield f"# Avg bus bandwidth    : {sum(outer + inner for _, outer, inner, _ in figures) / max(2 * len(figures), 1):g}"
    yield "#"
    yield "# Collective test concluded: all_reduce_perf"


def _devices(shape: Communicator) -> Iterator[str]:
    name = shape.product.replace("-", " ")
    for rank in range(shape.ranks):
        host, device = shape.hosts[rank // shape.gpus], rank % shape.gpus
        bus = f"0000:{27 + 16 * device:02x}:00"
        yield f"#  Rank {rank:2d} Group  0 Pid {4000 + device:6d} on {host:>10} device {device:2d} [{bus}] {name}"


def _rows(shape: Communicator, low: int, high: int, jitter: float) -> Iterator[tuple[int, float, float, int]]:
    size = low
    while size <= high:
        reached = shape.busbw * (1 - RAMP * (1 << 30) / size / 2) * (1 + jitter / 100)
        # Only the last row may be slow: the average over all sizes then hides it.
        if size * 2 > high and shape.slow_at:
            reached = shape.slow_at
        yield size, reached, reached * 0.998, shape.wrong if size * 2 > high else 0
        size *= 2


def _side(shape: Communicator, size: int, busbw: float, wrong: int) -> str:
    """Return time in µs, algorithm bandwidth, bus bandwidth (GB/s) and wrong elements, formatted for one side of a row.

    Bus bandwidth is algorithm bandwidth times 2 (n - 1) / n for n ranks.
    """
    algbw = busbw * shape.ranks / (2 * (shape.ranks - 1)) if shape.ranks > 1 else busbw
    return f"{_short(size / algbw / 1000, 9)}{algbw:8.2f}{busbw:8.2f}{wrong:8d}"


def _short(value: float, width: int) -> str:
    """Return a number as nccl-tests prints it: with two decimals, or fewer if it would exceed seven characters."""
    return next(text for digits in (2, 1, 0) if len(text := f"{value:.{digits}f}") <= 7 or digits == 0).rjust(width)


# ---- NCCL_DEBUG=INFO -----------------------------------------------------------------------------------------------------------


def debug_info(shape: Communicator, adapters: Sequence[str], *, network: str, gdr: bool) -> Iterator[str]:
    """Yield NCCL's debug lines about each rank's network and the channels between neighbouring hosts (NCCL 2.26 to 2.30).

    `adapters` are the names of a host's RDMA devices; `network` is `IB` or `Socket`; `gdr` is True with GPUDirect RDMA.
    """
    ports = " ".join(f"[{number}]{name}:1/IB" for number, name in enumerate(adapters))
    for rank in range(shape.ranks):
        device = rank % shape.gpus
        address = validation_failures.address(rank // shape.gpus)
        head = f"{shape.hosts[rank // shape.gpus]}:{4000 + device}:{4100 + device} [{device}] NCCL INFO"
        if not device:
            yield f"{head} NCCL version {NCCL}"
        if network == "IB":
            yield f"{head} NET/IB : Using {ports} [RO]; OOB eth0:{address}<0>"
        else:
            yield f"{head} NET/IB : No device found."
            yield f"{head} NET/Socket : Using [0]eth0:{address}<0>"
        yield f"{head} Using network {network}"
        if network == "IB" and device < len(adapters):
            yield f"{head} NET/IB : GPU Direct RDMA {'Enabled' if gdr else 'Disabled'} for HCA {device} '{adapters[device]}'"
        yield from (f"{head} {line}" for line in _channels(shape, rank, network, gdr))


def _channels(shape: Communicator, rank: int, network: str, gdr: bool) -> Iterator[str]:
    """Yield the debug lines of a rank's two channels to the same device of the next host, and of the end of its set-up."""
    device, peer = rank % shape.gpus, (rank + shape.gpus) % max(shape.ranks, 1)
    suffix = "/GDRDMA" if gdr and network == "IB" else ""
    for channel in (device, device + shape.gpus) if len(shape.hosts) > 1 else ():
        yield f"Channel {channel:02d}/0 : {rank}[{device}] -> {peer}[{device}] [send] via NET/{network}/{device}{suffix}"
    yield f"Connected all rings, use ring PXN 0 GDR {int(gdr and network == 'IB')}"
    comm = f"comm 0x55cc8aa86c{rank % 256:02x} rank {rank} nRanks {shape.ranks} nNodes {len(shape.hosts)} localRanks {shape.gpus}"
    yield f"{comm} localRank {device} MNNVL 0 - Init COMPLETE"


def join_lines(lines: Iterable[str]) -> str:
    """Return the lines as one text, each with a newline at its end."""
    return "".join(f"{line}\n" for line in lines)


def check_settings(environment: Mapping[str, str]) -> tuple[str, str, int]:
    """Return first size, last size and number of runs from the environment variables of an NCCL check's script."""
    return environment.get("FIRST", "1G"), environment.get("LAST", "8G"), int(environment.get("RUNS", "3"))


CONGESTING = 3
"""Machines from which on a collective congests a badly routed fabric (fault `fabric_congested`); two of them have routes enough."""

RUN_SECONDS = 45.0
"""Virtual seconds of one run of nccl-tests, its start included."""

SLOW_LARGE, DEGRADED = 0.81, 0.47
"""Share of the bandwidth that is left if only large messages are slow; `DEGRADED` is that with half of the NVLinks gone."""

WITHOUT_GDR = 0.92
"""Share of the fabric's bandwidth without GPUDirect RDMA: above the example spec's floor, so only NCCL's log shows it."""


# ---- NCCL inside a node --------------------------------------------------------------------------------------------------------


@check("nccl-intra")
def nccl_intra(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `nccl-intra` on a node: report exit codes and output of all_reduce_perf over the node's GPUs.

    The report has the form that `workflows/stages/scripts/nccl_intra.sh` prints.
    """
    first, last, runs = check_settings(environment(pod))
    host = str(pod["spec"].get("hostname") or pod["metadata"]["name"])
    if world.fault("nvswitch_not_initialised", node):
        failure = f"{host}: Test CUDA failure common.cu:941 'system not yet initialized'\n .. {host} pid 71: Test failure\n"
        text, code = failure * runs, 2
    elif world.fault("nccl_shm_full", node):
        text, code = join_lines(validation_failures.failed_run(world, "nccl_shm_full", [host], 0) * runs), 3
    else:
        shape = _machine(world, node, host)
        lines = (line for run in range(runs) for line in table(shape, first, last, _jitter(world, node, run)))
        text, code = join_lines(lines), 0
    message = {"node": node, "exits": [code] * runs, "packed": pack(text)}
    return Exit(message=message, log=text, seconds=RUN_SECONDS * runs)


def _machine(world: World, node: str, host: str) -> Communicator:
    hardware, gpus = world.hardware(node), world.host(node).gpus
    full = node_bandwidth(hardware)
    visible = gpus - bool(world.fault("nccl_gpu_missing", node))
    return Communicator(
        hosts=(host,),
        gpus=visible,
        busbw=full * (DEGRADED if world.fault("nvlink_degraded", node) else 1),
        product=hardware.product,
        slow_at=full * SLOW_LARGE if world.fault("nccl_slow_large_messages", node) else 0.0,
    )


def _jitter(world: World, name: str, run: int) -> float:
    return 2 * world.chance(f"validation/nccl/{name}/{run}") - 1


# ---- NCCL over all nodes -------------------------------------------------------------------------------------------------------


@check("nccl-inter")
def nccl_inter(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `nccl-inter`: a worker runs until it is deleted, the launcher reports exit codes and logs NCCL's output.

    The report has the form that `workflows/stages/scripts/nccl_inter.sh` prints.
    """
    labels = pod["metadata"]["labels"]
    if labels.get(ROLE) == "worker":
        return LongRunning()
    own = workers(world, pod["metadata"]["namespace"], labels[JOB_NAME])
    _, _, runs = check_settings(environment(pod))
    text, code = _together(world, pod, own, runs)
    message = {"node": node, "exits": [code] * runs}
    return Exit(message=message, seconds=RUN_SECONDS * runs, effect=functools.partial(keep_log, world, pod, text))


def _together(world: World, pod: Obj, own: list[Obj], runs: int) -> tuple[str, int]:
    first, last, _ = check_settings(environment(pod))
    nodes = [simulated_pods.node(worker) for worker in own]
    lost = next((worker for worker in own if world.fault("ib_retry_exceeded", simulated_pods.node(worker))), None)
    shape, network, gdr = _fabric(world, [worker["metadata"]["name"] for worker in own], nodes, int(environment(pod)["PER_NODE"]))
    missing = bool(world.fault("nccl_adapter_missing"))
    adapters = [f"mlx5_{number}" for number in range(world.hardware(nodes[0]).nics - missing)]
    lines = debug_info(shape, adapters, network=network, gdr=gdr)
    if lost is not None:
        return _launcher_log([*lines, *_retry_exceeded(shape.hosts, lost["metadata"]["name"])]), 3
    for fault in _FAILS_FIRST:
        victim = next((number for number, name in enumerate(nodes) if world.fault(fault, name)), None)
        if victim is not None:
            return _launcher_log([*lines, *validation_failures.failed_run(world, fault, shape.hosts, victim)]), 3
    tables = [table(shape, first, last, _jitter(world, "fabric", run)) for run in range(runs)]
    # only the first run has NCCL's lines
    return _launcher_log(itertools.chain(lines, tables[0])) + "".join(map(_launcher_log, tables[1:])), 0


def _launcher_log(lines: Iterable[str]) -> str:
    """Return the output of one run as the launcher's script writes it to its log."""
    return join_lines(launcher_log.shorten(lines))


_FAILS_FIRST = ("nccl_no_route", "nccl_gid_unreachable", "nccl_memlock", "nccl_two_versions", "nccl_port_error")
"""Faults by which a rank on one node fails first, and ends the run of all."""


def _fabric(world: World, hosts: list[str], nodes: list[str], gpus: int) -> tuple[Communicator, str, bool]:
    """Return the simulated all-reduce (its workers and GB/s), the network used (`IB` or `Socket`), and True if by GPUDirect."""
    hardware = world.hardware(nodes[0])
    busbw = min(fabric_bandwidth(hardware), node_bandwidth(hardware))
    product, gdr, network = hardware.product, True, "IB"
    if world.fault("nccl_one_host"):
        return (Communicator(hosts=tuple(hosts[:1]), gpus=gpus, busbw=node_bandwidth(hardware), product=product), network, gdr)
    if world.fault("nccl_socket_fallback"):
        busbw, network, gdr = SOCKET, "Socket", False
    if world.fault("nccl_gdr_disabled"):
        busbw, gdr = busbw * WITHOUT_GDR, False
    busbw = min(fabric_bandwidth(hardware) * fabric_links.ring_share(world, nodes, hardware.nics), busbw)
    slow = busbw * SLOW_LARGE if world.fault("fabric_congested") and len(nodes) >= CONGESTING else 0.0
    wrong = 96 if world.fault("nccl_wrong_data") else 0
    return Communicator(hosts=tuple(hosts), gpus=gpus, busbw=busbw, product=product, slow_at=slow, wrong=wrong), network, gdr


def _retry_exceeded(hosts: Sequence[str], host: str) -> Iterator[str]:
    peer = validation_failures.address((hosts.index(host) + 1) % len(hosts))
    yield "# Collective test starting: all_reduce_perf"
    yield (
        f"{host}:4003:4103 [3] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer {peer}<53908> with status=12 "
        "opcode=129 len=1048576 vendor err 129 (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_3"
    )
    yield f"{host}:4003:4103 [3] NCCL INFO transport/net.cc:1362 -> 6"


# ---- tests between nodes -------------------------------------------------------------------------------------------------------


@check("fabric")
def fabric(world: World, pod: Obj, node: str) -> Behaviour:
    """Play a pod of the check `fabric`: one of a pair, which measures each rail to the other one, or one of an MPIJob of a group.

    Reports have the form that `workflows/stages/scripts/fabric_pair.sh` prints.
    """
    if ROLE in pod["metadata"]["labels"]:
        return nccl_inter(world, pod, node)  # the MPIJob of a group is played as the one over all nodes
    settings = environment(pod)
    nodes = settings.get("TEST_NODES", "").split()
    others = [name for name in nodes if name != node]
    tested = settings.get("TESTED", "").split()
    rails = [*_fabric_rails(world, node, others or [node], tested)] if node in nodes else []
    return Exit(message={"node": node, "rails": rails, "error": ""}, seconds=8 + 7 * len(nodes))


def _fabric_rails(world: World, node: str, others: Sequence[str], tested: Sequence[str]) -> Iterator[Obj]:
    """Yield the least bandwidth of each tested rail to the other machines, all of which this one meets."""
    for rail in range(world.hardware(node).nics):
        if not tested or str(rail) in tested:
            figures = {other: fabric_links.rate(world, node, other, rail) for other in others}
            worst = min(figures, key=lambda other: figures[other])
            gbit = figures[worst] * (1 - 0.004 * world.chance(f"fabric/{node}/{rail}"))
            yield {"device": f"mlx5_{rail}", "rail": rail, "gbit": round(gbit, 2), "peer": others.index(worst), "error": ""}


# ---- DCGM ----------------------------------------------------------------------------------------------------------------------

_TESTS = (
    ("Deployment", "software", 1),
    ("Hardware", "memory", 2),
    ("Integration", "pcie", 2),
    ("Hardware", "diagnostic", 3),
    ("Integration", "nvbandwidth", 3),
    ("Stress", "memory_bandwidth", 3),
    ("Stress", "targeted_stress", 3),
    ("Stress", "targeted_power", 3),
    ("Stress", "memtest", 4),
    ("Stress", "pulse_test", 4),
)
"""Category, name and lowest level of each `dcgmi diag` test (`steps/docs/facts/acceptance.md`, DCGM diag)."""


@check("dcgm")
def dcgm(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `dcgm` on a node: report exit code and JSON output of `dcgmi diag`.

    The report has the form that `workflows/stages/scripts/dcgm.sh` prints.
    """
    level = int(environment(pod).get("LEVEL", "1"))
    tests = [(category, _test(world, node, category, name)) for category, name, least in _TESTS if level >= least]
    categories = [
        {"category": category, "tests": [test for group, test in tests if group == category]}
        for category in dict.fromkeys(group for group, _ in tests)
    ]
    metadata = {"version": "4.6.0", "Driver Version Detected": world.hardware(node).driver}
    document = {"DCGM Diagnostic": {"test_categories": categories}, "metadata": metadata}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    failed = any(test["test_summary"]["status"] == "Fail" for _, test in tests)
    message = {"node": node, "exits": [226 if failed else 0], "packed": pack(text)}
    seconds = {1: 10.0, 2: 120.0, 3: 900.0}.get(level, 3600.0)
    return Exit(message=message, log=text, seconds=seconds)


def _test(world: World, node: str, category: str, name: str) -> Obj:
    gpus, status = world.host(node).gpus, "Pass"
    if category != "Deployment" and world.fault("dcgm_skips_everything", node):
        status = "Skip"
    results: list[Obj] = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status} for gpu in range(gpus)]
    if name == "memory" and world.fault("dcgm_memory_fault", node):
        why = "GPU 5 had uncorrectable memory errors (ECC, double bit): row remapping failed"
        warning = {"warning": why, "error_id": 20, "error_category": 2, "error_severity": 4}
        results[min(5, gpus - 1)] |= {"status": "Fail", "warnings": [warning]}
        status = "Fail"
    return {"name": name, "results": results, "test_summary": {"status": status}}


ROLES = (MpiOperator,)
