"""Of this machine's apt a lock takes the way to mirrors, and nothing else: what it runs and fetches for itself is no part of it."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.images.nodes.conftest import SMALL, Deb, Mirror
from workflows.podimage import apt_solver


@dataclass(frozen=True)
class Machine:
    """A machine whose apt has settings of its own."""

    folder: Path

    def has(self, *settings: str) -> None:
        (self.folder / "apt.conf.d/50own").write_text("".join(f"{one};\n" for one in settings))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    folder = tmp_path / "machine"
    (folder / "apt.conf.d").mkdir(parents=True)
    (folder / "apt.conf").write_text(f'Dir::Etc::parts "{folder}/apt.conf.d";\nDir::Etc::main "/dev/null";\n')
    monkeypatch.setenv("APT_CONFIG", str(folder / "apt.conf"))
    return Machine(folder)


def updated(mirror: Mirror, folder: Path, url: str = "") -> apt_solver.AptRoot:
    mirror.publish("bookworm", SMALL, contrib=[Deb("further")])
    root = apt_solver.AptRoot(folder / "root", "amd64", [f"deb [signed-by={mirror.key}] {url or mirror.url}/debian bookworm main"])
    root.update()
    return root


def test_what_this_machine_runs_around_an_update_does_not_run(mirror: Mirror, machine: Machine, tmp_path: Path) -> None:
    """Other packages bring such hooks; one that failed ended the lock."""
    times = ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")
    machine.has(*(f'APT::Update::{time}:: "touch {tmp_path}/ran-{time}; false"' for time in times))
    assert [one.name for one in updated(mirror, tmp_path).install(["tool"])] == ["libc", "tool"]
    assert list(tmp_path.glob("ran-*")) == []


def test_indexes_that_this_machine_wants_are_not_fetched(mirror: Mirror, machine: Machine, tmp_path: Path) -> None:
    """Indexes that apt on this machine fetches for other programs, such as apt-file, are several times larger and not needed."""
    target = "Acquire::IndexTargets::deb::Further"
    machine.has(
        f'{target}::MetaKey "contrib/binary-amd64/Packages"',
        f'{target}::ShortDescription "Further"',
        f'{target}::Description "Further"',
        'acquire::languages:: "de"',
    )
    root = updated(mirror, tmp_path)
    fetched = {one.name.partition("bookworm_")[2].removesuffix(".gz") for one in root.folder.glob("lists/*bookworm*")}
    assert fetched == {"InRelease", "main_binary-amd64_Packages"}


def test_settings_that_decide_what_is_installed_are_not_this_machines(mirror: Mirror, machine: Machine, tmp_path: Path) -> None:
    machine.has('APT::Never-MarkAuto-Sections:: "x"', 'APT::Solver "no-such-solver"', 'APT::Get::Only-Source "yes"')
    assert [one.name for one in updated(mirror, tmp_path).install(["tool"])] == ["libc", "tool"]


def test_this_machines_proxy_is_gone_by(mirror: Mirror, machine: Machine, tmp_path: Path) -> None:
    machine.has(f'Acquire::http::Proxy::deb.example.invalid "{mirror.url}"', 'Acquire::Retries "0"')
    root = updated(mirror, tmp_path, "http://deb.example.invalid")
    assert root.has("tool")
    (settings,) = root.folder.glob("apt.conf")
    assert settings.stat().st_mode & 0o777 == 0o600, "a proxy may have a password"
