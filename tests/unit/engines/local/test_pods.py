"""Pods of the local engine: paths, environment, logs, outputs, results and how many run at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workflows.engines.local.executor import LARGEST_PARAMETER, expand
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.result import read_status
from workflows.engines.local.run_settings import RunPaths, slug

Make = Callable[..., dict[str, Any]]


def output(name: str = "v") -> dict[str, Any]:
    return {"parameters": [{"name": name, "valueFrom": {"path": f"/bringup/out/{name}"}}]}


def node(tmp_path: Path, workflow: dict[str, Any], path: str = "wf.a", **more: Any) -> Any:
    return LocalEngine(tmp_path / "run", workflow, **more).run().state.nodes[path]


def test_bringup_paths_lie_in_the_run(tmp_path: Path, manifest: Make, script: Make) -> None:
    text = 'echo "$BRINGUP_OUT $BRINGUP_TASKS /bringup/secrets/token x/bringup/out /bringup/outer" > /bringup/out/v'
    env = [{"name": "BRINGUP_OUT", "value": "/bringup/out"}, {"name": "BRINGUP_TASKS", "value": "/bringup/tasks"}]
    template = script("a", text, outputs=output())
    template["container"]["env"] = env
    paths = RunPaths(tmp_path / "T", tmp_path / "F", tmp_path / "S", tmp_path / "store")
    found = node(tmp_path, manifest([{"name": "a", "template": "a"}], [template]), paths=paths)
    out, tasks, secret, inside, outer = found.outputs.parameters["v"].split()
    assert (tasks, secret) == (str(tmp_path / "T"), str(tmp_path / "S" / "token"))
    assert Path(out).parent == tmp_path / "run/out"
    assert (inside, outer) == ("x/bringup/out", "/bringup/outer")
    assert (tmp_path / "S").stat().st_mode & 0o777 == 0o700


def test_children_get_the_given_environment_and_nothing_else(tmp_path: Path, manifest: Make, script: Make) -> None:
    workflow = manifest(
        [{"name": "a", "template": "a"}], [script("a", "env | cut -d= -f1 | sort > /bringup/out/v", outputs=output())]
    )
    found = node(tmp_path, workflow, environment={"PATH": "/usr/bin:/bin", "GIVEN": "x"})
    names = set(found.outputs.parameters["v"].split())
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "GIVEN", "BRINGUP_ENGINE_TOKEN"}


def test_children_inherit_how_this_machine_reaches_others(
    tmp_path: Path, manifest: Make, script: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"http_proxy": "http://proxy.example:3128", "NO_PROXY": ".example.org", "SSL_CERT_FILE": "/etc/ssl/site.pem"}
    for name, value in {**told, "AWS_SECRET_ACCESS_KEY": "none of a step's business"}.items():
        monkeypatch.setenv(name, value)
    found = node(
        tmp_path, manifest([{"name": "a", "template": "a"}], [script("a", "env > /bringup/out/v", outputs=output())])
    ).outputs.parameters["v"]
    seen = dict(line.split("=", 1) for line in found.splitlines())
    assert {name: seen.get(name) for name in told} == told
    assert "AWS_SECRET_ACCESS_KEY" not in seen


def test_logs_and_result(tmp_path: Path, manifest: Make, script: Make) -> None:
    tasks = [
        {"name": "a", "template": "a"},
        {
            "name": "b",
            "template": "b",
            "depends": "a",
            "arguments": {"parameters": [{"name": "r", "value": "{{tasks.a.outputs.result}}"}]},
        },
    ]
    templates = [
        script("a", "echo seen; echo err >&2"),
        script("b", "echo got {{inputs.parameters.r}}", inputs={"parameters": [{"name": "r"}]}),
    ]
    result = LocalEngine(tmp_path / "run", manifest(tasks, templates)).run()
    assert result.state.nodes["wf.a"].outputs.result == "seen"
    logs = {node.path: tmp_path / "run" / node.log for node in read_status(tmp_path / "run").nodes}
    assert logs["wf.b"].read_text() == "got seen\n"
    assert "err" in logs["wf.a"].read_text()


def test_each_attempt_has_its_own_folder(tmp_path: Path, manifest: Make, script: Make) -> None:
    text = "[ ! -e /bringup/out/v ] || exit 9; echo {{retries}} > /bringup/out/v; [ {{retries}} = 1 ]"
    workflow = manifest([{"name": "a", "template": "a"}], [script("a", text, outputs=output(), retryStrategy={"limit": 2})])
    found = node(tmp_path, workflow)
    assert found.phase == "Succeeded"
    assert found.outputs.parameters == {"v": "1"}


def test_a_huge_output_is_refused(tmp_path: Path, manifest: Make, script: Make) -> None:
    text = f"head -c {LARGEST_PARAMETER + 1} /dev/zero > /bringup/out/v"
    found = node(tmp_path, manifest([{"name": "a", "template": "a"}], [script("a", text, outputs=output())]))
    assert found.phase == "Error"
    assert "larger than" in found.message


@pytest.mark.parametrize(
    ("command", "phrase"),
    [
        (["/no/such/binary"], "no such file"),
        (["/etc/passwd"], "permission denied"),
        (["no-such-word"], "executable file not found in $PATH"),
    ],
)
def test_a_command_that_cannot_be_started_is_a_failed_pod(tmp_path: Path, manifest: Make, command: list[str], phrase: str) -> None:
    workflow = manifest([{"name": "a", "template": "a"}], [{"name": "a", "container": {"image": "none", "command": command}}])
    found = node(tmp_path, workflow)
    assert (found.phase, found.outputs.exit_code) == ("Failed", 64)
    assert phrase in found.message


def test_parallelism_of_the_engine_bounds_pods(tmp_path: Path, manifest: Make, script: Make) -> None:
    tasks = [{"name": "fan", "template": "t", "withSequence": {"count": "9"}}]
    result = LocalEngine(tmp_path / "run", manifest(tasks, [script("t", "sleep 0.05")]), parallelism=3).run()
    assert result.phase == "Succeeded"
    assert result.most_pods == 3


def test_what_is_noted_stands_in_the_status(tmp_path: Path, manifest: Make, script: Make) -> None:
    workflow = manifest([{"name": "a", "template": "a"}], [script("a", "exit 0")], serviceAccountName="step")
    LocalEngine(tmp_path / "run", workflow).run()
    notes = read_status(tmp_path / "run").notes
    assert any(note.startswith("spec.serviceAccountName: ") for note in notes)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("$(A) $$(A) $$ $(B) $(A-b)", "x $(A) $ $(B) $(A-b)"), ("$A ${A} $(", "$A ${A} $("), ("$$$$", "$$")],
)
def test_kubernetes_expansion(text: str, expanded: str) -> None:
    assert expand(text, {"A": "x"}) == expanded


def test_file_names_of_nodes_are_safe_and_distinct() -> None:
    names = {slug(path) for path in ("wf.a(0:x/../y)", "wf.a(0:x..y)", "wf.a" * 200, "wf.ä(1:ö)")}
    assert len(names) == 4
    assert all("/" not in name and len(name) < 128 for name in names)


@pytest.mark.parametrize(("limit", "kibibytes"), [("512Mi", "524288"), ("1.5Gi", "1572864"), ("1G", "976562"), (None, None)])
def test_a_pod_dumps_no_core_and_has_its_memory_limit(
    tmp_path: Path, manifest: Make, script: Make, limit: str | None, kibibytes: str | None
) -> None:
    data = kibibytes or subprocess.run(["sh", "-c", "ulimit -d"], capture_output=True, text=True, check=True).stdout.strip()
    text = f'until [ "$(ulimit -c) $(ulimit -d)" = "0 {data}" ]; do :; done; touch /bringup/store/limited'
    template = script("a", text, activeDeadlineSeconds=20)
    if limit:
        template["container"]["resources"] = {"limits": {"memory": limit}}
    node(tmp_path, manifest([{"name": "a", "template": "a"}], [template]))
    assert (tmp_path / "run/store/limited").exists()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("mkfifo /bringup/out/v", "no regular file"),
        ("ln -s /dev/zero /bringup/out/v", "no regular file"),
        ("mkdir /bringup/out/v", "is a directory"),
        (f"head -c {LARGEST_PARAMETER + 1} /dev/zero > /bringup/out/v", "larger than"),
    ],
)
def test_an_output_that_is_no_file_neither_blocks_nor_fills_the_engine(
    command: str, reason: str, tmp_path: Path, manifest: Make, script: Make
) -> None:
    found = node(tmp_path, manifest([{"name": "a", "template": "a"}], [script("a", command, outputs=output())]))
    assert found.phase == "Error"
    assert found.message.startswith("wait: Error (exit code 64): open /bringup/out/v: " + reason)


def test_a_value_that_no_process_can_take_fails_its_pod_alone(tmp_path: Path, manifest: Make, script: Make) -> None:
    inputs = {"parameters": [{"name": "v"}]}
    arguments = {"parameters": [{"name": "v", "value": "{{item}}"}]}
    tasks = [{"name": "a", "template": "a", "withParam": '["x", "x\\u0000y"]', "arguments": arguments}]
    done = LocalEngine(tmp_path / "run", manifest(tasks, [script("a", ": {{inputs.parameters.v}}", inputs=inputs)])).run()
    ends = {path: (pod.phase, pod.message) for path, pod in done.state.nodes.items() if pod.type == "Pod"}
    assert ends["wf.a(0:x)"] == ("Succeeded", "")
    assert ends["wf.a(1:x\\u0000y)"] == ("Failed", 'main: Error (exit code 64): exec: "sh": invalid argument: embedded null byte')


@pytest.mark.parametrize("text", ["[" * 50_000 + "]" * 50_000, "[NaN]"])
def test_a_list_of_a_step_that_is_none_is_an_error_of_its_task(text: str, tmp_path: Path, manifest: Make, script: Make) -> None:
    tasks = [{"name": "a", "template": "a", "withParam": text}]
    found = node(tmp_path, manifest(tasks, [script("a", "true")]))
    assert (found.phase, "could not be parsed as a JSON list" in found.message) == ("Error", True)
