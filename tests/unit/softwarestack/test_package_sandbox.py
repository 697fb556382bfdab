"""Command lines of the sandbox, word by word, and which folders of a machine it shows."""

from pathlib import Path

from steps.softwarestack.builds import package_sandbox
from steps.softwarestack.builds.package_sandbox import HostEntry, HostView, SandboxedWords, SandboxLimits, SandboxMount

HOST = HostView(
    entries=(HostEntry("/bin", "usr/bin"), HostEntry("/etc"), HostEntry("/usr")),
    opened=("/apps",),
    hidden=("/usr/store",),
    programs=("/home/ci/venv",),
)
BUILD = SandboxedWords(
    words=("eb", "zlib.eb"),
    mounts=(
        SandboxMount("/scratch/build", "/build", writable=True),
        SandboxMount("/scratch/dep", "/apps/packages/dep-1-0123456789ab"),
    ),
    environment={"PATH": "/usr/bin", "HOME": "/build/home"},
    limits=SandboxLimits(processes=100, memory_bytes=1 << 30),
)
ROOTED = """bwrap --die-with-parent --new-session --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup-try --hostname build
--unshare-net --cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID
--tmpfs / --dir /apps --symlink usr/bin /bin --ro-bind /etc /etc --ro-bind /usr /usr
--proc /proc --dev /dev --perms 1777 --tmpfs /dev/shm --ro-bind-try /sys /sys
--perms 1777 --tmpfs /tmp --perms 1777 --tmpfs /var/tmp
--tmpfs /usr/store
--dir /var --dir /var/lib --dir /home --dir /home/ci --dir /apps --dir /apps/packages
--ro-bind-try /var/lib/dpkg /var/lib/dpkg --ro-bind-try /var/lib/rpm /var/lib/rpm
--ro-bind /home/ci/venv /home/ci/venv
--bind /scratch/build /build --ro-bind /scratch/dep /apps/packages/dep-1-0123456789ab
--remount-ro / --clearenv --setenv HOME /build/home --setenv PATH /usr/bin --chdir /build
-- prlimit --core=0 --nproc=100 --data=1073741824 --
setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all -- eb zlib.eb"""


def test_a_build_as_root_runs_as_nobody_without_network() -> None:
    assert package_sandbox.command(BUILD, HOST, as_root=True) == ROOTED.split()


def test_a_build_of_a_user_keeps_that_user_and_has_no_right() -> None:
    line = package_sandbox.command(BUILD, HOST, as_root=False)
    assert "--cap-add" not in line
    assert "setpriv" not in line
    assert line[-3:] == ["--", "eb", "zlib.eb"]


def test_only_a_fetch_has_network_and_a_resolver() -> None:
    fetch = SandboxedWords(words=("eb",), mounts=(), environment={}, network=True)
    line = package_sandbox.command(fetch, HOST, as_root=False)
    assert "--unshare-net" not in line
    assert "/run/systemd/resolve" in line
    assert "/run/systemd/resolve" not in package_sandbox.command(BUILD, HOST, as_root=False)


def test_without_limits_only_core_files_are_limited() -> None:
    plain = SandboxedWords(words=("true",), mounts=(), environment={})
    line = package_sandbox.command(plain, HOST, as_root=False)
    assert line[line.index("prlimit") :] == ["prlimit", "--core=0", "--", "true"]


def test_limits_stay_within_those_of_this_process() -> None:
    limits = package_sandbox.limits(2048)
    assert 0 < limits.processes <= package_sandbox.MOST_PROCESSES
    assert limits.memory_bytes == 2 << 30


def test_this_machine_is_shown_without_homes_and_hidden_folders(tmp_path: Path) -> None:
    secret, program = tmp_path / "secrets", tmp_path / "venv"
    secret.mkdir()
    program.mkdir()
    hidden = (secret, Path("/etc"), Path("/usr/share"), tmp_path / "missing")
    host = package_sandbox.view_host(("/software/packages",), hidden, (program, Path("/usr")))
    shown = {entry.path for entry in host.entries}
    assert not shown & package_sandbox.LEFT_OUT
    assert "/usr" in shown
    assert "/etc" not in shown
    assert host.hidden == ("/usr/share",)  # neither /etc nor /tmp is shown at all
    assert host.programs == (str(program.resolve()),)
    assert "/software" not in shown


def test_folders_on_the_way_to_a_place_are_made_and_their_neighbours_shown(tmp_path: Path) -> None:
    """Nothing can be made in a folder that is bound read-only, so the folder is made and what is in it bound."""
    host = package_sandbox.view_host(("/usr/local/stacks/packages",), (), ())
    shown = {entry.path for entry in host.entries}
    assert host.opened[:2] == ("/usr", "/usr/local")
    assert {"/usr/bin", "/usr/lib"} <= shown
    assert not {"/usr", "/usr/local", "/usr/local/stacks"} & shown


def test_a_place_in_a_hidden_folder_shows_nothing_else_of_it() -> None:
    host = package_sandbox.view_host(("/usr/share/stacks/packages",), (Path("/usr/share"),), ())
    shown = {entry.path for entry in host.entries}
    assert "/usr/bin" in shown
    assert [path for path in shown if path.startswith("/usr/share")] == []
    assert (host.opened, host.hidden) == (("/usr", "/usr/share"), ())


def test_what_lies_at_a_place_of_the_build_is_not_shown() -> None:
    shown = {entry.path for entry in package_sandbox.view_host(("/usr/lib",), (), ()).entries}
    assert "/usr/bin" in shown
    assert "/usr/lib" not in shown


def test_a_program_below_a_hidden_folder_is_shown_again(tmp_path: Path) -> None:
    host = package_sandbox.view_host((), (Path("/usr"),), (Path("/usr/bin"),))
    assert host.programs == ("/usr/bin",)


def test_a_hidden_folder_within_a_program_stays_hidden(tmp_path: Path) -> None:
    (tmp_path / "venv" / "store").mkdir(parents=True)
    host = package_sandbox.view_host((), (tmp_path / "venv" / "store",), (tmp_path / "venv",))
    line = package_sandbox.command(SandboxedWords(words=("true",), mounts=(), environment={}), host, as_root=False)
    folder = str((tmp_path / "venv").resolve())
    last = max(place for place, word in enumerate(line) if word == f"{folder}/store")
    assert line[last - 1] == "--tmpfs"
    assert last > line.index(folder)
