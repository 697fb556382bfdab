"""What the etcd of a simulated server tells of itself on port 2381: the same texts as a real one, with made-up figures."""

from __future__ import annotations

import json

from workflows.rehearsal.simulator.kinds import Obj
from workflows.rehearsal.simulator.world import World

BOUNDS = tuple(0.001 * 2**power for power in range(14))
"""Upper bounds of etcd's fsync histogram in seconds."""
FAST, SLOW = 0.002, 0.048
"""How long the slowest hundredth of fsyncs takes on an NVMe disk, and on one that many share."""
FSYNCS = 5000


def told(world: World, name: str, since: float) -> Obj:
    """`etcd_seen` of `HostFacts`, as `playbooks/module_utils/rke2metrics.py` reads it. `since` is when the service started."""
    servers = [host for host, state in world.hosts.items() if state.get("rke2", {}).get("server")]
    slowest = SLOW if world.fault("etcd_disk_slow", name) else FAST
    changes = 40 if world.fault("etcd_leader_changes", name) else 1
    lines = [
        *(f'etcd_disk_wal_fsync_duration_seconds_bucket{{le="{bound:g}"}} {_within(bound, slowest)}' for bound in BOUNDS),
        f'etcd_disk_wal_fsync_duration_seconds_bucket{{le="+Inf"}} {FSYNCS}',
        f"etcd_server_leader_changes_seen_total {changes}",
        "etcd_server_has_leader 1",
        "etcd_server_is_learner 0",
        *(f'etcd_network_active_peers{{Local="{name}",Remote="{other}"}} 1' for other in servers if other != name),
        *(f'etcd_network_known_peers{{Local="{name}",Remote="{other}"}} 1' for other in servers),
        f"process_start_time_seconds {since:.3f}",
    ]
    return {"metrics": "\n".join(lines), "health": json.dumps({"health": "true", "reason": ""}), "read": world.now}


def _within(bound: float, slowest: float) -> int:
    """Nine tenths take a tenth of the slowest, the others as long as it."""
    return FSYNCS if bound >= slowest else FSYNCS * 9 // 10 if bound >= slowest / 10 else 0
