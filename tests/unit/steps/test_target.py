"""The target is recognized before the first write, and held by one run at a time."""

import datetime
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import yaml

from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.host_play import HostOutcome, HostStatus, PlayResult, PlayStatus
from steps.contract.run_records import ServerIdentity, ServerState
from steps.contract.task import Task, Verb
from steps.errors import Refused, Unreachable
from steps.runtime import identify, target
from steps.runtime.play_requests import Ssh
from steps.verbs import apply, play, seal

TASK = Task(
    stage="gang",
    name="apply",
    verb=Verb.APPLY,
    arguments={"objects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}}]},
)
HOUR = 3600.0


def held_by(api: Any, holder: str, renewed: str | None, seconds: int | None = 3600) -> None:
    """Put a lease of somebody into the target."""
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds}
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "bringup", "namespace": "kube-system"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    assert api.user.post(target.LEASE.rsplit("/", 1)[0], body).status == 201


def lease(api: Any) -> dict[str, Any]:
    found = api.user.get(target.LEASE)
    return dict(found.body["spec"]) if found.status == 200 else {}


def ago(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(time.time() - seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def header(desk: Any, run: str = "r1", **fields: Any) -> None:
    told = {"run": run, "engine": "local", "plan": "p", "cluster": "c", "owner": "o", "revision": "1", **fields}
    desk.store.write(run_records.header_key(run), canonical(run_records.Header(**told)))


def test_tasks_of_one_run_that_claim_side_by_side_all_hold_the_target(desk: Any, api: Any) -> None:
    def claim(barrier: threading.Barrier) -> None:
        context = desk.context(TASK)
        target.cluster_uid(context.kube)  # its connection is up when all begin
        barrier.wait()
        target.claim(context)

    with ThreadPoolExecutor(10) as pool:
        for _ in range(4):
            assert list(pool.map(claim, [threading.Barrier(10)] * 10)) == [None] * 10
            old = {"spec": {"renewTime": ago(HOUR)}}  # so that all want to renew it in the next round
            assert api.user.patch(target.LEASE, old).status == 200
    assert lease(api)["holderIdentity"] == "r1"


def test_a_young_lease_is_not_written_again_and_an_old_one_is(desk: Any, api: Any) -> None:
    header(desk, lease_seconds=90_000)
    for _ in range(3):
        target.claim(desk.context(TASK))
    assert [line.split()[0] for line in api.writes] == ["POST"]
    assert lease(api)["leaseDurationSeconds"] == 90_000
    api.user.patch(target.LEASE, {"spec": {"renewTime": ago(HOUR)}})
    target.claim(desk.context(TASK))
    assert [line.split()[0] for line in api.writes] == ["POST", "PATCH"]


def test_another_cluster_than_the_spec_says_gets_no_write_at_all(desk: Any, api: Any) -> None:
    header(desk, target_uid="11111111-1111-4111-8111-111111111111")
    with pytest.raises(Refused, match=f"leads to cluster {api.uid}, this run is about 11111111"):
        apply.run(desk.context(TASK))
    assert api.writes == []
    assert lease(api) == {}


def test_another_cluster_than_the_run_first_found_gets_no_write_at_all(desk: Any, api: Any) -> None:
    desk.store.write(
        run_records.target_key("r1"), canonical(run_records.TargetIdentity(uid="22222222-2222-4222-8222-222222222222"))
    )
    with pytest.raises(Refused, match="this run is about 22222222"):
        apply.run(desk.context(TASK))
    assert api.writes == []


@pytest.mark.parametrize(("age", "seconds"), [(60, 3600), (None, 3600), (9 * HOUR, None)])
def test_a_live_lease_of_another_run_keeps_out_and_says_whose_it_is(
    desk: Any, api: Any, age: float | None, seconds: int | None
) -> None:
    held_by(api, "somebody-else", None if age is None else ago(age), seconds)
    before = lease(api)
    with pytest.raises(Refused, match="run somebody-else holds this cluster"):
        apply.run(desk.context(TASK))
    assert api.writes == []
    assert lease(api) == before


@pytest.mark.parametrize("renewed", ["2024-05-06T07:08:09.123456Z", "2024-05-06T07:08:09Z"])
def test_a_lease_that_ran_out_is_taken_with_and_without_fractions(desk: Any, api: Any, renewed: str) -> None:
    held_by(api, "somebody-else", renewed)
    assert apply.run(desk.context(TASK)) == 0
    assert lease(api)["holderIdentity"] == "r1"


def test_a_sealed_run_frees_the_target_for_the_next(desk: Any, api: Any) -> None:
    header(desk)
    target.claim(desk.context(TASK))
    with pytest.raises(Refused, match="run r1 holds this cluster"):
        target.claim(desk.context(TASK, run="r2"))
    assert seal.run(desk.context(Task(stage="run", name="seal", verb=Verb.SEAL))) == 0
    target.claim(desk.context(TASK, run="r2"))
    assert lease(api)["holderIdentity"] == "r2"


NOWHERE = "http://127.0.0.1:1"
PLAY = Task(stage="rke2", name="servers", verb=Verb.PLAY)


def brought(api: Any) -> tuple[PlayResult, str]:
    """The result of a play that founded a cluster, whose kubeconfig leads where nobody answers; and where its API server does."""
    document = yaml.safe_load(api.direct)
    cluster = document["clusters"][0]["cluster"]
    at, cluster["server"] = cluster["server"], NOWHERE
    facts = {"kubeconfig": yaml.safe_dump(document), "state": "active"}
    hosts = (HostOutcome(host="sv1", status=HostStatus.OK, facts=facts),)
    return PlayResult(playbook="rke2_server", status=PlayStatus.OK, hosts=hosts, transport="ssh", started=1.0, finished=2.0), at


def wanted(**words: Any) -> play.Arguments:
    return play.Arguments(playbook="rke2_server", ssh=Ssh(), gate="rke2/servers", kubeconfig_from="kubeconfig", **words)


def test_a_new_cluster_is_reached_where_the_spec_says(desk: Any, api: Any) -> None:
    header(desk)
    result, at = brought(api)
    context = desk.context(PLAY)
    kept = play.keep_secrets(context, wanted(server=at, server_name="10.10.0.10"), result)
    assert kept.hosts[0].facts == {"state": "active"}
    (cluster,) = yaml.safe_load(context.kubeconfig().read_text())["clusters"]
    assert (cluster["cluster"]["server"], cluster["cluster"]["tls-server-name"]) == (at, "10.10.0.10")
    assert lease(api)["holderIdentity"] == "r1"


def test_a_standing_cluster_is_held_by_the_way_that_the_spec_gives(desk: Any, api: Any) -> None:
    header(desk)
    (desk.root / "secrets" / "kubeconfig").unlink()
    result, at = brought(api)
    server = ServerIdentity(state=ServerState.RUNNING, uid=api.uid, kubeconfig=result.hosts[0].facts["kubeconfig"])
    context = desk.context(PLAY)
    identify.reserve(context, [server], identify.Way("10.10.0.10", at, "10.10.0.10"))
    assert lease(api)["holderIdentity"] == "r1"
    (cluster,) = yaml.safe_load((context.run_secrets / target.OPENING).read_text())["clusters"]
    assert (cluster["cluster"]["server"], cluster["cluster"]["tls-server-name"]) == (at, "10.10.0.10")


def test_a_new_cluster_that_cannot_be_reached_says_how_another_way_is_given(desk: Any, api: Any) -> None:
    header(desk)
    result, _ = brought(api)
    with pytest.raises(Unreachable) as caught:
        play.keep_secrets(desk.context(PLAY), wanted(), result)
    assert "target.server in the spec says another way" in caught.value.hint
    assert not (desk.context(PLAY).run_secrets / "kubeconfig").exists()


def test_a_simulated_cluster_has_no_way_but_its_own(desk: Any, api: Any, simulator: Any) -> None:
    header(desk)
    result, at = brought(api)
    (outcome,) = result.hosts
    direct = msgspec.structs.replace(outcome, facts={"kubeconfig": api.direct})
    context = desk.context(PLAY)
    away = wanted(server=NOWHERE, server_name="10.10.0.10")
    play.keep_secrets(context, away, msgspec.structs.replace(result, hosts=(direct,)))
    assert yaml.safe_load(context.kubeconfig().read_text())["clusters"][0]["cluster"]["server"] == at
