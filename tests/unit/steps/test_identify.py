"""Before a host is changed, the servers say which cluster they belong to."""

from typing import Any

import pytest

from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.host_play import PlayHost, PlayRequest
from steps.contract.task import Task, Verb
from steps.runtime import target
from tests.unit.answered_plays import answered
from tests.unit.steps.conftest import host
from tests.unit.steps.test_target import ago, held_by, lease
from workflows.rehearsal.apiserver import emulated_server
from workflows.rehearsal.simulator import playbook_runs

OPEN = Task(
    stage="run",
    name="open",
    verb=Verb.OPEN,
    arguments={"plan": "sha256:p", "cluster": "c", "owner": "o", "revision": "1", "ssh": {"user": "root"}},
)
OTHER = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def bare(desk: Any, simulator: Any) -> Any:
    """Four bare machines, and no kubeconfig."""
    (desk.root / "secrets" / "kubeconfig").unlink()
    return simulator.world


def has_rke2(world: Any) -> None:
    """The server runs RKE2, as an earlier run left it."""
    playbook_runs.run_play(world, PlayRequest(playbook="rke2_server", hosts=(PlayHost(name="sv1", address="sv1"),)))


def is_about(desk: Any, uid: str) -> None:
    """The run knows its cluster from before."""
    desk.store.write(run_records.target_key("r1"), canonical(run_records.TargetIdentity(uid=uid)))


def test_bare_servers_are_noted(desk: Any, bare: Any) -> None:
    done = desk.run(OPEN)
    assert done.returncode == 0, done.stderr
    assert desk.record("run", "open").observation["identity"] == {"uid": "", "servers": {"sv1": "bare"}}
    assert run_records.target_uid("r1", desk.store.read) == ""


def test_a_cluster_that_nobody_named_is_noted_and_the_run_is_about_it_from_now_on(desk: Any, bare: Any, api: Any) -> None:
    has_rke2(bare)
    assert desk.run(OPEN).returncode == 0
    seen = desk.record("run", "open").observation["identity"]
    assert seen == {"uid": api.uid, "servers": {"sv1": f"running rke2 {api.uid}"}}
    assert run_records.target_uid("r1", desk.store.read) == api.uid
    assert desk.run(OPEN).returncode == 0, "a second attempt finds the same"


def test_servers_of_another_cluster_are_refused_before_anything_is_changed(desk: Any, bare: Any, api: Any) -> None:
    has_rke2(bare)
    is_about(desk, OTHER)
    done = desk.run(OPEN)
    assert done.returncode == 65
    assert f"server sv1 belongs to cluster {api.uid}, this run is about {OTHER}" in done.stderr
    assert api.writes == []


def test_bare_servers_are_not_the_cluster_that_the_run_is_about(desk: Any, bare: Any) -> None:
    is_about(desk, OTHER)
    done = desk.run(OPEN)
    assert done.returncode == 65
    assert f"about cluster {OTHER}, but no cluster runs on its servers" in done.stderr
    (desk.root / "secrets" / "kubeconfig").write_text("{}")
    assert desk.run(OPEN).returncode == 0, "a kubeconfig proves it later, before the first play"


def test_a_server_that_does_not_answer_proves_nothing(desk: Any, bare: Any) -> None:
    bare.set_faults([("hosts_unreachable", ("sv1",))])
    assert desk.run(OPEN).returncode == 0
    assert desk.record("run", "open").observation["identity"]["servers"]["sv1"].startswith("unreadable")
    is_about(desk, OTHER)
    done = desk.run(OPEN)
    assert done.returncode == 75
    assert "no server says which it belongs to; sv1: unreadable" in done.stderr


def test_what_a_server_said_before_the_play_was_cut_off_is_heard(desk: Any, bare: Any) -> None:
    desk.hosts([host("sv1", role="server"), host("sv2", role="server")])
    is_about(desk, OTHER)
    ours = "33333333-3333-4333-8333-333333333333"
    said = {"observation": {"state": "running", "kind": "rke2", "uid": ours}}
    events = [("runner_on_start", {"host": "sv1", "task": "t"}), ("runner_on_ok", {"host": "sv2", "task": "t", "res": said})]
    with answered(lambda _: events) as (url, _):
        desk.environment |= {SIMULATOR: url, SIMULATOR_TOKEN: "t"}
        done = desk.run(OPEN)

    assert done.returncode == 65
    assert f"server sv2 belongs to cluster {ours}, this run is about {OTHER}" in done.stderr


def test_a_cluster_that_stands_is_held_from_the_opening_to_the_end(desk: Any, bare: Any, api: Any) -> None:
    has_rke2(bare)
    held_by(api, "a-dead-run", ago(7200))
    assert desk.run(OPEN).returncode == 0
    assert lease(api)["holderIdentity"] == "r1"
    kept = desk.store.path(f"runs/r1/secrets/{target.OPENING}")
    token = kept.read_text().partition("token: ")[2].split()[0]
    assert kept.stat().st_mode & 0o777 == 0o600
    stored = (path for path in (desk.root / "store").rglob("*") if path.is_file())
    assert [path for path in stored if token.encode() in path.read_bytes()] == [kept]
    assert desk.run(Task(stage="run", name="seal", verb=Verb.SEAL)).returncode == 0
    assert lease(api)["holderIdentity"] == ""


def test_a_cluster_that_another_run_holds_is_refused_before_a_play(desk: Any, bare: Any, api: Any) -> None:
    has_rke2(bare)
    held_by(api, "somebody-else", ago(60))
    done = desk.run(OPEN)
    assert done.returncode == 65
    assert "run somebody-else holds this cluster, renewed" in done.stderr
    assert api.writes == []


@pytest.mark.parametrize(
    ("renewed", "code", "said"),
    [
        (60, 65, "run somebody-else holds this cluster"),
        (7200, 0, "this cluster is not held against other runs until its API answers here: GET /api/v1/namespaces/kube-system"),
    ],
    ids=["held", "ran out"],
)
def test_where_the_api_does_not_answer_here_a_server_says_who_holds_it(
    desk: Any, bare: Any, api: Any, renewed: int, code: int, said: str
) -> None:
    has_rke2(bare)
    held_by(api, "somebody-else", ago(renewed))
    bare.kubeconfig = emulated_server.kubeconfig_text("http://127.0.0.1:9", "secret-token")
    done = desk.run(OPEN)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert not desk.store.path(f"runs/r1/secrets/{target.OPENING}").exists()


@pytest.mark.parametrize(
    ("restores", "renewed", "code"),
    [(True, 600, 0), (False, 600, 65), (True, -5, 65)],
    ids=["of before", "no rollback", "taken since"],
)
def test_the_lease_that_comes_back_with_etcd_from_before_is_history(
    desk: Any, bare: Any, api: Any, restores: bool, renewed: int, code: int
) -> None:
    has_rke2(bare)
    assert desk.run(OPEN).returncode == 0
    came_back = {"holderIdentity": "the-upgrade", "renewTime": ago(renewed), "leaseDurationSeconds": 30_000}
    assert api.user.patch(target.LEASE, {"spec": came_back}).status == 200
    told = {"playbook": "rke2_server_rollback", "ssh": {"user": "root"}, "gate": "rke2/servers", "select": "server"}
    told |= {"kubeconfig_from": "kubeconfig", "may_be_down": True, "restores": restores}
    wanted = {"version": "v1.35.7+rke2r1", "service": "rke2-server"}
    done = desk.run(Task(stage="rke2", name="servers", verb=Verb.PLAY, arguments=told, expectations=wanted))
    assert done.returncode == code, done.stderr
    assert lease(api)["holderIdentity"] == ("the-upgrade" if code else "r1")
