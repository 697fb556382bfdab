"""Tests of shipped recipes that ask a program for a list: one that cannot answer is no empty list, in which all is in order."""

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from steps.contract.image.testing import Where
from workflows.images.nodes import chain, shipped, tests


@pytest.mark.parametrize(
    ("answers", "passes"),
    [('echo "$FOLDER"', True), ('echo "$FOLDER" /opt/of/the/build', False), ("exit 243", False), (":", False)],
    ids=["all are there", "one is not", "its wrapper data are gone", "it names none"],
)
def test_paths_of_mpicc(tmp_path: Path, answers: str, passes: bool) -> None:
    (tmp_path / "mpicc").write_text(f"#!/bin/sh\n{answers}\n")
    (tmp_path / "mpicc").chmod(0o755)
    test = next(test for test in tests.of(chain.read("compute", tmp_path, {})) if test.name == "wrong_paths")
    settings = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FOLDER": str(tmp_path)}
    done = subprocess.run(["/bin/sh", "-e", "-c", test.run], env=settings, capture_output=True, check=False)
    assert (done.returncode == 0) is passes, done


@pytest.mark.parametrize("recipe", shipped.names())
def test_no_clock_of_its_own_ends_a_test_that_runs_on_slow_machines(recipe: str, tmp_path: Path) -> None:
    found = [test for test in tests.of(chain.read(recipe, tmp_path, {}, by_name=True)) if test.where is not Where.SANDBOX]
    assert found
    assert [test.name for test in found if re.search(r"\btimeout\b", test.run)] == []


@pytest.mark.parametrize(
    ("answers", "passes"),
    [(b"SSH-2.0-OpenSSH_9.2\r\n", True), (b"220 mail\r\n", False), (b"", False)],
    ids=["SSH", "mail", "nothing"],
)
def test_who_answers_at_the_port_of_ssh(tmp_path: Path, answers: bytes, passes: bool) -> None:
    test = next(test for test in tests.of(chain.read("site", tmp_path, {}, by_name=True)) if test.name == "ssh_answers")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        script = test.run.replace("/127.0.0.1/22 ", f"/127.0.0.1/{server.getsockname()[1]} ")
        assert script != test.run
        with subprocess.Popen(["/bin/sh", "-e", "-c", script], stderr=subprocess.DEVNULL) as asks:
            connection, _ = server.accept()
            with connection:
                connection.sendall(answers)
    assert (asks.returncode == 0) is passes
