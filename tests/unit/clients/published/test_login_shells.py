"""Commands that are started through SSH work whatever login shell the remote user has."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from steps.clients.releases import connections
from steps.nodeimage.contract.boot_tree import PublishTarget

SHELLS = [name for name in ("sh", "bash", "dash", "ksh", "mksh", "zsh", "csh", "tcsh", "fish") if shutil.which(name)]
"""Login shells to test with: those that are installed on this machine."""


@pytest.mark.parametrize("name", SHELLS)
def test_a_session_starts_from_a_login_shell(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor last; do :; done\nexec {name} -c "$last"\n')
    program.chmod(0o755)
    (tmp_path / "tree/compute/versions").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    place = PublishTarget(root=str(tmp_path / "tree"), url="http://boot.example.org/images", host="boot")
    with closing(connections.connect(place, tmp_path)) as way:
        assert way.look("compute").products == ("compute",)


def test_csh_reads_it_as_others_do(tmp_path: Path) -> None:
    """In its quotes a line end is an error, and a ! stands for an earlier command."""
    told = connections.command(PublishTarget(root="/srv", url="http://boot.example.org", host="boot"), tmp_path, 9)[-1]
    assert told.isprintable()
    assert "!" not in told
