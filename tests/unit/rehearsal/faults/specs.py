"""The specs that show all faults: the example with a smaller fleet, and what a fault needs beside it."""

import functools

from workflows import examples
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.faults.fault_registry import Fault
from workflows.spec import ClusterSpec, load

SMALLER = {
    "ranges: gpu[001-016]": "ranges: gpu[001-008]",
    "rack{block:4}": "rack{block:2}",
    "leaf{block:8}": "leaf{block:4}",
    "su{block:16}": "su{block:8}",
}
"""Half of the example's fleet, which keeps its two leaves: no fault needs more than 8 nodes, and each node costs CPU time."""
BESIDE = {
    "sharing.mode=time_slicing": "sharing: {mode: time_slicing, replicas: 4}\n",
    "sharing.mode=mig": "sharing: {mode: mig, profile: 1g.18gb}\n",
    "sharing.mode=dra": "sharing: {mode: dra}\n",
    "delivery.mode=argo_cd": """delivery:
  mode: argo_cd
  argo_cd: {repo: https://git.example.org/platform/apps.git, revision: v1, project: platform}
""",
}
"""By what faults need."""
NO_SLURM = {
    "slurm:\n  kind: slinky\n  partitions:\n": "",
    '    - {name: train, groups: gpu, default: true, max_time: "7-00:00:00"}\n  login: {replicas: 1}\n': "",
}
NO_FLOOR = {"  nccl: {inter_node_floor_gb_s: 350}\n": ""}
LESS = {"sharing.mode=time_slicing": NO_SLURM, "sharing.mode=mig": NO_SLURM | NO_FLOOR, "sharing.mode=dra": NO_SLURM}
"""Lines of the example that cannot stand beside what a fault needs: Slurm takes whole GPUs, and NCCL joins no MIG instances."""
QUOTA = "quota: kueue, queues: [{name: research, namespace: team-a, gpus: 64}]"
WITHIN = {
    "scheduler.quota=kueue": {"scheduler: {gang: volcano}": f"scheduler: {{gang: volcano, {QUOTA}}}"},
    "scheduler.gang=none": {"scheduler: {gang: volcano}": f"scheduler: {{{QUOTA}}}"},
    "slurm.kind=none": NO_SLURM,
    "hosts.*.sharing.mode=time_slicing": {
        "    ranges: gpu[001-008]\n": "    ranges: gpu[001-006]\n",
        "\nssh:\n": """  sliced:
    role: agent
    ranges: gpu[007-008]
    gpu: true
    addresses: {pattern: "10.10.1.{1}"}
    sharing: {mode: time_slicing, replicas: 4}

ssh:
""",
    },
    "slurm.accounting.port=3306": {
        "  login: {replicas: 1}\n": "  login: {replicas: 1}\n"
        "  accounting: {host: mariadb.slurm.svc, password: {file: ./db_password}}\n"
        "  topology: tree\n  home: {server: 10.10.0.5, path: /export/home}\n"
        '  prolog: {10-check.sh: "#!/bin/sh\\ntrue\\n"}\n  epilog: {10-clean.sh: "#!/bin/sh\\ntrue\\n"}\n',
        'max_time: "7-00:00:00"}': 'max_time: "7-00:00:00", oversubscribe: "FORCE:2"}',
        "  nccl: {inter_node_floor_gb_s: 350}\n": "  nccl: {inter_node_floor_gb_s: 350}\n  level: full\n"
        "  gpu_floors: {adapters_gb_s: 150}\n"
        "  training: {image: registry.example.org/pytorch:2.9}\n"
        "  benchmarks:\n    image: registry.example.org/benchmarks:1\n"
        "    storage: {path: /mnt/shared, read_floor_mb_s: 3000}\n",
    },
    "slurm.kind=sunk": {
        "  kind: slinky\n": "  kind: sunk\n  repo: oci://registry.example.org/sunk\n  version: 7.3.0\n",
        "  login: {replicas: 1}\n": "  login: {replicas: 1, test_user: alice}\n",
    },
    "fabric.mode=macvlan": {
        'os: {distribution: ubuntu, version: "24.04"}': 'os: {distribution: rocky, version: "9.6", selinux: enforcing}',
        "  driver: operator": '  driver: host\n  driver_version: "580.126.20"',
        "  kind: infiniband": "  kind: roce",
        "  mode: rdma_shared": "  mode: macvlan",
        "  rate_gbit: 400": "  rate_gbit: 400\n  interfaces: [ens1]\n  mtu: 9000\n  ip_pool: {subnet: 192.168.0.0/16}",
    },
}
"""Needs within a section that the example has: lines of the example, and the lines that take their place."""


@functools.cache
def spec_for(needs: str) -> ClusterSpec:
    """The example with what is needed; an unknown need fails here, where its spec is missing."""
    text = examples.path("h200-16").read_text()
    for line, changed in (SMALLER | (WITHIN.get(needs) or LESS.get(needs, {}))).items():
        assert line in text
        text = text.replace(line, changed)
    return load(text + BESIDE[needs] if needs and needs not in WITHIN else text)


FURNISHED = ("", "slurm.accounting.port=3306", "slurm.kind=sunk", "fabric.mode=macvlan")
"""Specs that have what several faults need, so that one sweep serves them."""


def needed(fault: Fault) -> str:
    """The first of the furnished specs that can have this fault (empty: the example), else what it needs."""
    return next((needs for needs in FURNISHED if fault.fits(spec_for(needs))), fault.needs)


def stage_needs(stage: str) -> str:
    """The first of the furnished specs whose plan has a stage."""
    return next(needs for needs in FURNISHED if any(planned.id == stage for planned in compile_plan(spec_for(needs)).stages))
