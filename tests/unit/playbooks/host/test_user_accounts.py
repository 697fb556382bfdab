"""Keys of people in the file of a user who has some already."""

import os
from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import user_accounts

from tests.unit.playbooks.machine import Machine

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAbcdefghijklmnopqrstuvwxyz0123456789ABCDEF ops@example.org"


@pytest.mark.parametrize(
    ("line", "there"),
    [
        (KEY, True),
        (f'from="10.0.0.0/8",no-pty {KEY.rpartition(" ")[0]} another comment', True),
        (f"# {KEY}", False),
        (f"  #{KEY}", False),
        (KEY.replace("Abcdef", "Axyzab"), False),
    ],
)
def test_a_key_is_there_only_where_sshd_reads_it(tmp_path: Path, line: str, there: bool) -> None:
    assert user_accounts.missing_keys(f"# of the site\n{line}\n", [KEY]) == ([] if there else [KEY])


def test_a_link_in_the_place_of_the_keys_is_not_read_for_the_user(tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("root:*:20000:::::\n")
    folder = tmp_path / ".ssh"
    folder.mkdir()
    held = os.open(folder, os.O_RDONLY)
    assert user_accounts.read_keys(held) == ""
    (folder / "authorized_keys").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        user_accounts.read_keys(held)
    os.close(held)


@pytest.mark.parametrize(("name", "own"), [("daemon", ("--gid", "daemon")), ("bringup-nobody", ())])
def test_a_user_whose_group_is_there_already_gets_that_one(name: str, own: tuple[str, ...]) -> None:
    machine = Machine({"useradd": lambda _: (0, "", "")})
    user_accounts.add_user(machine, name)
    assert machine.said == [("useradd", "--create-home", "--shell", "/bin/bash", *own, name)]
