"""Tests of shipped recipes that ask a program: what it says of a sound root or node passes, and nothing else does. One that cannot
answer is no empty list, in which all is in order."""

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from steps.nodeimage.contract.image_tests import Where
from workflows.nodeimage import recipe_chain, recipe_files, recipe_resolution


@pytest.mark.parametrize(
    ("answers", "passes"),
    [('echo "$FOLDER"', True), ('echo "$FOLDER" /opt/of/the/build', False), ("exit 243", False), (":", False)],
    ids=["all are there", "one is not", "its wrapper data are gone", "it names none"],
)
def test_paths_of_mpicc(tmp_path: Path, answers: str, passes: bool) -> None:
    (tmp_path / "mpicc").write_text(f"#!/bin/sh\n{answers}\n")
    (tmp_path / "mpicc").chmod(0o755)
    test = next(
        test for test in recipe_resolution.image_tests(recipe_chain.read("compute", tmp_path, {})) if test.name == "wrong_paths"
    )
    settings = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FOLDER": str(tmp_path)}
    done = subprocess.run(["/bin/sh", "-e", "-c", test.run], env=settings, capture_output=True, check=False)
    assert (done.returncode == 0) is passes, done


@pytest.mark.parametrize("recipe", recipe_files.shipped_names())
def test_no_clock_of_its_own_ends_a_test_that_runs_on_slow_machines(recipe: str, tmp_path: Path) -> None:
    found = [
        test
        for test in recipe_resolution.image_tests(recipe_chain.read(recipe, tmp_path, {}, by_name=True))
        if test.where is not Where.SANDBOX
    ]
    assert found
    assert [test.name for test in found if re.search(r"\btimeout\b", test.run)] == []


@pytest.mark.parametrize(
    ("answers", "passes"),
    [(b"SSH-2.0-OpenSSH_9.2\r\n", True), (b"220 mail\r\n", False), (b"", False)],
    ids=["SSH", "mail", "nothing"],
)
def test_who_answers_at_the_port_of_ssh(tmp_path: Path, answers: bytes, passes: bool) -> None:
    test = next(
        test
        for test in recipe_resolution.image_tests(recipe_chain.read("site", tmp_path, {}, by_name=True))
        if test.name == "ssh_answers"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        script = test.run.replace("/127.0.0.1/22 ", f"/127.0.0.1/{server.getsockname()[1]} ")
        assert script != test.run
        with subprocess.Popen(["/bin/sh", "-e", "-c", script], stderr=subprocess.DEVNULL) as asks:
            connection, _ = server.accept()
            with connection:
                connection.sendall(answers)
    assert (asks.returncode == 0) is passes


ADDRESS = "2: ens3    inet 10.0.0.7/24 metric 1024 brd 10.0.0.255 scope global dynamic ens3"
ROUTE = "default via 10.0.0.1 dev ens3 proto dhcp src 10.0.0.7 metric 1024"


def network(address: str, route: str) -> dict[str, str]:
    """An `ip` as iproute2's: where there is none of what is asked for, it says nothing and ends with 0."""
    asked = {"-4 -o address show scope global": address, "-4 route show default": route}
    cases = " ".join(f"'{words}') printf %s '{line}';;" for words, line in asked.items())
    return {"ip": f'case "$*" in {cases} *) echo "what is $*?" >&2; exit 255;; esac'}


def manager(state: str, code: int) -> dict[str, str]:
    """A `systemctl` of a manager in that state: it ends with 0 for `running` alone."""
    return {"systemctl": f"case $1 in is-system-running) echo {state}; exit {code};; esac"}


def mounted(kind: str) -> dict[str, str]:
    return {"findmnt": f'test "$*" = "--noheadings --output FSTYPE /" && echo {kind}'}


@pytest.mark.parametrize(
    ("name", "programs", "passes"),
    [
        pytest.param("network_is_up", network(ADDRESS, ROUTE), True, id="address and route"),
        pytest.param("network_is_up", network("", ROUTE), False, id="no address"),
        pytest.param("network_is_up", network(ADDRESS, ""), False, id="no route"),
        pytest.param("network_is_up", network("", ""), False, id="no network"),
        pytest.param("network_is_up", {"ip": "exit 255"}, False, id="ip cannot answer"),
        pytest.param("systemd_is_up", manager("running", 0), True, id="running"),
        pytest.param("systemd_is_up", manager("starting", 1), True, id="starting"),
        pytest.param("systemd_is_up", manager("degraded", 1), False, id="a unit failed"),
        pytest.param("systemd_is_up", manager("maintenance", 1), False, id="rescue mode"),
        pytest.param("systemd_is_up", {"systemctl": "exit 1"}, False, id="systemctl cannot answer"),
        pytest.param("root_is_overlay", mounted("overlay"), True, id="overlay"),
        pytest.param("root_is_overlay", mounted("ext4"), False, id="a disk"),
        pytest.param("root_is_overlay", {"findmnt": "exit 1"}, False, id="findmnt cannot answer"),
    ],
)
def test_what_a_booted_node_says_of_itself(tmp_path: Path, name: str, programs: dict[str, str], passes: bool) -> None:
    for program, does in programs.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / program).chmod(0o755)
    test = next(
        test for test in recipe_resolution.image_tests(recipe_chain.read("base", tmp_path, {}, by_name=True)) if test.name == name
    )
    settings = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/sh", "-e", "-c", test.run], env=settings, capture_output=True, check=False)
    assert (done.returncode == 0) is passes, done
