"""A whole bring-up delivered by Argo CD, rehearsed: Git has what was rendered, and later stages hold on to what was delivered."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.clients.git import repositories
from steps.clients.git.git_access import GitAccess, local_repository
from steps.clients.store import Store
from steps.contract import delivery
from tests.unit.rehearsal.small import SMALL
from workflows import bringup
from workflows.engines.folders import RunFolder, StateFolder
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import earlier_stages
from workflows.rehearsal.rehearsal_run import RehearsalOptions, rehearse
from workflows.render.bundle import render
from workflows.spec import ClusterSpec, load

URL = "https://git.example.org/platform/apps.git"


def spec_of(**argo_cd: Any) -> ClusterSpec:
    settings = {"repo": URL, "revision": "v1", "project": "platform", **argo_cd}
    return load(yaml.safe_dump(SMALL | {"delivery": {"mode": "argo_cd", "argo_cd": settings}}))


def rehearsed(
    spec: ClusterSpec, folder: Path, only: list[str] | None = None, faults: tuple[str, ...] = ()
) -> tuple[RunFolder, int]:
    plan = compile_plan(spec, only=only) if only else compile_plan(spec)
    run = StateFolder(folder).run("r1")
    before = earlier_stages.plan_of_earlier_stages(spec, plan)
    return run, rehearse(run, plan, render(plan, bringup.build), RehearsalOptions(faults=faults), [], before).exit_code


@pytest.mark.parametrize("install", [True, pytest.param(False, marks=pytest.mark.long)])  # with credentials, which are stand-ins
def test_every_stage_passes_and_git_has_the_tree(tmp_path: Path, install: bool) -> None:
    spec = spec_of(install=install, credentials={"env": "GIT_TOKEN"}, ca={"env": "GIT_CA"})
    run, code = rehearsed(spec, tmp_path)
    assert code == 0
    plan = compile_plan(spec)
    made = delivery.decode((run.stored / delivery.RECORD).read_bytes())
    assert (made.repo, made.revision, made.tree) == (URL, "v1", delivery.tree_digest(plan.tree))
    bare = local_repository(run.home.root / "clusters" / run.name / "git", URL)
    with repositories.open_repository(GitAccess(url=URL, local=bare)) as repo:
        assert repo.resolve("v1") == made.commit
        assert repo.read(made.commit) == dict(plan.tree)
    for stage in plan.stages:
        for record in Store(run.home.store).records(run.name, stage.id, "judge"):
            assert record.verdict is not None
            assert record.verdict.is_pass, (stage.id, record.verdict.reason)


@pytest.mark.long
def test_one_stage_alone_finds_what_was_delivered(tmp_path: Path) -> None:
    _, code = rehearsed(spec_of(), tmp_path, ["gang"])
    assert code == 0


def test_a_tag_that_moves_later_is_seen_by_later_stages(tmp_path: Path) -> None:
    run, code = rehearsed(spec_of(), tmp_path, ["gpu_operator"], ("tag_moved",))
    assert code == 65
    record = Store(run.home.store).records(run.name, "gpu_operator", "control")[0]
    assert record.verdict is not None
    assert "bringup-gpu-operator was compared with" in record.verdict.reason
