"""The program of a reader pod prints regular files of a run, never its secrets, nor what a link leads to."""

import base64
import io
import os
import tarfile
from pathlib import Path

import pytest

from workflows.engines.argo import store_reader


def test_links_fifos_hidden_files_and_secrets_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "runs/r1"
    for name in ("run.json", "evidence/a/01.json", "secrets/kubeconfig", "evidence/.01.json.abcdefgh"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("canary" if "secrets" in name else "{}")
    (run / "evidence/link.json").symlink_to(run / "secrets/kubeconfig")
    (run / "evidence/folder").symlink_to(run / "secrets", target_is_directory=True)
    os.mkfifo(run / "evidence/fifo.json")
    for variable, value in (("BRINGUP_STORE", str(tmp_path)), ("BRINGUP_RUN", "r1"), ("LIMIT", "1000000")):
        monkeypatch.setenv(variable, value)
    assert store_reader.main() == 0
    begin, *lines, end = capsys.readouterr().out.splitlines()
    assert (begin, end.startswith(store_reader.END)) == (store_reader.BEGIN, True)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode("".join(lines)))) as archive:
        assert archive.getnames() == ["runs/r1/evidence/a/01.json", "runs/r1/run.json"]
