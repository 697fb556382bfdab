"""Settle, advance, jump, restart: what the clock API promises to waiting steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rehearsal.simulator.harness import START, Make, User, conditions, hosts
from workflows.rehearsal.apiserver import serve_in_thread
from workflows.rehearsal.simulator.api.api_kinds import DAEMON_SETS, JOBS, NODES, Obj, Ref
from workflows.rehearsal.simulator.machines.simulated_fleet import SimulatedFleet
from workflows.rehearsal.simulator.simulation import build


def test_a_bring_up_reaches_ready_nodes(make: Make) -> None:
    user = make(agents=3)
    user.bring_up()
    for host in user.world.fleet:
        assert conditions(user.node(host.name))["Ready"] == "True"


def test_settling_twice_writes_nothing(make: Make) -> None:
    user = make()
    user.bring_up()
    before = user.api.revision()
    user.simulator.settle()
    user.simulator.settle()
    assert user.api.revision() == before


def _life(folder: Path) -> tuple[Obj, Obj]:
    """Run a small cluster on its own API server, and return node and conditions by pod, and conditions by node."""
    folder.mkdir()
    with serve_in_thread() as server:
        (folder / "kubeconfig").write_text(server.kubeconfig)
        user = User(build(folder / "kubeconfig", SimulatedFleet(hosts(6, 3)), start=START, seed=3), folder / "kubeconfig")
        user.bring_up()
        user.job("many", spec={"completions": 8, "parallelism": 8})
        user.simulator.advance(60)
        ran = {pod["metadata"]["name"]: (pod["spec"].get("nodeName"), pod["status"]["conditions"]) for pod in user.pods("")}
        turned = {host.name: user.node(host.name)["status"]["conditions"] for host in user.world.fleet}
        user.world.close()
        user.api.close()
    return ran, turned


def test_the_same_seed_gives_the_same_life(tmp_path: Path) -> None:
    first, second = _life(tmp_path / "a"), _life(tmp_path / "b")
    assert first[1] == second[1]
    assert {name: node for name, (node, _) in first[0].items()} == {name: node for name, (node, _) in second[0].items()}


def test_delays_depend_on_seed_and_key(make: Make) -> None:
    one, same, other = (make(seed=seed).world for seed in (7, 7, 8))
    delay = one.delay("nodes/gpu001/register", 8, 25)
    assert 8 <= delay < 25
    assert same.delay("nodes/gpu001/register", 8, 25) == delay
    assert other.delay("nodes/gpu001/register", 8, 25) != delay
    assert one.delay("nodes/gpu002/register", 8, 25) != delay


def test_without_delays_everything_is_there_at_once(make: Make) -> None:
    user = make(delay_scale=0.0)
    user.play("rke2_server")
    user.play("rke2_agent")
    assert conditions(user.node("gpu001"))["Ready"] == "True"
    assert user.world.now == START


def test_time_jumps_to_the_deadline_only_after_a_rest(make: Make) -> None:
    user = make()
    now = user.simulator.advance(5, START + 1200)
    assert now == START + 5
    calls = 0
    while now < START + 1200:
        now = user.simulator.advance(15, START + 1200)
        calls += 1
    assert now == START + 1200
    assert calls < 12


def test_time_jumps_no_further_than_the_next_event(make: Make) -> None:
    user = make()
    user.simulator.advance(300)
    seen: list[float] = []
    user.world.clock.schedule("test/late", 500, lambda: seen.append(user.world.now))
    assert user.simulator.advance(5, START + 5000) == START + 800
    assert seen == [START + 800]


def test_time_of_a_large_fleet_jumps_from_instant_to_instant(make: Make) -> None:
    user = make()
    clock, until = user.world.clock, START + 5000
    clock.quantum = 50.0
    start = -(-START // 50) * 50
    clock.jump(start)
    seen: list[float] = []
    clock.schedule("test/soon", 3, lambda: seen.append(user.world.now))
    clock.schedule("test/late", 120, lambda: seen.append(user.world.now))
    assert user.simulator.advance(2, until) == start + 50
    assert seen == [start + 50]
    assert user.simulator.advance(2, until) == start + 100  # no further than a quantum, in which a client may want to look
    assert user.simulator.advance(2) == start + 102  # no deadline: nobody waits for the next event
    assert user.simulator.advance(2, until) == start + 150
    assert seen == [start + 50, start + 150]


def test_what_somebody_writes_while_time_passes_is_seen_at_the_next_call(make: Make) -> None:
    user = make()
    user.bring_up()
    user.job("one")
    user.simulator.advance(30)
    user.job("two")
    user.world.patch(NODES, Ref("", "gpu000"), {"metadata": {"annotations": {"own": "write"}}})
    user.simulator.advance(30)
    assert conditions(user.read_job("two"))["Complete"] == "True"


def test_a_restarted_simulator_goes_on_from_api_objects_and_state(make: Make) -> None:
    user = make(agents=2)
    user.play("rke2_server")
    user.play("rke2_agent")
    user.simulator.advance(45)
    state = user.simulator.state()
    restarted = make(agents=2)
    restarted.simulator.restore(state)
    assert restarted.world.now == user.world.now
    restarted.simulator.advance(400)
    assert conditions(restarted.node("gpu001"))["Ready"] == "True"
    daemon_set = restarted.api.get(DAEMON_SETS, "rke2-canal", "kube-system")
    assert daemon_set is not None
    assert daemon_set["status"]["numberReady"] == 3


def test_a_role_that_is_off_does_nothing(make: Make) -> None:
    user = make(roles_off=frozenset({"jobs"}))
    user.job("one")
    user.simulator.advance(60)
    assert user.api.get(JOBS, "one", "default").get("status", {}).get("startTime") is None  # type: ignore[union-attr]


def test_an_unknown_role_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="no role jobz"):
        make(roles_off=frozenset({"jobz"}))
