"""The bandwidth program of an acceptance finds wrong data, wherever in a message it is. Six launches here, 2 s of CPU."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import steps.slurmacceptance

SOURCE = Path(steps.slurmacceptance.__file__).with_name("pair_bandwidth.c")
FAULT = Path(__file__).parent / "mpilab" / "wrong_bytes.c"
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "tcp,self",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("mpicc") is None:
        reason = "mpi tier: mpicc is missing; `python tests/mpi/mpi.py install` installs it"
        pytest.fail(reason, pytrace=False) if os.environ.get("CI") == "true" else pytest.skip(reason)
    path = tmp_path_factory.mktemp("pair") / "pair_bandwidth"
    subprocess.run(["mpicc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, SOURCE, FAULT], check=True, timeout=60)
    return path


@pytest.mark.parametrize(
    ("ranks", "fault", "code"),
    [
        (2, {}, 0),
        (2, {"WRONG_MESSAGE": "1", "WRONG_AT": "5000"}, 3),
        (2, {"WRONG_MESSAGE": "5", "WRONG_AT": "8192"}, 3),
        (2, {"WRONG_MESSAGE": "5", "WRONG_AT": str((1 << 20) - 1)}, 3),
        (3, {}, 0),
        (3, {"WRONG_MESSAGE": "1", "WRONG_AT": "5001"}, 3),
    ],
)
def test_wrong_data_ends_the_program(program: Path, ranks: int, fault: dict[str, str], code: int) -> None:
    command = ["mpirun", "-np", str(ranks), str(program), "1", "0.02"]
    done = subprocess.run(
        command, env={**os.environ, **SETTINGS, **fault}, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, "wrong data received" in done.stderr) == (code, code == 3), done.stderr
    assert done.stdout.count("Bandwidth (MB/s)") == (2 if ranks == 2 else 1)
