"""Tests of shipped recipes that ask a program for a list: one that cannot answer is no empty list, in which all is in order."""

import os
import subprocess
from pathlib import Path

import pytest

from workflows.images.nodes import chain, tests


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
