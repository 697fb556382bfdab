"""Beside real controllers: how fast time runs, signs of life of nodes, and what is left to a real endpoint controller."""

from __future__ import annotations

from tests.unit.rehearsal.simulator.harness import Make, User
from workflows.rehearsal.simulator.api.api_client import decode_object
from workflows.rehearsal.simulator.api.api_kinds import EVENTS, LEASES, NAMESPACES, NODES, PODS, Ref
from workflows.rehearsal.simulator.controllers.node_objects import Heartbeats
from workflows.rehearsal.simulator.stages.base_services import CERT_MANAGER, SLICES, VALIDATING, WEBHOOK
from workflows.rehearsal.simulator.virtual_clock import LONGEST, REST, UNREST, ClockPace, parse_stamp

SPEED, TICK = 30.0, 0.25


def test_time_slows_down_while_others_write() -> None:
    pace, quiet = ClockPace(SPEED, patient=True), int(REST / TICK)
    assert pace.seconds(TICK, others=1) == TICK * SPEED * UNREST
    passed = [pace.seconds(TICK, others=1) for _ in range(quiet)]
    assert passed == [TICK * SPEED * UNREST] * (quiet - 1) + [TICK * SPEED]
    assert pace.seconds(TICK, others=2) == TICK * SPEED * UNREST


def test_a_late_step_does_not_leap_and_time_never_falls_behind_the_wall() -> None:
    pace = ClockPace(SPEED, patient=True)
    for _ in range(4):
        pace.seconds(TICK, others=0)
    assert pace.seconds(3.0, others=0) == LONGEST * SPEED
    assert pace.seconds(60.0, others=0) == 60.0
    assert ClockPace(1.0, patient=True).seconds(3.0, others=7) == 3.0


def test_only_changes_of_what_is_simulated_slow_time_down(make: Make) -> None:
    """The leaders of a usual control plane renew their leases every two seconds: time would never run at its speed."""
    user, found = make(), list[int]()

    def looked() -> int:
        found.append(user.simulator.others)
        user.simulator.settle()
        return user.simulator.others - found[-1]

    looked()
    assert looked() == 0
    user.api.create(LEASES, {"metadata": {"name": "kube-scheduler", "namespace": "kube-system"}, "spec": {"leaseTransitions": 1}})
    assert looked() == 0
    user.api.merge(LEASES, Ref("kube-system", "kube-scheduler"), {"spec": {"leaseTransitions": 2}})
    assert looked() == 0
    user.api.create(EVENTS, {"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "Node", "name": "n"}})
    assert looked() == 0, "nobody simulates events"
    user.api.create(
        PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    assert looked() == 1
    assert looked() == 0, "the scheduler that bound it is simulated"
    user.api.delete(PODS, Ref("default", "p"))
    assert looked() == 1


def test_without_real_controllers_time_follows_the_wall() -> None:
    pace = ClockPace(SPEED, patient=False)
    assert [pace.seconds(2.0, others=number) for number in range(3)] == [60.0] * 3


def test_leases_beat_in_wall_time_and_go_with_their_nodes(make: Make) -> None:
    user = make(agents=2)
    user.world.lease_ahead = 0.0
    user.bring_up()
    before = leases(user)
    assert set(before) == {"cp00", "gpu000", "gpu001"}
    beats = Heartbeats(10.0)
    user.simulator.advance(30)
    for _ in range(39):
        beats.renew_leases(user.world, TICK)
    assert leases(user) == before, "not due yet"
    beats.renew_leases(user.world, TICK)
    now = user.world.now
    assert all(abs(renewed - now) < 0.001 for renewed in leases(user).values())
    highest = leases(user)["gpu000"]
    user.world.clock.restart(now - 1000)
    beats.renew_leases(user.world, 10.0)
    assert leases(user)["gpu000"] > highest, "a node controller takes only a later renewal for a sign of life"
    user.api.delete(NODES, Ref("", "gpu001"))
    user.simulator.settle()
    assert "gpu001" not in leases(user)


def test_a_real_endpoint_controller_leaves_the_simulated_slice_alone(make: Make) -> None:
    """A real controller deletes slices that name it as manager and are not its own, so the simulated slice names another one."""
    user = make()
    user.bring_up()
    user.api.create(NAMESPACES, {"metadata": {"name": CERT_MANAGER}})
    config = {"service": {"name": WEBHOOK, "namespace": CERT_MANAGER}}
    hook = {"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": config}
    user.api.create(VALIDATING, {"metadata": {"name": WEBHOOK}, "webhooks": [hook | {"failurePolicy": "Ignore"}]})
    user.simulator.look_again()
    user.simulator.settle()
    (found,) = [decode_object(raw)["metadata"]["labels"] for raw in user.api.list(SLICES, CERT_MANAGER) or ()]
    assert found["endpointslice.kubernetes.io/managed-by"] != "endpointslice-controller.k8s.io"


def leases(user: User) -> dict[str, float]:
    """When each node's lease was renewed."""
    raws = user.api.list(LEASES, "kube-node-lease") or ()
    return {one["metadata"]["name"]: parse_stamp(one["spec"]["renewTime"]) for one in map(decode_object, raws)}
