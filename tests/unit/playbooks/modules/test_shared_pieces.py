"""Code that modules on a node share: replacing a file, waiting, a lock for one writer per host, a restart that is owed."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import direct_http, host_lock, polling
from ansible.module_utils.atomic_files import replacement
from ansible.module_utils.rke2 import restart_mark
from ansible.module_utils.selinux_labels import NAME

from steps.clients.ansible.failures import failure_reason
from steps.contract.host_play import FailureKind
from tests.unit.playbooks.library import LIBRARY, loaded

HOLDER = """
import sys
import time
import ansible.module_utils
ansible.module_utils.__path__.append(sys.argv[1])
from ansible.module_utils import host_lock
host_lock.hold("node_profile", sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""
"""A module that is at work until it is told otherwise."""


def held(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(LIBRARY.parent / "module_utils"), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_module_that_is_still_at_work_is_named_once_it_has_been_waited_for(tmp_path: Path) -> None:
    with held(tmp_path / "lock") as other:
        with pytest.raises(host_lock.HostBusy) as caught:
            host_lock.hold("rke2_config", str(tmp_path / "lock"), seconds=0)
        assert f"node_profile (pid {other.pid}) since 20" in str(caught.value)
        assert failure_reason(str(caught.value)) is FailureKind.BUSY
        other.kill()


def test_who_comes_second_begins_once_the_first_has_ended_however_that_was(tmp_path: Path) -> None:
    with held(tmp_path / "lock") as other:
        other.kill()
        host_lock.hold("rke2_config", str(tmp_path / "lock"))
    assert (tmp_path / "lock").read_text().startswith(f"rke2_config (pid {os.getpid()}) since ")


def test_a_host_that_cannot_be_locked_is_left_to_the_module(tmp_path: Path) -> None:
    host_lock.hold("node_profile", str(tmp_path / "no" / "lock"))


def test_a_file_is_replaced_whole_and_what_a_killed_run_left_beside_it_goes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / ".bringup-left").touch()
    with replacement(str(tmp_path / "f"), 0o640) as out:
        out.write(b"new")
        assert (tmp_path / "f").read_text() == "old"
    assert ((tmp_path / "f").read_text(), (tmp_path / "f").stat().st_mode & 0o777) == ("new", 0o640)
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_that_could_not_be_written_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    with pytest.raises(ValueError, match="no"), replacement(str(tmp_path / "f"), 0o640):
        raise ValueError("no")
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize(("seconds", "looks"), [(0, 1), (0.001, 2)])
def test_there_is_a_first_look_and_one_after_the_end(seconds: float, looks: int) -> None:
    assert len(list(polling.attempts(seconds, first=0.002))) == looks


def test_no_proxy_stands_before_services_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(OSError, match="refused") as caught:
        direct_http.get("http://127.0.0.1:1/", seconds=1.0)
    assert "Tunnel" not in str(caught.value)


def configuration() -> Any:
    return loaded("rke2_config")


def entry(path: Path, *, restart: bool = True) -> dict[str, Any]:
    return {"path": str(path), "content": "a: 1\n", "mode": "0600", "restart": restart, "absent": False}


def test_a_restart_is_owed_before_the_first_file_changes(tmp_path: Path) -> None:
    (tmp_path / "no-folder").touch()
    with pytest.raises(OSError, match="no-folder"):
        configuration().write([entry(tmp_path / "no-folder" / "config.yaml")], str(tmp_path / "owed"))
    assert restart_mark.is_pending(str(tmp_path / "owed")), "a run that ends between mark and files owes the restart too"


def test_a_restart_stays_owed_until_one_has_been_that_knew_of_it(tmp_path: Path) -> None:
    owed = str(tmp_path / "owed")
    configuration().write([entry(tmp_path / "config.yaml")], owed)
    first = restart_mark.read(owed)
    configuration().write([entry(tmp_path / "config.yaml")], owed)
    restart_mark.clear(first, owed)
    assert restart_mark.is_pending(owed), "a wait that outlived its session knows nothing of the second change"
    restart_mark.clear(restart_mark.read(owed), owed)
    assert not restart_mark.is_pending(owed)
    restart_mark.clear("", owed)


def test_what_needs_no_restart_owes_none(tmp_path: Path) -> None:
    configuration().write([entry(tmp_path / "kube-vip.yaml", restart=False)], str(tmp_path / "owed"))
    assert not restart_mark.is_pending(str(tmp_path / "owed"))


class Systemd:
    """A stand-in for a module on a host where RKE2's process was started then, by the clock since the boot; `stops`: for how many
    looks a restart that was asked for is still stopping what ran before."""

    def __init__(self, started: float, crashes: int = 0, stops: int = 0, job: str = "", state: str = "running") -> None:
        self.started, self.crashes, self.stops, self.job, self.state = started, crashes, stops, job, state
        self.looks = 0

    def run_command(self, command: list[str], **_words: Any) -> tuple[int, str, str]:
        name = "ExecMainStartTimestampMonotonic"
        self.looks += 1
        stopping = self.looks <= self.stops
        started = 1 if stopping else self.started * 1e6
        job, state = ("77", "stop-sigterm") if stopping else (self.job, self.state)
        mine = f"NRestarts={self.crashes}\n{name}={started:.0f}\nJob={job}\nSubState={state}\n"
        return 0, f"{mine}\nNRestarts=0\n{name}=0\nSubState=dead\n", ""


def test_a_start_after_the_change_is_the_restart_that_was_owed(tmp_path: Path) -> None:
    owed = str(tmp_path / "owed")
    before = time.monotonic() - 1
    restart_mark.mark(owed)
    assert not restart_mark.has_restarted(Systemd(time.monotonic() + 1), owed), "what is half made may still be unknown to it"
    configuration().write([entry(tmp_path / "config.yaml")], owed)
    assert not restart_mark.has_restarted(Systemd(before), owed)
    assert not restart_mark.has_restarted(Systemd(0), owed), "it has not been started yet"
    assert restart_mark.has_restarted(Systemd(time.monotonic() + 1), owed)
    assert not restart_mark.has_restarted(Systemd(time.monotonic() + 1, crashes=1), owed), "a new start counts its crashes anew"
    words = Path(owed).read_text().split()
    Path(owed).write_text(f"{words[0]} another-boot {time.monotonic() + 9}")
    assert restart_mark.has_restarted(Systemd(before), owed), "every start since a reboot knows what was there before it"


def test_a_restart_that_a_killed_run_has_asked_for_is_waited_for(tmp_path: Path) -> None:
    owed = str(tmp_path / "owed")
    restart_mark.mark(owed)
    restart_mark.mark_made(owed)
    host = Systemd(time.monotonic() + 1, stops=2, job="78", state="start")
    assert restart_mark.has_restarted(host, owed, pause=0.001)
    assert host.looks == 3
    stuck = Systemd(time.monotonic() - 1, job="79", state="start")
    assert not restart_mark.has_restarted(stuck, owed, pause=0.001), "it was started before the change, and waits for its cluster"
    assert stuck.looks == 1


def test_a_file_that_is_replaced_keeps_its_label(tmp_path: Path) -> None:
    path = tmp_path / "hostname"
    path.write_text("old")
    label = b"system_u:object_r:hostname_etc_t:s0\0"
    try:
        os.setxattr(path, NAME, label)
    except OSError:
        pytest.skip("labels cannot be given here")
    with replacement(str(path), 0o644) as out:
        out.write(b"new")
    assert (path.read_text(), os.getxattr(path, NAME)) == ("new", label)
