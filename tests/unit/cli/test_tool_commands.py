"""The commands beside the pipeline: `simulate` for other tools, `exec` for any manifest of the portable subset."""

import json
import os
import shlex
import signal
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from steps.clients.kube import kubeconfig
from tests.unit.cli.conftest import COMMAND, until
from workflows.nodeimage import package_resolution

CASES = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[4] / "shared") / "argo_conformance/cases"


def test_simulate_serves_a_cluster_until_ctrl_c(machine: Any) -> None:
    config = machine.folder / "kubeconfig"
    served = machine.start("simulate", "h200-16", "--kubeconfig-out", config)
    served.say("Ctrl-C ends it")
    assert config.stat().st_mode & 0o777 == 0o600
    api = kubeconfig.load(config)
    headers = {"Authorization": f"Bearer {api.token}"}
    with urllib3.PoolManager(ssl_context=ssl.create_default_context(cadata=api.ca)) as http:

        def ready() -> int:
            listed = json.loads(http.request("GET", f"{api.server}/api/v1/nodes", headers=headers).data)["items"]
            shown = [(one["type"], one["status"]) for node in listed for one in node["status"].get("conditions", ())]
            return shown.count(("Ready", "True"))

        until(lambda: ready() == 19, "19 nodes that are ready")
    taken = machine.call("simulate", "h200-16", "--kubeconfig-out", config)
    assert taken.code == 64
    assert f"{config} exists already" in taken.err
    served.send(signal.SIGINT)
    done = served.end()
    assert done.code == 0, done.text
    assert not config.exists()
    assert machine.processes() == []


@pytest.mark.parametrize(("case", "code"), [("exit-codes", 65), ("items-lists", 0)])
def test_exec_does_what_the_controller_did(machine: Any, case: str, code: int) -> None:
    recorded = json.loads((CASES / case / "recorded.json").read_text())
    done = machine.call("exec", CASES / case / "workflow.yaml", "--yes", "--record", machine.folder / "record.json")
    assert done.code == code, done.text
    made = json.loads((machine.folder / "record.json").read_text())
    assert made["phase"] == recorded["phase"]
    assert len(made["nodes"]) == len(recorded["nodes"])
    lines = done.out.splitlines()
    bad = lines[lines.index(f"{recorded['phase']}: {len(recorded['nodes'])} nodes") + 1 :]
    failed = {node["name"] for node in recorded["nodes"] if node["type"] == "Pod" and node["phase"] != "Succeeded"}
    assert {line.split(":")[0].strip() for line in bad} == failed
    assert all("exit code" in line for line in bad)


HELLO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: hello}
spec:
  entrypoint: main
  templates:
  - {name: main, container: {image: busybox, command: [sh, -c], args: ["echo hello; touch /tmp/made; echo end"]}}
"""


def test_exec_says_what_it_runs_as_whom_and_asks(machine: Any) -> None:
    (machine.folder / "hello.yaml").write_text(HELLO)
    asked = machine.call("exec", "hello.yaml", "--record", "record.json")
    assert asked.code == 64
    for words in ("runs 1 command on this machine", "as user ", "main: sh -c echo hello", "nobody is here to ask", "add --yes"):
        assert words in asked.err
    assert not (machine.folder / "record.json").exists()


def test_exec_shows_what_the_tasks_write(machine: Any) -> None:
    (machine.folder / "hello.yaml").write_text(HELLO)
    done = machine.call("exec", "hello.yaml", "--yes")
    assert (done.code, done.out.splitlines()) == (0, ["hello: hello", "hello: end", "Succeeded: 1 node"])


def test_lint_checks_without_running(machine: Any) -> None:
    (machine.folder / "good.yaml").write_text(HELLO)
    done = machine.call("lint", "good.yaml")
    assert (done.code, done.out.splitlines()[-1]) == (0, "good.yaml: accepted")
    assert "noted  spec.templates[0].container.image: only Argo acts on this" in done.out
    (machine.folder / "bad.yaml").write_text(HELLO.replace("name: hello", "name: hello, labels: {team: no}"))
    done = machine.call("lint", "bad.yaml", "-o", "json")
    assert done.code == 64
    assert [row["path"] for row in json.loads(done.out) if row["severity"] == "refused"] == ["metadata.labels.team"]
    assert machine.call("lint", "nowhere.yaml").code == 64


def test_exec_refuses_what_is_outside_of_the_subset(machine: Any) -> None:
    templates = [{"name": "main", "http": {"url": "http://127.0.0.1"}}, {"name": "more", "data": {"source": {}}}]
    manifest = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "web"},
        "spec": {"entrypoint": "main", "templates": templates},
    }
    (machine.folder / "web.yaml").write_text(yaml.safe_dump(manifest))
    done = machine.call("exec", "web.yaml", "--record", "record.json")
    assert done.code == 64
    for place in ("spec.templates[0].http", "spec.templates[1].data"):
        assert f"{place}: this kind of template is not supported by both engines" in done.err
    assert not (machine.folder / "record.json").exists()
    assert machine.call("exec", "nowhere.yaml", "--record", "record.json").code == 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "manifest.yaml: cannot be read: No such file or directory"),
        (b"a: [1\nb: 2", "manifest.yaml: cannot be read: it is not YAML: line 2: "),
        (b"\xff\xfe\xfa", "manifest.yaml: cannot be read: it is not UTF-8 text"),
        (b"kind: Pod", "manifest.yaml: holds 0 objects of kind Workflow"),
    ],
)
def test_exec_says_in_one_sentence_why_it_cannot_read_a_manifest(machine: Any, text: bytes | None, said: str) -> None:
    if text is not None:
        (machine.folder / "manifest.yaml").write_bytes(text)
    done = machine.call("exec", "manifest.yaml")
    assert done.code == 64
    assert done.err.startswith(f"error: {said}")
    assert done.err.splitlines()[1:] == (["hint: name the file of a Workflow manifest"] if text is None else [])


@pytest.mark.parametrize("command", ["plan", "render", "faults", "schema"])
def test_a_reader_that_leaves_is_no_error(machine: Any, command: str) -> None:
    spec = ["h200-16"] if command in ("plan", "render") else []
    line = f"{shlex.join([str(COMMAND), command, *spec])} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=machine.environment({}), timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_takes_a_home_that_can_be_made(machine: Any) -> None:
    def home(**environment: str | None) -> tuple[str, bool]:
        rows = json.loads(machine.call("doctor", "-o", "json", **environment).out)
        return next((row["needs"], row["there"]) for row in rows if "writable" in row["needs"] or "folder for runs" in row["needs"])

    assert home() == (f"{machine.home} is writable", True)
    assert not machine.home.exists()
    folder = str(machine.folder / "a/b")
    assert home(BRINGUP_HOME=None, XDG_STATE_HOME=None, HOME=folder) == (f"{folder}/.local/state/bringup is writable", True)
    assert home(BRINGUP_HOME=None, XDG_STATE_HOME=None, HOME=None) == ("a folder for runs", False)
    (machine.folder / "file").write_text("")
    assert home(BRINGUP_HOME=str(machine.folder / "file/home")) == (f"{machine.folder}/file/home is writable", False)


def test_doctor_says_what_builds_as_another_user_and_boots_need(command: str) -> None:
    def rows(*prefix: str) -> dict[str, tuple[bool, str]]:
        done = subprocess.run(
            [*prefix, command, "doctor", "-o", "json"], capture_output=True, text=True, env=os.environ | {"HOME": "/"}
        )
        return {row["needs"]: (row["there"], row["install"]) for row in json.loads(done.stdout) if row["for"] == "node images"}

    mounts = "mounts as root, or in user namespaces with subordinate ids"
    found = rows()
    key = found["Debian's key, for locks of the shipped recipes"]
    debian = package_resolution.DISTRIBUTIONS["debian"]
    assert key == (Path(debian.keyring).is_file(), f"apt-get install {debian.keyring_package}")
    assert "apt-get install ovmf" in found["UEFI firmware for test machines"]
    assert "apt-get install ipxe-qemu" in found["iPXE's ROM for test machines"]
    assert mounts in found
    if os.geteuid() == 0:
        there, why = rows("setpriv", "--bounding-set=-sys_admin")[mounts]
        assert not there
        assert "this root may not mount" in why


def test_doctor_names_what_builds_stacks_with_its_version(machine: Any, tmp_path: Path) -> None:
    def rows(environment: dict[str, str]) -> dict[str, bool]:
        listed = json.loads(machine.call("doctor", "-o", "json", **environment).out)
        return {row["needs"]: row["there"] for row in listed if row["for"] == "software stacks"}

    programs = {"bwrap": "echo bubblewrap 0.8.0", "spack": "echo 0.23.1", "zstd": "true"}
    lmod, python = tmp_path / "lmod", tmp_path / "python"
    files = {lmod / "libexec/lmod": "echo 'Modules based on Lua: Version 8.7.30  2023-08-30' >&2", python: "echo 5.4.1"}
    files |= {lmod / "libexec/spider": "", lmod / "init/bash": ""} | {tmp_path / name: text for name, text in programs.items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    named = {"LMOD_PKG": str(lmod), "EB_PYTHON": str(python), "RFM_PYTHON": str(python)}
    assert rows({"PATH": str(tmp_path), **named}) == {
        "zstd": True,
        "bubblewrap 0.8.0": True,
        "Lmod 8.7.30": True,
        "a builder: EasyBuild 5.4.1, Spack 0.23.1": True,
        "ReFrame 5.4.1, if a spec names tests of it": True,
    }
    python.write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "spack").unlink()
    (tmp_path / "bwrap").unlink()
    lacking = rows({"PATH": str(tmp_path), **named})
    assert lacking == {
        "zstd": True,
        "bubblewrap": False,
        "Lmod 8.7.30": True,
        "a builder: EasyBuild or Spack": False,
        "ReFrame, if a spec names tests of it": False,
    }


def test_without_loopback_a_rehearsal_ends_at_once(machine: Any) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no network namespaces")
    done = subprocess.run([*alone, COMMAND, "rehearse"], capture_output=True, text=True, env=machine.environment({}), timeout=60)
    assert done.returncode == 64
    assert "error: no loopback interface" in done.stderr
    assert "hint: ip link set lo up" in done.stderr
    assert not machine.home.exists()
