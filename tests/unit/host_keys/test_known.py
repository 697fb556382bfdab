"""Keys that a host shows against known_hosts: new, same, changed or revoked; writing a key keeps the rest of the file."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workflows.host_keys import key_scan, known_hosts
from workflows.host_keys.model import Key, KeyState


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[Key]:
    """Two ed25519 keys and an ECDSA key."""
    found = []
    for number, kind in enumerate(("ed25519", "ed25519", "ecdsa")):
        path = tmp_path_factory.mktemp("keys") / str(number)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)], check=True)
        kind_said, blob, *_ = path.with_suffix(".pub").read_text().split()
        found.append(Key(kind=kind_said, blob=blob))
        printed = subprocess.run(["ssh-keygen", "-l", "-f", str(path)], capture_output=True, text=True, check=True).stdout
        assert found[-1].fingerprint == printed.split()[1]
    return found


def line(name: str, key: Key, marker: str = "") -> str:
    return f"{marker}{name} {key.kind} {key.blob}\n"


@pytest.mark.parametrize("hashed", [False, True])
def test_states(tmp_path: Path, keys: list[Key], hashed: bool) -> None:
    one, other, ecdsa = keys
    file = tmp_path / "known_hosts"
    file.write_text(line("10.0.0.1", one) + line("[10.0.0.2]:2222", one) + line("*.example.org", other, "@cert-authority "))
    if hashed:
        subprocess.run(["ssh-keygen", "-H", "-f", str(file)], check=True, capture_output=True)
    found = known_hosts.look_up(file, ["10.0.0.1", "[10.0.0.2]:2222", "10.0.0.2", "a.example.org"])

    assert found["10.0.0.1"].states([one, ecdsa]) == [(one, KeyState.SAME)], "a host that is known needs no second key"
    assert found["10.0.0.1"].states([other]) == [(other, KeyState.CHANGED)]
    assert found["10.0.0.1"].states([ecdsa]) == [(ecdsa, KeyState.CHANGED)], "none of its keys is known any more"
    assert found["[10.0.0.2]:2222"].states([one]) == [(one, KeyState.SAME)]
    assert found["10.0.0.2"].states([one, ecdsa]) == [(one, KeyState.NEW), (ecdsa, KeyState.NEW)]
    assert found["a.example.org"].authorities == (other,)


def test_a_revoked_key_is_never_taken(tmp_path: Path, keys: list[Key]) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(line("*", keys[0], "@revoked "))

    assert known_hosts.look_up(file, ["h"])["h"].states(keys) == [(keys[0], KeyState.REVOKED)]


@pytest.mark.parametrize("form", ["h\t{0} {1}\n", "  h  {0}   {1} comment\n", "h {0} {1} caf\xe9\n", "\xff\xfe\nh {0}\t{1}\r\n"])
def test_a_line_is_read_as_openssh_reads_it(tmp_path: Path, keys: list[Key], form: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_bytes(form.format(keys[0].kind, keys[0].blob).encode("latin-1"))

    assert known_hosts.look_up(file, ["h"])["h"].states([keys[1]]) == [(keys[1], KeyState.CHANGED)], (
        "never new: that is written unasked"
    )
    known_hosts.write(file, [("other", keys[2])])
    assert known_hosts.look_up(file, ["h"])["h"].keys == (keys[0],)


def test_a_file_that_ssh_keygen_changes_nothing_in_is_left_as_it_is(tmp_path: Path, keys: list[Key]) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"garbage\n{line('h', keys[0])}")
    before = file.read_bytes()

    with pytest.raises(known_hosts.NotKnownHosts, match=r"known_hosts was left as it is: line 1 is none of known_hosts"):
        known_hosts.write(file, [("h", keys[1])], forget=["h"])

    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["known_hosts"]


def test_writers_side_by_side_lose_nothing(tmp_path: Path, keys: list[Key]) -> None:
    file = tmp_path / "known_hosts"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: known_hosts.write(file, [(f"h{number}", keys[0])]), range(100)))

    assert len(file.read_text().splitlines()) == 100


def test_writing_keeps_what_is_there_and_forgets_what_is_replaced(tmp_path: Path, keys: list[Key]) -> None:
    file = tmp_path / "below" / "known_hosts"
    known_hosts.write(file, [("a", keys[0]), ("b", keys[0])])
    file.chmod(0o600)
    file.write_text(file.read_text().rstrip("\n"))  # as an editor may leave it
    known_hosts.write(file, [("a", keys[1])], forget=["a"])

    assert sorted(file.read_text().splitlines()) == sorted([line("a", keys[1]).strip(), line("b", keys[0]).strip()])
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["known_hosts"]


def test_no_file_knows_nobody(tmp_path: Path, keys: list[Key]) -> None:
    assert known_hosts.look_up(tmp_path / "none", ["a"])["a"].states(keys[:1]) == [(keys[0], KeyState.NEW)]


def test_what_ssh_keyscan_prints(keys: list[Key]) -> None:
    text = "# 10.0.0.1:22 SSH-2.0-OpenSSH_9.2\n" + line("10.0.0.1", keys[0]) + "garbage\n" + line("[::1]:2222", keys[2])

    assert key_scan.parse_keys(text) == [("10.0.0.1", keys[0]), ("[::1]:2222", keys[2])]


def test_a_link_stays_a_link_and_the_file_behind_it_gets_the_keys(tmp_path: Path, keys: list[Key]) -> None:
    real, link = tmp_path / "dotfiles/known_hosts", tmp_path / "ssh/known_hosts"
    link.parent.mkdir()
    link.symlink_to(real)  # leads nowhere yet
    for key in keys[:2]:
        known_hosts.write(link, [("a", key)])
    assert link.is_symlink()
    assert real.read_text() == line("a", keys[0]) + line("a", keys[1])
    assert [path.name for path in (*real.parent.iterdir(), *link.parent.iterdir())] == ["known_hosts", "known_hosts"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_a_file_keeps_its_mode_also_where_keys_are_replaced(tmp_path: Path, keys: list[Key], mode: int) -> None:
    file = tmp_path / "known_hosts"
    known_hosts.write(file, [("a", keys[0])])
    file.chmod(mode)
    known_hosts.write(file, [("a", keys[1])], forget=["a"])
    assert file.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write a file that is another's")
def test_root_leaves_a_file_its_owner_and_gives_a_new_one_to_the_folders(tmp_path: Path, keys: list[Key]) -> None:
    os.chown(tmp_path, 1234, 1235)
    file = tmp_path / "known_hosts"
    known_hosts.write(file, [("a", keys[0])])
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1235)
    os.chown(file, 4321, 4322)
    known_hosts.write(file, [("b", keys[1])])
    assert (file.stat().st_uid, file.stat().st_gid) == (4321, 4322)
