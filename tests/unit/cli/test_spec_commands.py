"""Commands before a run: what they print, how they end, that errors are one sentence on stderr."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from workflows import examples
from workflows.cli.main import run

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs one command line: exit code, stdout, stderr."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fly"], "No such command 'fly'"),
        (["plan", "--nope"], "No such option: --nope"),
        (["plan", "nowhere.yaml"], "neither a file nor an example"),
        (["plan", "h200-16", "-o", "csv"], "no form of output"),
        (["plan", "h200-16", "--only", "os-prep"], "no stage"),
        (["render", "h200-16", "--pipeline", "day2"], "no pipeline"),
        (["rehearse", "--fault", "gpu_mising"], "gpu_mising"),
        (["run", "three-hosts", "--engine", "argo"], "not in this version"),
        (["status", "nothing"], "no run 'nothing'"),
        (["report", "nothing"], "no run 'nothing'"),
        (["approve", "nothing"], "--as NAME"),
        (["verify", "/nowhere"], "no seal.json"),
        (["exec", "/nowhere.yaml", "--record", "/tmp/x"], "/nowhere.yaml"),
    ],
)
def test_usage_errors_end_with_64_and_one_sentence_on_stderr(
    call: Call, arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path))
    code, out, err = call(*arguments)
    assert code == 64
    assert said in err
    assert "Traceback" not in err
    assert not out


def test_debug_shows_a_traceback(call: Call) -> None:
    assert "Traceback" in call("--debug", "plan", "nowhere.yaml")[2]


def test_version_and_help(call: Call) -> None:
    assert call("--version")[1].startswith("bringup ")
    assert "rehearse" in call("--help")[1]


def test_init_writes_a_spec_that_validates_and_never_over_a_file(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    assert call("init", str(path))[0] == 0
    assert call("validate", str(path))[0] == 0
    code, _, err = call("init", str(path))
    assert code == 64
    assert "exists" in err
    assert call("init", str(path), "--force")[0] == 0


@pytest.mark.parametrize("name", examples.names())
def test_examples_validate_plan_and_render(call: Call, name: str, tmp_path: Path) -> None:
    code, out, _ = call("validate", name, "-o", "json")
    assert code == 0
    assert json.loads(out)["valid"] is True
    assert json.loads(call("plan", name, "-o", "json")[1])["digest"].startswith("sha256:")
    assert call("plan", name, "-o", "tree")[0] == 0
    assert call("render", name, "--out", str(tmp_path / name))[0] == 0
    assert yaml.safe_load((tmp_path / name / "workflow.yaml").read_text())["kind"] == "Workflow"


def test_render_to_the_terminal_is_one_stream_of_documents(call: Call) -> None:
    kinds = [document["kind"] for document in yaml.safe_load_all(call("render", "h200-16")[1])]
    assert kinds[:2] == ["WorkflowTemplate", "Workflow"]
    assert {"ConfigMap", "Role", "ClusterRole"} <= set(kinds)


def test_a_bad_spec_names_everything_at_once(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        examples.path("h200-16").read_text().replace("  per_node: 8", "  per_node: many", 1).replace("cni: canal", "cnni: canal")
    )
    code, _, err = call("validate", str(path))
    assert code == 64
    assert "2 errors" in err
    assert "accelerator.per_node" in err
    assert "cni" in err


def test_the_schema_is_one_and_takes_the_examples(call: Call) -> None:
    schema = json.loads(call("schema")[1])
    Draft202012Validator.check_schema(schema)
    for name in examples.names():
        Draft202012Validator(schema).validate(yaml.safe_load(examples.path(name).read_text()))


def test_plan_against_another_says_what_differs(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(examples.path("h200-16").read_text().replace("gpu[001-016]", "gpu[001-017]"))
    assert "hosts added: gpu017" in call("plan", str(path), "--against", "h200-16")[1]
    assert call("plan", "h200-16", "--against", "h200-16")[1] == "no difference\n"


def test_faults_stages_and_doctor_have_data_for_scripts(call: Call) -> None:
    faults = json.loads(call("faults", "-o", "json")[1])
    assert len(faults) >= 18
    assert {"name", "gate", "summary", "caught_by"} <= faults[0].keys()
    assert len(json.loads(call("stages", "-o", "json")[1])) == 9
    assert any(row["for"] == "rehearsal" for row in json.loads(call("doctor", "-o", "json")[1]))
