"""Services through a stand-in for systemd: how often it is asked, what it reads before it starts, and who keeps the clock."""

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import convergence, profile_files, systemd_services

from tests.unit.playbooks.machine import Machine

TIME = ["chrony.service", "chronyd.service", "systemd-timesyncd.service"]


class Systemd:
    """A stand-in for systemd: units by name, each active or not, which it knows as their files were when it last read them."""

    def __init__(self, root: Path, *active: str, installed: tuple[str, ...] = (), aliases: dict[str, str] | None = None) -> None:
        (root / "run/systemd/system").mkdir(parents=True)
        self.root = root
        self.state = dict.fromkeys(installed, False) | dict.fromkeys(active, True)
        self.aliases = aliases or {}
        self.stale = False
        self.disabled: set[str] = set()
        self.refused = ""
        self.unmet = ""
        self.limit, self.written = "8388608", "8388608"
        self.machine = Machine({"systemctl": self.answer}, root=root)

    def answer(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        verb, *words = command[1:]
        names = [self.aliases.get(word, word) for word in words if not word.startswith("-")]
        if verb == "show" and not names:
            return 0, f"DefaultLimitMEMLOCK={self.limit}\n", ""
        if verb == "show":
            return 0, "\n".join(self.shown(name) for name in names), ""
        if verb == "daemon-reload":
            self.stale = False
        elif verb == "daemon-reexec":
            self.limit = self.written
        elif names[0] == self.refused:
            return 1, "", f"Failed to {verb} {names[0]}"
        elif names[0] != self.unmet:
            self.state[names[0]] = verb == "enable"
            self.disabled -= {names[0]}
        return 0, "", ""

    def shown(self, name: str) -> str:
        there, active = name in self.state, self.state.get(name, False)
        met = "no" if name == self.unmet and ("systemctl", "enable", "--now", "--no-reload", name) in self.machine.said else "yes"
        said = {
            "Id": name,
            "LoadState": "loaded" if there else "not-found",
            "ActiveState": "active" if active else "inactive",
            "UnitFileState": ("enabled" if active and name not in self.disabled else "disabled") if there else "",
            "ConditionResult": met,
            "ConditionTimestamp": "Mon 2026-01-05 10:00:00 UTC",
            "NeedDaemonReload": "yes" if self.stale and there else "no",
        }
        return "".join(f"{key}={value}\n" for key, value in said.items())

    def settled(self, wanted: dict[str, str], time: list[str] | None = None) -> dict[str, dict[str, Any]]:
        rows = systemd_services.services(self.machine, wanted, time or [], str(self.root))
        return {row["name"]: row for row in rows + systemd_services.reloads(self.machine, {}, str(self.root))}

    def verbs(self) -> list[str]:
        return [command[1] for command in self.machine.said]


def test_all_units_are_read_in_one_call_and_changed_with_one_reload(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path, "ufw.service", installed=("a.service", "chrony.service"))
    rows = systemd.settled({"a.service": "started", "ufw.service": "stopped", "gone.service": "stopped"})
    assert {name: row["status"] for name, row in rows.items()} == {
        "service a.service": "changed",
        "service gone.service": "ok",
        "service ufw.service": "changed",
        "reload units": "changed",
    }
    assert systemd.verbs() == ["show", "enable", "disable", "daemon-reload"]

    again = Systemd(tmp_path / "settled", "a.service", "chrony.service")
    assert {row["status"] for row in again.settled({"a.service": "started"}, TIME).values()} == {"ok"}
    assert again.verbs() == ["show"]


def test_a_drop_in_that_systemd_has_not_read_is_read_before_the_start(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path, installed=("a.service",))
    systemd.stale = True
    assert systemd.settled({"a.service": "started"})["service a.service"]["status"] == "changed"
    assert systemd.verbs() == ["show", "daemon-reload", "show", "enable", "daemon-reload"]

    looked = Systemd(tmp_path / "looked", installed=("a.service",))
    looked.stale = looked.machine.check_mode = True
    assert looked.settled({"a.service": "started"})["service a.service"]["status"] == "differs"
    assert looked.verbs() == ["show"]


def test_a_command_that_fails_leads_to_the_reload_too(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path, installed=("a.service",))
    systemd.refused = "a.service"
    rows = systemd.settled({"a.service": "started"})
    assert (rows["service a.service"]["status"], rows["reload units"]["status"]) == ("failed", "changed")
    assert "Failed to enable a.service" in rows["service a.service"]["why"]


@pytest.mark.parametrize("active", [True, False])
def test_only_a_service_that_runs_has_to_learn_of_its_file(tmp_path: Path, active: bool) -> None:
    systemd = Systemd(tmp_path, *["NetworkManager.service", "chrony.service"] * active)
    for name in ("networkmanager", "time"):
        systemd.machine.reload(name)
    rows = systemd_services.reloads(systemd.machine, {"time_services": TIME}, str(tmp_path))
    assert [row["name"] for row in rows] == ["reload networkmanager", "reload time"] * active
    assert [verb for verb in systemd.verbs() if verb != "show"] == ["try-reload-or-restart", "try-restart"] * active


def test_a_systemd_that_does_not_answer_fails_alone(tmp_path: Path) -> None:
    machine = Machine({"systemctl": lambda _: (1, "", "Failed to connect to bus")})
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (row,) = systemd_services.services(machine, {"a.service": "started"}, TIME, str(tmp_path))
    assert row["status"] == "failed"
    assert "Failed to connect to bus" in row["why"]


def test_a_unit_whose_condition_is_not_met_is_unavailable_and_not_changed(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path, installed=("a.service",))
    systemd.unmet = "a.service"
    first = systemd_services.services(systemd.machine, {"a.service": "started"}, [], str(tmp_path))
    second = systemd_services.services(systemd.machine, {"a.service": "started"}, [], str(tmp_path))
    assert (first[0]["status"], second[0]["status"]) == ("changed", "unavailable")
    (row,) = convergence.confirm(first, second)
    assert row["status"] == "unavailable"
    assert "a condition of the unit is not met" in row["why"]
    assert "after" not in row


def test_a_time_service_that_was_just_stopped_does_not_keep_the_clock(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path, "systemd-timesyncd.service", installed=("chrony.service",))
    rows = systemd.settled({"systemd-timesyncd.service": "stopped"}, TIME)
    assert (rows["time service"]["status"], rows["time service"]["before"]) == ("changed", "not active, not enabled")
    assert systemd.state == {"systemd-timesyncd.service": False, "chrony.service": True}
    assert systemd.verbs() == ["show", "disable", "show", "enable", "daemon-reload"]


def test_one_that_runs_and_would_not_after_a_boot_is_enabled(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path, "systemd-timesyncd.service", installed=("chrony.service",))
    systemd.disabled = {"systemd-timesyncd.service"}
    row = systemd.settled({}, TIME)["time service"]
    assert (row["status"], row["before"]) == ("changed", "active, not enabled")
    assert systemd.settled({}, TIME)["time service"]["after"] == "systemd-timesyncd.service"
    assert systemd.state["chrony.service"] is False


def test_one_that_was_just_started_does(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path, installed=("chrony.service",))
    row = systemd.settled({"chrony.service": "started"}, TIME)["time service"]
    assert (row["status"], row["after"]) == ("ok", "chrony.service")


@pytest.mark.parametrize("state", ["stopped", "masked"])
def test_a_time_service_that_must_not_run_is_not_started_by_its_other_name_either(tmp_path: Path, state: str) -> None:
    systemd = Systemd(tmp_path, "chrony.service", aliases={"chronyd.service": "chrony.service"})
    row = systemd.settled({"chrony.service": state}, TIME)["time service"]
    assert (row["status"], row["why"]) == ("failed", "none installed of: systemd-timesyncd.service")
    assert not systemd.state["chrony.service"]
    only = systemd.settled({"chrony.service": state}, TIME[:2])["time service"]
    assert only["why"] == "the profile stops all that keep the clock"


def test_the_limit_that_systemd_gives_is_read_and_a_killed_runs_reexec_is_made_up_for(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path)
    systemd.written = "infinity"
    first = systemd_services.memlock(systemd.machine, "unlimited", str(tmp_path))
    assert (first[0]["status"], first[0]["before"]) == ("changed", "8388608")
    systemd_services.reloads(systemd.machine, {}, str(tmp_path))
    assert systemd.verbs() == ["show", "daemon-reexec"]
    (row,) = systemd_services.memlock(systemd.machine, "unlimited", str(tmp_path))
    assert (row["status"], row["after"]) == ("ok", "infinity")


def test_a_later_file_that_says_another_limit_is_seen(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path)
    first = systemd_services.memlock(systemd.machine, "64", str(tmp_path))
    systemd_services.reloads(systemd.machine, {}, str(tmp_path))
    systemd.machine.check_mode = True
    (row,) = convergence.confirm(first, systemd_services.memlock(systemd.machine, "64", str(tmp_path)))
    assert (row["status"], row["want"], row["after"]) == ("failed", "65536", "8388608")
    assert systemd_services.memlock(Machine({}), "64", str(tmp_path / "no-init")) == []
    assert systemd_services.memlock(systemd.machine, "", str(tmp_path)) == []


@pytest.mark.parametrize(("memlock", "line"), [("unlimited", "infinity"), ("64", "65536")])
def test_the_limit_is_kib_to_pam_and_bytes_to_systemd(memlock: str, line: str) -> None:
    kept = profile_files.boot_files({"memlock": memlock, "modules": {}, "blacklist": [], "sysctls": {}, "files": []})
    texts = {entry["path"]: entry["content"] for entry in kept}
    assert texts["/etc/systemd/system.conf.d/90-bringup.conf"].splitlines()[-1] == f"DefaultLimitMEMLOCK={line}"
    assert f"* hard memlock {memlock}\n" in texts["/etc/security/limits.d/90-bringup.conf"]


@pytest.mark.parametrize("end", ["running", "degraded", "offline"])
def test_a_boot_that_goes_on_is_waited_for_whatever_became_of_it(end: str) -> None:
    answers = ["initializing", "starting", "starting", end]
    machine = Machine({"systemctl": lambda _: (0, answers.pop(0) + "\n", "")})
    systemd_services.wait_for_boot(machine, 60.0, pause=0.0)
    assert answers == []


def test_a_boot_that_does_not_end_and_a_machine_without_systemd_are_looked_at_once_time_is_up() -> None:
    stuck = Machine({"systemctl": lambda _: (1, "starting\n", "")})
    systemd_services.wait_for_boot(stuck, 0.0)
    assert len(stuck.said) == 1
    systemd_services.wait_for_boot(Machine({}), 60.0)
