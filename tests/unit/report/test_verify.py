"""The seal shows any changed, missing or added byte, offline."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from steps.clients import signature
from steps.clients.environment import Environment
from steps.clients.store import Store
from steps.contract.task import Task, Verb
from steps.errors import BadTask, StepError
from steps.report import source, verify
from steps.report.assembly import build
from steps.report.junit import junit
from steps.report.text import text
from steps.runtime.context import Context
from steps.verbs import report, seal
from workflows.engines import seal_keys
from workflows.engines.folders import StateFolder


def _sealed(store: Store, tmp_path: Path, key: str = "", own: Path | None = None) -> Path:
    secrets = tmp_path / "secret-files"
    secrets.mkdir(exist_ok=True)
    here = Environment(
        tasks=tmp_path,
        fleet=tmp_path,
        secrets=secrets,
        store=store.root,
        out=tmp_path / "out",
        run="r1",
        engine="local",
        seal_key=own,
    )
    report.run(Context(Task(stage="run", name="report", verb=Verb.REPORT), here))
    arguments = {"key": key} if key else {}
    seal.run(Context(Task(stage="run", name="seal", verb=Verb.SEAL, arguments=arguments), here, inputs={"status": "Failed"}))
    return store.root / "runs" / "r1"


def test_an_untouched_run_verifies_and_a_second_seal_too(store: Store, tmp_path: Path) -> None:
    folder = _sealed(store, tmp_path)
    assert verify.problems(folder) == ()
    assert verify.problems(_sealed(store, tmp_path)) == ()


def test_every_changed_byte_of_a_sealed_file_is_named(store: Store, tmp_path: Path) -> None:
    folder = _sealed(store, tmp_path)
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "seal.json"):
        before = path.read_bytes()
        for position in {0, len(before) // 2, len(before) - 1}:
            path.write_bytes(_flipped(before, position))
            assert verify.problems(folder) == (f"{path.relative_to(folder).as_posix()}: changed since it was sealed",)
        path.write_bytes(before)


def test_a_changed_byte_anywhere_in_the_seal_itself_is_noticed(store: Store, tmp_path: Path) -> None:
    path = _sealed(store, tmp_path) / "seal.json"
    before = path.read_bytes()
    for position in sorted({*range(0, len(before), 7), *range(len(before) - 200, len(before))}):
        path.write_bytes(_flipped(before, position))
        found = verify.problems(path.parent)
        assert any(said.startswith("seal.json: ") for said in found), (position, before[position - 20 : position + 20])


@pytest.mark.parametrize(
    ("was", "made"),
    [
        (b'"status":"Failed"', b'"status":"Succeeded"'),
        (b'"run":"r1"', b'"run":"r2"'),
        (b'"plan":"', b'"plan":"x'),
        (b'"schema":1', b'"schema": 1'),
        (b'"schema":1', b'"schema":1,"surplus":true'),
        (b'"digest":"sha256:', b'"digest":"sha256:0'),
    ],
)
def test_a_changed_field_of_the_seal_is_noticed(store: Store, tmp_path: Path, was: bytes, made: bytes) -> None:
    path = _sealed(store, tmp_path) / "seal.json"
    assert was in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(was, made))
    assert verify.problems(path.parent) == ("seal.json: changed since it was sealed",)


@pytest.mark.parametrize("made", [b'{"run": "\xff"}', b'{"surplus":' + b"[" * 50_000 + b"]" * 50_000 + b"}"])
def test_a_seal_that_is_no_json_is_named(store: Store, tmp_path: Path, made: bytes) -> None:
    path = _sealed(store, tmp_path) / "seal.json"
    path.write_bytes(made)
    assert verify.problems(path.parent)[0].startswith("seal.json: cannot be read: ")
    with pytest.raises(BadTask, match="cannot be read"):
        verify.cover(path.parent)


def _flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def test_missing_and_added_files_are_named(store: Store, tmp_path: Path) -> None:
    folder = _sealed(store, tmp_path)
    (folder / "report/report.html").unlink()
    (folder / "evidence/extra.json").write_text("{}")
    assert set(verify.problems(folder)) == {"report/report.html: missing", "evidence/extra.json: not in the seal"}


def test_a_signed_seal_verifies_for_its_signer_only(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret-files").mkdir()
    for name in ("seal_key", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "secret-files" / name], check=True)
    public = {name: (tmp_path / "secret-files" / f"{name}.pub").read_text() for name in ("seal_key", "other")}
    folder = _sealed(store, tmp_path, key="seal_key")
    assert verify.problems(folder, ("site", public["seal_key"])) == ()
    assert "seal.json.sig" in verify.problems(folder, ("site", public["other"]))[0]
    (folder / "seal.json.sig").unlink()
    assert "not signed" in verify.problems(folder, ("site", public["seal_key"]))[0]


def test_a_folder_without_a_seal_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(BadTask, match=r"no seal\.json"):
        verify.problems(tmp_path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def _nested_link(path: Path) -> None:
    path.symlink_to("/etc", target_is_directory=True)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(_link, "a symbolic link"), (_nested_link, "a symbolic link"), (os.mkfifo, "a FIFO")],
    ids=["link", "folder", "fifo"],
)
def test_what_is_no_file_is_named_as_what_it_is(store: Store, tmp_path: Path, make: Callable[[Path], None], kind: str) -> None:
    folder = _sealed(store, tmp_path)
    make(folder / "evidence" / "added.json")
    assert verify.problems(folder) == (f"evidence/added.json: is {kind}; a run has only files, and nothing was read through it",)
    (folder / "evidence" / "added.json").unlink()
    record = next(iter(sorted((folder / "evidence").rglob("*.json"))))
    record.rename(tmp_path / "moved.json")
    make(record)
    assert verify.problems(folder) == (f"{record.relative_to(folder).as_posix()}: is {kind} where the seal has a file",)


def test_links_and_fifos_are_no_part_of_seal_report_or_hand_out(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    folder = store.root / "runs" / "r1"
    (folder / "evidence" / "added.json").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "evidence" / ".playing-abcdefgh")
    _sealed(store, tmp_path)
    assert "added.json" not in (folder / "seal.json").read_text()
    assert [line.partition(";")[0] for line in verify.problems(folder)] == [
        "evidence/.playing-abcdefgh: is a FIFO",
        "evidence/added.json: is a symbolic link",
    ]
    with pytest.raises(BadTask, match="is not what was sealed"):
        verify.hand_out(folder, tmp_path / "copy")
    with pytest.raises(StepError, match="links are not followed"):
        store.read("runs/r1/evidence/added.json")


def test_a_killed_write_is_no_tampering(store: Store, tmp_path: Path) -> None:
    folder = _sealed(store, tmp_path)
    (folder / "evidence" / ".01.json.k3j_9x2a").write_text("{half")
    (folder / "evidence" / "os_prep" / "later").mkdir()
    assert verify.problems(folder) == ()
    assert verify.cover(folder).left_out == ("evidence/.01.json.k3j_9x2a (an unfinished write)", "evidence/os_prep/later/ (empty)")
    (folder / "evidence" / ".hidden.json").write_text("{}")
    assert verify.problems(folder) == ("evidence/.hidden.json: is hidden and not in the seal",)


def test_a_hand_out_goes_through_no_link(store: Store, tmp_path: Path) -> None:
    folder, copy, elsewhere = _sealed(store, tmp_path), tmp_path / "copy", tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy.mkdir()
    (copy / "evidence").symlink_to(elsewhere)
    with pytest.raises(BadTask, match="symbolic link"):
        verify.hand_out(folder, copy)
    (copy / "evidence").unlink()
    (elsewhere / "precious").write_text("unchanged")
    (copy / "run.json").unlink(missing_ok=True)
    (copy / "run.json").symlink_to(elsewhere / "precious")
    assert verify.hand_out(folder, copy) > 0
    assert verify.problems(copy) == ()
    assert (elsewhere / "precious").read_text() == "unchanged"
    (tmp_path / "link").symlink_to(elsewhere)
    with pytest.raises(BadTask, match="never through a link"):
        verify.hand_out(folder, tmp_path / "link")


def test_a_report_of_changed_files_proves_nothing_in_any_form(store: Store, tmp_path: Path) -> None:
    folder = _sealed(store, tmp_path)
    whole = build(source.read(store, "r1"))
    assert verify.distrusted(whole, verify.problems(folder)) == whole
    (folder / "evidence" / "extra.json").write_text("{}")
    report_now = verify.distrusted(whole, verify.problems(folder))
    assert report_now.status == "inconclusive"
    assert "not what was sealed (1 difference; evidence/extra.json: not in the seal)" in text(report_now)
    assert b'name="seal/files"' in junit(report_now)


def test_a_name_cannot_forge_a_line_of_the_answer(store: Store, tmp_path: Path) -> None:
    folder = _sealed(store, tmp_path)
    (folder / "evidence" / "a\nunchanged since it was sealed").write_text("{}")
    assert verify.problems(folder) == ("'evidence/a\\nunchanged since it was sealed': not in the seal",)


def test_the_machines_key_signs_where_the_spec_names_none(store: Store, tmp_path: Path) -> None:
    home = StateFolder(tmp_path / "home")
    own = seal_keys.ensure(home)
    assert own == seal_keys.ensure(home) == seal_keys.path(home)
    folder = _sealed(store, tmp_path, own=own)
    assert verify.problems(folder, ("bringup", seal_keys.public_key(home))) == ()
    fingerprint = signature.fingerprint(seal_keys.public_key(home))
    assert verify.cover(folder).key == fingerprint
    assert f"signed by this machine's key, {fingerprint}" in next(verify.cover(folder).lines(fingerprint))
    signed = (folder / "seal.json.sig").read_bytes()
    assert verify.problems(_sealed(store, tmp_path)) == ()  # unsigned: nothing of the earlier signature is left
    assert "although this machine signs" in next(verify.cover(folder).lines(fingerprint))
    (folder / "seal.json.sig").write_bytes(signed)
    assert verify.problems(folder) == ("seal.json.sig: is no signature of this seal",)


def test_a_machine_without_a_usable_key_seals_unsigned(store: Store, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    assert seal_keys.ensure(StateFolder(tmp_path / "home")) is None
    folder = _sealed(store, tmp_path, own=tmp_path / "gone")
    assert verify.problems(folder) == ()
    assert "not signed" in next(verify.cover(folder).lines())
