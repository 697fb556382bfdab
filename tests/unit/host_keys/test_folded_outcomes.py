"""Many hosts with the same outcome are one line; a key that somebody must compare has one of its own."""

import base64

import pytest

from workflows.host_keys.model import SHOWN, Key, KeyState, ScannedKey, columns, fold_rows, key_rows

NAMES = ("host", "address", "type", "fingerprint", "state", "")


def seen(number: int, state: KeyState, said: str = "", kind: str = "ssh-ed25519") -> ScannedKey:
    key = Key(kind=kind, blob=base64.b64encode(str(number).encode()).decode())
    silent = state is KeyState.SILENT
    return ScannedKey(host=f"gpu{number:04d}", place=f"10.0.0.{number}", state=state, key=None if silent else key, said=said)


def test_hosts_that_are_as_they_were_are_one_line_a_kind_of_key() -> None:
    rows = [seen(number, KeyState.SAME, kind=kind) for number in range(1, 901) for kind in ("ssh-rsa", "ssh-ed25519")]
    assert fold_rows(rows) == [
        ("gpu[0001-0900]", "900 addresses", "ssh-rsa", "900 fingerprints", "same", ""),
        ("gpu[0001-0900]", "900 addresses", "ssh-ed25519", "900 fingerprints", "same", ""),
    ]
    assert len(list(key_rows(rows))) == 1800


def test_those_that_say_nothing_are_told_by_their_reason() -> None:
    rows = [
        seen(number, KeyState.SILENT, said) for number in (1, 2, 3, 5) for said in ["no key" if number < 5 else "no key through b"]
    ]
    assert fold_rows(rows) == [
        ("gpu[0001-0003]", "3 addresses", "-", "-", "no answer", "no key"),
        ("gpu0005", "10.0.0.5", "-", "-", "no answer", "no key through b"),
    ]


@pytest.mark.parametrize(("hosts", "lines"), [(SHOWN, SHOWN), (SHOWN + 1, 1)])
def test_new_keys_are_shown_as_long_as_a_person_can_compare_them(hosts: int, lines: int) -> None:
    found = fold_rows([seen(number, KeyState.NEW) for number in range(hosts)])
    assert len(found) == lines
    assert found[0][3].startswith("SHA256:") is (lines > 1)


def test_a_changed_key_is_always_told_of_its_host() -> None:
    rows = [seen(number, KeyState.CHANGED) for number in range(60)]
    assert [line[0] for line in fold_rows(rows)] == [row.host for row in rows]


def test_a_key_that_many_show_is_told_once() -> None:
    rows = [
        ScannedKey(host=f"n{n}", place=f"n{n}", state=KeyState.CERTIFIED, key=Key(kind="x", blob="eA=="), said="key of the CA")
        for n in (1, 2)
    ]
    ((host, _, _, fingerprint, _, said),) = fold_rows(rows)
    assert (host, fingerprint[:7], said) == ("n[1-2]", "SHA256:", "key of the CA")


def test_hosts_that_do_not_answer_have_no_columns_of_keys() -> None:
    silent = fold_rows([seen(number, KeyState.SILENT, "no host key came from port 22") for number in (1, 2, 3)])
    assert columns(NAMES, silent) == (
        ["host", "address", "state", ""],
        [["gpu[0001-0003]", "3 addresses", "no answer", "no host key came from port 22"]],
    )
    same = fold_rows([seen(1, KeyState.SAME)])
    assert columns(NAMES, same)[0] == ["host", "address", "type", "fingerprint", "state"]
