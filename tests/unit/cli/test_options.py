"""Options that would mean nothing, and names that can be none: refused in one sentence before anything is asked or started."""

from pathlib import Path

import pytest

from workflows.cli.main import run
from workflows.engines.argo import run_memory
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.folders import StateFolder

LOCAL = "the local engine takes no"
NAME = "'../../etc' cannot be the name of a"
SPACE = "'Up/../x' cannot be a namespace"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "single-node", "--home-kubeconfig", "/nonexistent"), f"{LOCAL} --home-kubeconfig"),
        (("run", "single-node", "--image", "x", "--argo-version", "4.1.2"), f"{LOCAL} --image, --argo-version"),
        (("run", "single-node", "--namespace", "n", "--home-context", "c"), f"{LOCAL} --home-context, --namespace"),
        (("run", "single-node", "--engine", "lcoal"), "engine 'lcoal' is unknown"),
        (("status", "--engine", "lcoal"), "engine 'lcoal' is unknown"),
        (("watch", "one", "--engine", "lcoal"), "engine 'lcoal' is unknown"),
        (("status", "one", "--engine", "local", "--namespace", "n"), f"{LOCAL} --namespace"),
        (("approve", "one", "--as", "ada", "--engine", "local", "--home-context", "c"), f"{LOCAL} --home-context"),
        (("pull", "../../etc", "--engine", "argo"), f"{NAME} run"),
        (("status", "../../etc", "--namespace", "n"), f"{NAME} run"),
        (("status", "one", "--namespace", "Up/../x"), SPACE),
        (("run", "single-node", "--engine", "argo", "--namespace", "Up/../x"), SPACE),
        (("schedule", "suspend", "../../etc"), f"{NAME} cluster"),
        (("render", "single-node", "--gitops", ".", "--image", "x", "--pipeline", "nosuch"), "leave out --image, --pipeline"),
        (("render", "single-node", "--gitops", ".", "--namespace", "n"), "leave out --namespace"),
        (("accept", "cluster.yaml", "--slurm"), "without a spec: leave out SPEC"),
        (("accept", "--slurm", "--kubeconfig", "k", "--reuse", "r"), "leave out --kubeconfig, --reuse"),
        (("accept", "--slurm", "--report", "clustermax"), "leave out --report"),
        (("accept", "--floor", "1"), "--floor: only with --slurm"),
    ],
)
def test_what_means_nothing_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path / "home"))
    assert run(list(words)) == 64
    told = capsys.readouterr()
    assert (said in told.err, told.out) == (True, ""), told.err
    assert list(tmp_path.iterdir()) == []


def test_who_does_not_know_a_run_is_told_how_one_on_argo_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an approver who types what was announced before it named the engine."""
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path / "home"))
    assert run(["approve", "one", "--as", "ada"]) == 64
    assert "is found with --engine argo [--namespace N]" in capsys.readouterr().err


def test_a_run_on_argo_is_none_of_the_local_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path))
    where = HomeAddress(kubeconfig="/nowhere", namespace="building-1")
    run_memory.write(StateFolder(tmp_path).run("one"), run_memory.RunMemory(where=where))
    assert run(["status", "one", "--engine", "local"]) == 64
    assert "run one is on Argo, in namespace building-1: leave out --engine local" in capsys.readouterr().err
