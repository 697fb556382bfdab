"""A rehearsal in an API server that is there already: only in a new one, and only with options that can be meant."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from workflows.cli.main import run
from workflows.rehearsal import foreign_cluster
from workflows.rehearsal.apiserver.emulated_server import serve_in_thread
from workflows.rehearsal.existing_server import existing_server
from workflows.rehearsal.simulator.api.api_client import Api
from workflows.rehearsal.simulator.api.api_kinds import NAMESPACES, NODES
from workflows.rehearsal.simulator.controllers.node_objects import SIMULATED

LENT = {"labels": {foreign_cluster.LENT_LABEL: "allowed"}}
LEFT = {"annotations": {SIMULATED: "true"}}
SPEC = ("rehearse", "single-node", "--until", "rke2")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Of an emulated API server that stays when a rehearsal is over."""
    with serve_in_thread() as server:
        path = tmp_path / "kubeconfig"
        path.write_text(server.kubeconfig)
        yield path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def make(kubeconfig: Path, nodes: dict[str, dict[str, object]], spaces: dict[str, dict[str, object]]) -> None:
    api = Api.from_kubeconfig(kubeconfig)
    for kind, found in ((NODES, nodes), (NAMESPACES, spaces)):
        for name, meta in found.items():
            api.create(kind, {"metadata": {"name": name, **meta}})
    api.close()


@pytest.mark.parametrize(
    ("nodes", "spaces"),
    [({}, {}), ({"own": LENT}, {"local-path-storage": {}}), ({}, {"flux-system": LENT})],
    ids=["new", "lent by its nodes", "lent by its namespaces"],
)
def test_a_new_or_lent_api_server_may_be_played_in(
    kubeconfig: Path, nodes: dict[str, dict[str, object]], spaces: dict[str, dict[str, object]]
) -> None:
    make(kubeconfig, nodes, spaces)
    foreign_cluster.check_unused_cluster(kubeconfig)


@pytest.mark.parametrize(
    ("nodes", "spaces", "refusal", "said"),
    [
        ({"gpu001": {}, "own": LENT}, {}, foreign_cluster.ForeignCluster, "real nodes that are not lent for rehearsals: gpu001"),
        (
            {},
            {"argocd": {}, "lent": LENT},
            foreign_cluster.ForeignCluster,
            "no nodes, but namespaces that are not lent for rehearsals: argocd",
        ),
        ({"gpu001": LEFT}, {}, foreign_cluster.UsedCluster, "simulated nodes of another rehearsal: gpu001"),
        ({"gpu001": LEFT, "own": LENT}, {}, foreign_cluster.UsedCluster, "simulated nodes of another rehearsal: gpu001"),
        ({"gpu001": LEFT, "gpu002": {}}, {}, foreign_cluster.ForeignCluster, "real nodes that are not lent for rehearsals: gpu002"),
    ],
)
def test_a_cluster_in_use_is_refused(
    kubeconfig: Path,
    nodes: dict[str, dict[str, object]],
    spaces: dict[str, dict[str, object]],
    refusal: type[ValueError],
    said: str,
) -> None:
    make(kubeconfig, nodes, spaces)
    with pytest.raises(refusal) as caught:
        foreign_cluster.check_unused_cluster(kubeconfig)
    assert str(caught.value).endswith(said)


def test_what_a_rehearsal_leaves_is_said_and_keeps_the_next_one_out(
    kubeconfig: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one of the same spec: its machines would be bare again, and their nodes there."""
    assert run([*SPEC, "--kubeconfig", str(kubeconfig)]) == 0
    assert f"{kubeconfig} keeps what was simulated" in capsys.readouterr().out
    runs = sorted((home / "store/runs").iterdir())
    for spec in (SPEC, ("rehearse", "h200-16")):
        assert run([*spec, "--kubeconfig", str(kubeconfig)]) == 64
        said = capsys.readouterr()
        assert said.out == ""
        assert "another rehearsal: node1\nhint: " in said.err
        assert "empty the etcd" in said.err
    assert sorted((home / "store/runs").iterdir()) == runs


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--roles-off", "nosuch"), "--roles-off: no role nosuch: there are namespaces, "),
        (("--roles-off", ","), "--roles-off ',' names no role"),
        (("--speed", "3"), "--speed 3 needs --roles-off"),
        (("--roles-off", "kubelet", "--speed", "0"), "--speed 0 must be a number above 0"),
        (("--roles-off", "kubelet", "--speed", "-3"), "--speed -3 must be a number above 0"),
        (("--roles-off", "kubelet", "--speed", "nan"), "--speed nan must be a number above 0"),
        (("--nodes-at", "not an address"), "--nodes-at 'not an address' is neither an IP address nor a host name"),
        (("--nodes-at", "10.0.0.300"), "--nodes-at '10.0.0.300' is neither"),
        (("--nodes-at", "10.0.0.3:8080"), "--nodes-at '10.0.0.3:8080' is neither"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_before_there_is_a_run(
    options: tuple[str, ...], said: str, kubeconfig: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*SPEC, "--kubeconfig", str(kubeconfig), *options]) == 64
    assert f"error: {said}" in capsys.readouterr().err
    assert not home.exists()


@pytest.mark.parametrize("option", [("--roles-off", "kubelet"), ("--speed", "1"), ("--nodes-at", "192.0.2.7")])
def test_options_about_an_api_server_need_one(option: tuple[str, str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SPEC, *option]) == 64
    assert f"error: {option[0]} applies only to an existing API server, and none is named" in capsys.readouterr().err
    assert not home.exists()


@pytest.mark.parametrize("address", ["192.0.2.7", "fd00::7", "laptop", "laptop.example.org"])
def test_roles_speed_and_address_are_passed_on(address: str) -> None:
    made = existing_server(Path("k"), " kubelet, nodes,", 30.0, address)
    assert made is not None
    assert (made.roles_off, made.speed, made.nodes_at) == (("kubelet", "nodes"), 30.0, address)
    slow = existing_server(Path("k"), "kubelet", None, "")
    assert slow is not None
    assert slow.speed == 1.0
