"""Parts of a rebuild: builds that run, what is saved before a factory is removed, and the site's reinstallation."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steps.clients.kube.client import Kube
from steps.contract.host_play import HostOutcome, HostStatus
from tests.unit.factories.conftest import STARTER
from workflows.app.factories import (
    build_drain,
    factory_pipeline,
    factory_rebuild,
    rebuild_refusals,
    reinstallation,
    unplanned_objects,
)
from workflows.app.factories.factory_rebuild import RebuildRefused
from workflows.app.factories.rebuild_refusals import Overrides, Refusal
from workflows.app.factories.reinstallation import NotReinstalled
from workflows.app.factories.unplanned_contents import UnplannedContents
from workflows.cli import output
from workflows.rehearsal.apiserver.emulated_server import serve_in_thread
from workflows.rehearsal.simulator.api.api_kinds import definitions
from workflows.spec import FactorySpec, load_factory

API = "argoproj.io/v1alpha1"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Path, Kube]]:
    """A live factory's kubeconfig and client: an emulated server with Argo's kinds and the project `software`."""
    with serve_in_thread() as server:
        path = tmp_path / "kubeconfig"
        path.write_text(server.kubeconfig)
        kube = Kube.from_file(path)
        for definition in definitions("argoproj.io", "Workflow", "WorkflowTemplate", "CronWorkflow"):
            kube.create(definition)
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "software"}})
        yield path, kube


def spec_with(text: str) -> FactorySpec:
    return load_factory(STARTER.read_text() + text)


def test_a_build_that_runs_is_a_reason_unless_forced(live: tuple[Path, Kube]) -> None:
    path, kube = live
    for name, phase in (("done", "Succeeded"), ("busy", "Running"), ("new", "")):
        meta = {"name": name, "namespace": "software"}
        kube.create({"apiVersion": API, "kind": "Workflow", "metadata": meta, "spec": {}, "status": {"phase": phase}})
    (reason,) = rebuild_refusals.running_builds(path)
    assert reason.problem == "2 builds run: software/busy, software/new"
    assert reason.forcible


def test_a_factory_that_does_not_answer_is_a_reason_too(live: tuple[Path, Kube], tmp_path: Path) -> None:
    with serve_in_thread() as server:
        path = tmp_path / "gone"
        path.write_text(server.kubeconfig)
    (reason,) = rebuild_refusals.running_builds(path)
    assert "does not say if builds run" in reason.problem
    assert reason.forcible


def test_what_the_spec_lacks_is_listed_and_saved(live: tuple[Path, Kube], tmp_path: Path) -> None:
    path, kube = live
    meta = {"name": "own", "namespace": "software"}
    kube.create({"apiVersion": API, "kind": "WorkflowTemplate", "metadata": meta, "spec": {}})
    kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": "canary"}})
    spec = spec_with(f"rebuild: {{diagnostics: {tmp_path}/saved}}\n")
    prepared = factory_rebuild.PreparedRebuild(path=STARTER, spec=spec, kubeconfig=path)
    plan = factory_pipeline.plan_of(STARTER, spec)
    contents = UnplannedContents(objects=unplanned_objects.compare(spec, plan, kube).objects, uncompared=("images: no answer",))
    lines = factory_rebuild.save_diagnostics(prepared, "20261129-020000", contents)
    folder = tmp_path / "saved/build-factory-20261129-020000"
    assert lines == [
        f"diagnostics {folder}",
        "only in the cluster: secrets software/own; it is not saved, and not built again",
        "only in the cluster: workflowtemplates software/own; it is saved, and not built again",
        "not compared: images: no answer",
    ]
    assert {file.stem for file in folder.iterdir()} == {*factory_rebuild.SAVED, factory_rebuild.UNPLANNED}
    assert [item["metadata"]["name"] for item in json.loads((folder / "only-in-cluster.json").read_text())] == ["own"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not any("canary" in file.read_text() for file in folder.iterdir())


class Machines:
    """The factory's four machines as a sequence of looks at them, and a clock by which the last one lasts.

    A look maps a machine to `BOOT` or `BOOT/SYSTEM`, with `+` while it has data of RKE2 and `~` while its root lies in memory; a
    machine without any does not answer.
    """

    def __init__(self, *looks: dict[str, str]) -> None:
        self.looks, self.seconds = list(looks), 0.0

    def look(self) -> tuple[HostOutcome, ...]:
        """Return the next look, with all other machines on a new system."""
        states = {**dict.fromkeys(NAMES, "new"), **(self.looks.pop(0) if len(self.looks) > 1 else self.looks[0])}
        return tuple(self._outcome(name, state) for name, state in states.items())

    def now(self) -> float:
        """Return the time."""
        return self.seconds

    def pause(self, seconds: float, deadline: float) -> None:
        """Let time pass."""
        self.seconds = min(deadline, self.seconds + seconds)

    def _outcome(self, name: str, state: str) -> HostOutcome:
        boot, _, system = state.strip("+~").partition("/")
        installation = {"boot": boot, "system": (system or boot).strip(), "volatile": "~" in state}
        facts = {"slurmd": False, "users": {}, "rke2": "+" in state, **installation} if state else {}
        status = HostStatus.OK if state else HostStatus.UNREACHABLE
        return HostOutcome(host=name, status=status, facts=facts, message="" if state else "Connection refused")


NAMES = tuple(f"factory0{number}" for number in range(1, 5))
BEFORE = dict.fromkeys(NAMES, "old+")


def test_machines_are_reinstalled_by_the_sites_command(tmp_path: Path) -> None:
    script = tmp_path / "reinstall"
    script.write_text(f'#!/bin/sh\ntouch "{tmp_path}/$1-$2"\n[ "$1" != factory03 ] || {{ echo no power >&2; exit 3; }}\n')
    script.chmod(0o755)
    spec = spec_with(f'rebuild: {{reinstall: [{script}, "{{host}}", "{{address}}"]}}\n')
    machines = Machines(BEFORE)
    with pytest.raises(NotReinstalled, match=r"^factory03: .* ended with 3: no power$"):
        reinstallation.reinstall(spec, machines.look, machines)
    done = sorted(path.name for path in tmp_path.glob("factory*"))
    assert done == [f"factory0{number}-10.20.0.1{number}" for number in range(1, 5)]


def test_a_command_that_only_asks_for_power_is_waited_for() -> None:
    spec = spec_with("rebuild: {reinstall: ['true'], reinstall_timeout: 10m}\n")
    silent = {"factory02": ""}
    machines = Machines(BEFORE, BEFORE, dict.fromkeys(NAMES, ""), {"factory01": "new+"}, silent, {})
    reinstallation.reinstall(spec, machines.look, machines)
    assert machines.seconds == 4 * reinstallation.LOOK_SECONDS
    # machines that boot over the network always run from memory
    machines = Machines(dict.fromkeys(NAMES, "old~"), dict.fromkeys(NAMES, "new~"))
    reinstallation.reinstall(spec, machines.look, machines)
    # one that did not answer before may have any boot id, and no data of RKE2
    machines = Machines({**BEFORE, "factory02": ""}, {})
    reinstallation.reinstall(spec, machines.look, machines)
    assert machines.seconds == 0


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ({"factory04": "old+"}, "factory04 runs the system that it ran before"),
        ({"factory04": "old"}, "factory04 runs the system that it ran before"),
        ({"factory04": "+"}, "factory04 hides its boot id"),
        ({"factory04": "new/old"}, "factory04 has booted the system that it ran before"),
        ({"factory04": "new/ "}, "factory04 has no /etc/machine-id"),
        ({"factory04": "new~"}, "factory04 runs from memory, as an installer does"),
        ({"factory04": "new+"}, "factory04 has booted, and has the data of RKE2"),
        ({"factory04": ""}, "factory04 does not answer: Connection refused"),
    ],
)
def test_nothing_is_built_on_a_machine_with_its_old_system(last: dict[str, str], why: str) -> None:
    spec = spec_with("rebuild: {reinstall: ['true'], reinstall_timeout: 10m}\n")
    machines = Machines(BEFORE, last)
    with pytest.raises(NotReinstalled, match=f"^after 10 min {why}"):
        reinstallation.reinstall(spec, machines.look, machines)
    assert machines.seconds == 600


def scheduled(kube: Kube, name: str, **spec: bool) -> None:
    meta = {"name": name, "namespace": "software"}
    kube.create({"apiVersion": API, "kind": "CronWorkflow", "metadata": meta, "spec": {"schedules": ["0 2 * * *"], **spec}})


def suspended(kube: Kube) -> dict[str, bool]:
    """Return name → whether it is suspended of each CronWorkflow."""
    objects = kube.list("/apis/argoproj.io/v1alpha1/cronworkflows", dict[str, Any]) or ()
    return {item["metadata"]["name"]: item["spec"].get("suspend", False) for item in objects}


def test_a_drain_waits_for_builds_while_schedules_start_none(live: tuple[Path, Kube]) -> None:
    path, kube = live
    scheduled(kube, "nightly")
    meta = {"name": "busy", "namespace": "software"}
    kube.create({"apiVersion": API, "kind": "Workflow", "metadata": meta, "spec": {}, "status": {"phase": "Running"}})
    lines: list[str] = []

    def pause(_: float) -> None:
        assert suspended(kube) == {"nightly": True}
        kube.merge("/apis/argoproj.io/v1alpha1/namespaces/software/workflows/busy", {"status": {"phase": "Succeeded"}})

    assert build_drain.drain(path, 60, lines.append, pause) == ()
    assert lines == ["draining: 1 build run, first software/busy"]
    assert suspended(kube) == {"nightly": True}, "the factory is removed next"


def test_schedules_act_again_if_builds_outlast_the_drain(live: tuple[Path, Kube]) -> None:
    path, kube = live
    scheduled(kube, "nightly")
    scheduled(kube, "off", suspend=True)
    meta = {"name": "busy", "namespace": "software"}
    kube.create({"apiVersion": API, "kind": "Workflow", "metadata": meta, "spec": {}})
    assert build_drain.drain(path, 0, lambda _: None) == ("software/busy",)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_drain.drain(path, 60, lambda _: None, interrupt)
    assert suspended(kube) == {"nightly": False, "off": True}


LATE = {
    "claim": {"spec": {"volumeName": "v", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    "volume": {"spec": {"hostPath": {"path": "/v"}, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}},
}


@pytest.mark.parametrize("drain", ["{drain: 1m}", "{}"])
def test_volumes_are_judged_again_after_the_drain(live: tuple[Path, Kube], drain: str) -> None:
    path, kube = live
    scheduled(kube, "nightly")
    prepared = factory_rebuild.PreparedRebuild(path=STARTER, spec=spec_with(f"rebuild: {drain}\n"), kubeconfig=path)
    # a build has claimed it since the first look
    kube.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, **LATE["volume"]})
    meta = {"name": "data", "namespace": "software"}
    kube.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, **LATE["claim"]})
    with pytest.raises(RebuildRefused, match=r"1 volume .* software/data .* add --lose-volumes"):
        factory_rebuild.drain(output, prepared)
    assert suspended(kube) == {"nightly": False}, "the factory stays"
    factory_rebuild.drain(output, replace(prepared, overrides=Overrides(lose_volumes=True)))
    assert suspended(kube) == {"nightly": "drain" in drain}


def test_every_reason_that_is_overridden_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    builds = Refusal(problem="2 builds run", fix="wait", forcible=True)
    silent = Refusal(problem="factory03 does not say", fix="repair it", forcible=True)
    volumes = Refusal(problem="1 volume", fix="add --lose-volumes", forcible=True, loses_bytes=True)
    forced = factory_rebuild.PreparedRebuild(
        path=STARTER, spec=spec_with(""), kubeconfig=None, overrides=Overrides(reason="broken")
    )
    with pytest.raises(RebuildRefused, match=r"changed:\n  1 volume: add --lose-volumes$"):
        factory_rebuild.require_overridden(output, forced, [builds, silent, volumes])
    factory_rebuild.require_overridden(output, forced, [builds, silent])
    assert capsys.readouterr().out.splitlines() == ["overridden: 2 builds run", "overridden: factory03 does not say"]
