"""Parts of a drill: which hosts it takes, what a host's trial shows, and what a rebuild lost."""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.contract.host_play import HostOutcome, HostStatus
from tests.unit.factories.conftest import STARTER
from workflows.app.factories import factory_drill, production_cut
from workflows.app.factories.factory_drill import Holdings
from workflows.app.factories.reinstallation import NotReinstalled
from workflows.cli import output
from workflows.spec import SpecErrors, load_factory
from workflows.spec.starter import starter

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
HEALTHY: dict[str, Any] = {
    "reached": [],
    "remaining": [],
    "commands": {"module load gcc": ""},
    "boot": {"http://boot/gpu.ipxe": ""},
    "resolved": 4,
    "folders": {"/srv/stacks": "sha256:1"},
    "took": 2.5,
}


def outcome(facts: dict[str, Any], message: str = "", *, is_machine_cut: bool = False) -> production_cut.TrialOutcome:
    status = HostStatus.FAILED if message else HostStatus.OK
    host = HostOutcome(host="login01", status=status, facts=facts, message=message)
    return production_cut.outcome_of(host, is_cut=True, is_machine_cut=is_machine_cut)


def test_a_trial_names_what_works() -> None:
    assert outcome(HEALTHY).works == (
        "login01: cut off from the factory for 2.5 s",
        "login01: works without the factory: module load gcc",
        "login01: boots without the factory: http://boot/gpu.ipxe",
        "login01: 4 boot files answered",
    )
    assert outcome(HEALTHY).broken == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"reached": ["10.20.0.11:22"]}, "login01: reached 10.20.0.11:22 while it was cut off, so the trial proves nothing"),
        ({"remaining": ["10.20.0.11"]}, "login01: is still cut off from 10.20.0.11"),
        ({"commands": {"gcc": "ended with 127"}}, "login01: does not work without the factory: gcc: ended with 127"),
        ({"boot": {"http://boot/x": "no route"}}, "login01: does not boot without the factory: http://boot/x: no route"),
        (
            {"machine": {"failure": "after 600 s ssh://n007 does not answer", "took": 600.0}},
            "login01: the machine did not boot without the factory: after 600 s ssh://n007 does not answer",
        ),
        ({"folders": {"/srv/stacks": ""}}, "login01: there is no folder /srv/stacks"),
    ],
)
def test_a_trial_names_what_does_not_work(change: dict[str, Any], sentence: str) -> None:
    (line,) = outcome({**HEALTHY, **change}).broken
    assert line.startswith(sentence)


@pytest.mark.parametrize(
    ("is_machine_cut", "sentence", "uncompared"),
    [
        (True, "login01: a machine booted without the factory in 74 s", 0),
        (False, "login01: a machine booted in 74 s; it was not cut off itself", 1),
    ],
)
def test_a_trial_names_a_machine_that_booted(is_machine_cut: bool, sentence: str, uncompared: int) -> None:
    trial = outcome({**HEALTHY, "machine": {"failure": "", "took": 74.2}}, is_machine_cut=is_machine_cut)
    assert (trial.works[-1], trial.broken, len(trial.uncompared)) == (sentence, (), uncompared)
    assert all("may have reached the factory" in line for line in trial.uncompared)


MACHINE = "machine: {power: power-cycle n007, answers: ssh://n007, within: 20m%s}"


@pytest.mark.parametrize(("host", "power_host"), [("", "login01"), (", host: boot01", "boot01")])
def test_one_host_boots_the_machine_and_has_time_for_it(host: str, power_host: str) -> None:
    section = f"drill: {{platform: p.yaml, hosts: [login01, boot01], commands: ['true'], {MACHINE % host}}}\n"
    drill = production_cut.drill_of(load_factory(STARTER.read_text() + section))
    variables = production_cut.trial_variables(drill, ("10.20.0.11",), 30500)
    assert variables["factory_machine"] == {
        "power": "power-cycle n007",
        "user": "root",
        "seconds": 1200,
        "console": "",
        "answers": "ssh://n007",
    }
    assert (variables["factory_machine_host"], variables["factory_ports"]) == (power_host, [22, 6443, 30500])
    assert production_cut.longest_trial(drill) == 60 + 1200 + production_cut.MARGIN_SECONDS


@pytest.mark.parametrize("minutes", [1, 25, 60])
def test_the_tasks_of_a_trial_last_as_long_as_their_parts(minutes: int) -> None:
    machine = f"machine: {{power: on, answers: ssh://n007, within: {minutes}m}}, published: [/srv]"
    section = f"drill: {{platform: p.yaml, hosts: [login01], commands: ['true'], {machine}}}\n"
    drill = production_cut.drill_of(load_factory(STARTER.read_text() + section))
    (play,) = yaml.safe_load((PLAYBOOKS / "factory_cut.yml").read_text())
    (block,) = play["tasks"]
    tasks = [*block["block"], *block["always"]]
    limits = ["factory_trial_seconds", "factory_read_seconds"]
    assert [task["timeout"] for task in tasks] == [f"{{{{ {limit} }}}}" for limit in limits], "that of ansible.cfg is shorter"
    trial, read = (production_cut.trial_variables(drill, (), 30500)[limit] for limit in limits)
    assert (trial > 60 + minutes * 60, read > production_cut.READ_SECONDS) == (True, True)
    assert trial + read < production_cut.longest_trial(drill)


@pytest.mark.parametrize("facts", [{}, {**HEALTHY, "resolved": "many"}])
def test_a_host_that_does_not_say_proves_nothing(facts: dict[str, Any]) -> None:
    assert outcome(facts, "Connection timed out").broken == ("login01: the trial has no result: Connection timed out",)


def test_losses_are_named() -> None:
    before = Holdings(
        copies={"/copies": frozenset({"a", "b"})},
        published={"login01:/srv/stacks": "sha256:1", "login01:/srv/images": "sha256:2"},
        only_live=("only in the cluster: cronworkflows software/own",),
    )
    kept = Holdings(copies={"/copies": frozenset({"a", "b", "c"})}, published=before.published)
    assert list(factory_drill.losses(before, kept)) == list(before.only_live)
    emptied = Holdings(copies={"/copies": frozenset({"b"})}, published={"login01:/srv/stacks": "sha256:9"})
    assert list(factory_drill.losses(before, emptied))[:3] == [
        "1 of 2 files of /copies, first a",
        "login01:/srv/stacks is not as it was before the rebuild",
        "login01:/srv/images is not as it was before the rebuild",
    ]


@pytest.mark.parametrize(("until", "lost", "uncompared"), [("", 1, 0), ("factory_registry", 0, 1)])
def test_volumes_are_not_lost_by_a_factory_that_is_built_in_part(until: str, lost: int, uncompared: int) -> None:
    before = Holdings(copies={}, published={}, restored={"software/data (/copies/restored)": 7})
    compared = factory_drill.partly(before, until)
    assert len(list(factory_drill.losses(compared, before))) == lost
    assert len(compared.uncompared) == uncompared
    assert all("software/data" in line and until in line for line in compared.uncompared)


def test_a_drill_says_what_it_does_not_compare() -> None:
    section = "drill: {platform: p.yaml, hosts: [login01], commands: ['true']%s}\n"
    trial = [outcome({**HEALTHY, "unread": {"/srv/stacks": 3}})]
    bare = factory_drill.holdings(load_factory(STARTER.read_text() + section % ""), trial)
    assert bare.uncompared == (
        "3 files of login01:/srv/stacks but for size and time",
        "published folders: drill.published of the spec names none",
        "copies: rebuild.copies of the spec names none",
    )
    more = section % ", published: [/srv/stacks]" + "rebuild: {copies: [{what: stacks, path: /srv/none}]}\n"
    assert factory_drill.holdings(load_factory(STARTER.read_text() + more), [outcome(HEALTHY)]).uncompared == ()


class RestoringSite:
    """Clock of a site that writes `file` while somebody waits, after some looks; None: it never does."""

    def __init__(self, file: Path, looks: int | None) -> None:
        self.seconds, self._file, self._looks = 0.0, file, looks

    def now(self) -> float:
        """Return the time."""
        return self.seconds

    def pause(self, seconds: float, deadline: float) -> None:
        """Let time pass."""
        self.seconds = min(deadline, self.seconds + seconds)
        if self._looks is not None and self.seconds >= self._looks * factory_drill.LOOK_SECONDS:
            self._file.write_text("restored")


@pytest.mark.parametrize(("looks", "waited", "lost"), [(2, 30.0, 0), (None, 600.0, 1)])
def test_volumes_are_restored_once_their_file_is_written_anew(tmp_path: Path, looks: int | None, waited: float, lost: int) -> None:
    file = tmp_path / "restored"
    file.write_text("an earlier restoration")
    os.utime(file, (1, 1))
    copy = f"{{what: data, path: {tmp_path}, marker: complete, volume: software/data, restored: restored}}"
    spec = load_factory(STARTER.read_text() + f"rebuild: {{restore_timeout: 10m, copies: [{copy}]}}\n")
    before, site = factory_drill.restores(spec), RestoringSite(file, looks)
    factory_drill.await_restores(spec, before, site)
    holdings = [Holdings(copies={}, published={}, restored=restored) for restored in (before, factory_drill.restores(spec))]
    losses = list(factory_drill.losses(*holdings))
    assert (site.seconds, len(losses)) == (waited, lost)
    assert all(f"volume software/data ({file}): the file" in line for line in losses)


def raises(error: BaseException) -> Any:
    """Raise an error; it stands for a step of a drill."""
    raise error


KEPT = Holdings(copies={"/copies": frozenset("ab")}, published={}, uncompared=("published folders",))


@pytest.mark.parametrize(
    ("rebuild", "look", "end", "broken", "removed"),
    [
        (lambda: 0, lambda: KEPT, 0, [], "its rebuild lost nothing of what was compared"),
        (lambda: 65, lambda: KEPT, 65, [factory_drill.UNFINISHED], "failed: its rebuild did not end"),
        (
            lambda: raises(NotReinstalled("after 45 min")),
            None,
            NotReinstalled,
            [factory_drill.UNFINISHED, "after 45 min"],
            "not end",
        ),
        (lambda: raises(KeyboardInterrupt()), None, KeyboardInterrupt, [factory_drill.UNFINISHED, "KeyboardInterrupt"], "not end"),
        (lambda: 0, lambda: raises(OSError("no route")), OSError, [factory_drill.UNCOMPARED, "no route"], "see what was lost"),
    ],
)
def test_a_drill_leaves_one_report_however_its_rebuild_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rebuild: Any, look: Any, end: Any, broken: list[str], removed: str
) -> None:
    spec = load_factory(STARTER.read_text() + f"rebuild: {{diagnostics: {tmp_path}}}\n")
    tried = factory_drill.DrillReport(factory="f", began=1.0, ended=2.0, rebuilt=False, works=("boots",), broken=(), lost=())
    with pytest.raises(end) if isinstance(end, type) else nullcontext():
        assert factory_drill.compare(output, spec, tried, KEPT, rebuild, look) == end
    (file,) = tmp_path.iterdir()
    report = json.loads(file.read_bytes())
    assert (report["broken"], report["works"], report["ended"] > 2) == (broken, ["boots"], True)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("broken: ")] == [f"broken: {line}" for line in broken]
    assert removed in printed[-2]
    assert printed[-1] == f"report {file}"
    assert "boots" not in printed, "the trial has printed it before"


def test_a_drill_needs_its_section_and_hosts_of_the_platform(tmp_path: Path) -> None:
    with pytest.raises(production_cut.NoDrill, match="no section drill"):
        production_cut.drill_of(load_factory(STARTER))
    (tmp_path / "platform.yaml").write_text(starter())
    spec = load_factory(STARTER.read_text() + "drill: {platform: platform.yaml, hosts: [nowhere01], commands: ['true']}\n")
    with pytest.raises(production_cut.NoDrill, match=r"names nowhere01, which platform \S+ \(platform.yaml\) does not have"):
        production_cut.cut_off(spec, tmp_path)


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("{platform: p.yaml}", "drill.hosts"),
        ("{platform: p.yaml, hosts: []}", "drill.hosts"),
        ("{platform: p.yaml, hosts: [a], user: 'root; id'}", "drill.user"),
        ("{platform: p.yaml, hosts: [a], boot: [file:///etc/passwd]}", "drill.boot"),
        ("{platform: /etc/p.yaml, hosts: [a]}", "drill.platform"),
        ("{platform: p.yaml, hosts: [a], published: [/srv/stacks]}", "tries nothing"),
        ("{platform: p.yaml, hosts: [a], machine: {power: on}}", "nothing tells if the machine has booted"),
        ("{platform: p.yaml, hosts: [a], machine: {power: on, answers: 'n007:22'}}", "drill.machine.answers"),
        ("{platform: p.yaml, hosts: [a], machine: {power: on, console: x, host: b}}", "none of the hosts that are cut off"),
    ],
)
def test_wrong_drills_are_refused_by_their_path(section: str, path: str) -> None:
    with pytest.raises(SpecErrors) as refused:
        load_factory(STARTER.read_text() + f"drill: {section}\n")
    assert path in str(refused.value)
