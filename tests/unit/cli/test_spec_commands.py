"""Commands before a run: what they print, how they end, that errors are one sentence on stderr."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from steps import __version__
from workflows import examples
from workflows.cli.main import run
from workflows.stages import IMAGE_ORDER

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
        (["valdiate"], "Did you mean 'validate'?"),
        (["plan", "h200-16", "--only", "rke3"], "'rke3' is no stage; did you mean rke2?"),
        (["render", "h200-16", "--namespace", "Bad NS"], "'Bad NS' cannot be a namespace"),
        (["render", "h200-16", "--image", "x y"], "'x y' is no image reference"),
        (["render", "h200-16", "--image", "registry.example.org/Steps:1"], "path in lower case"),
        (["rehearse", "--fault", "gpu_mising"], "did you mean gpu_missing"),
        (["rehearse", "--only", "rke2", "--only", "slurm"], "needs the stages between them too: base_services, gpu_operator"),
        (["simulate", "h200-16", "--kubeconfig-out", "k", "--fault", "nope"], "no fault 'nope'"),
        (["simulate", "h200-16", "--kubeconfig-out", "k", "--speed", "0"], "--speed 0 must be a number above 0"),
        (["simulate", "h200-16", "--kubeconfig-out", "k", "--speed", "-1"], "above 0"),
        (["simulate", "h200-16", "--kubeconfig-out", "k", "--speed", "nan"], "above 0"),
        (["run", "h200-16", "--only", "slurm"], "stage slurm works on the target cluster"),
        (["plan", "--nope"], "No such option: --nope"),
        (["plan", "nowhere.yaml"], "neither a file nor an example"),
        (["plan", "h200-16", "-o", "csv"], "no form of output"),
        (["init", "."], ". is a folder: name a file in it, such as cluster.yaml"),
        (["diff-runs", "a", "b"], "no run a on this machine"),
        (["explain", "nonsense"], "nothing is known about 'nonsense'\nhint"),
        (["inventory", "h200-16", "-o", "xml"], "'--output' / '-o': 'xml' is not one of"),
        (["plan", "h200-16", "--only", "os-prep"], "no stage"),
        (["render", "h200-16", "--pipeline", "day2"], "no pipeline"),
        (["rehearse", "--fault", "gpu_mising"], "gpu_mising"),
        (["run", "three-hosts", "--engine", "none"], "use local or argo"),
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
    assert "bug:" not in err
    assert len(err.splitlines()[0]) < 300
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


@pytest.mark.parametrize("command", ["validate", "plan"])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_scripts_get_the_errors_of_a_spec_as_data(call: Call, tmp_path: Path, command: str, form: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(examples.path("h200-16").read_text().replace("cni: canal", "cnni: canal"))
    code, out, err = call(command, str(path), "-o", form)
    assert (code, err) == (64, "")
    said = yaml.safe_load(out)
    assert said["valid"] is False
    (issue,) = said["issues"]
    assert (issue["path"], issue["severity"], issue["problem"]) == ("rke2.cnni", "error", "cnni is not a key of this section")
    assert issue["fix"] == "did you mean cni?"
    assert path.read_text().splitlines()[issue["line"] - 1].strip() == "cnni: canal"


def test_what_a_rule_finds_comes_with_its_source_and_what_is_checked_later(call: Call) -> None:
    issues = {issue["rule"]: issue for issue in json.loads(call("validate", "h200-16", "-o", "json")[1])["issues"]}
    assert issues["P02"]["source"].endswith("network-operator-docs/blob/main/docs/platform-support.rst")
    assert issues["P02"]["later"] == ["network_operator/nodes"]
    assert issues["P02"]["line"]


def test_a_rule_that_refuses_is_data_for_plan_as_well(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(examples.path("h200-16").read_text().replace("v1.35.7+rke2r1", "v1.31.1+rke2r1"))
    code, out, _ = call("plan", str(path), "-o", "json")
    assert code == 64
    assert "P01" in {issue["rule"] for issue in json.loads(out)["issues"] if issue["severity"] == "error"}
    assert call("plan", "h200-16", "--against", str(path), "-o", "json")[0] == 64


def test_a_kubelet_policy_that_no_pod_with_a_whole_node_satisfies_is_refused_in_the_plan(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "numa.yaml"
    path.write_text(
        examples.path("h200-16")
        .read_text()
        .replace("\nrke2:\n", "\nrke2:\n  kubelet_args: {topology-manager-policy: single-numa-node}\n")
    )
    code, out, err = call("plan", str(path))
    assert (code, out) == (64, "")
    said = " ".join(err.split())
    assert "rke2.kubelet_args.topology-manager-policy error P16: single-numa-node rejects the pods of" in said
    assert "slurm, validation, which ask for all 8 GPUs (they are on two NUMA nodes)" in said
    assert "use restricted or best-effort: pods with fewer GPUs are still aligned" in said
    path.write_text(path.read_text().replace("single-numa-node", "restricted"))
    assert call("plan", str(path))[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "fix"),
    [
        ("\naccelerator:", "\nacelerator:", "did you mean accelerator?"),
        ("\nhosts:", "\nhots:", "did you mean hosts?"),
        ("\nscheduler:", "\nschedular:", "did you mean scheduler?"),
        ("name: h200-16", 'name: "Bad Name!"', "write bad-name"),
        ("\nquorum:", "\nquorum:\n  gpu_operator: 150%", "put it below stages"),
        ("version: v1.35.7+rke2r1", "version: 1.35", "write v1.35.7+rke2r1"),
    ],
)
def test_one_slip_is_one_error_with_a_fix_that_works(call: Call, tmp_path: Path, old: str, new: str, fix: str) -> None:
    path = tmp_path / "slip.yaml"
    text = examples.path("h200-16").read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    code, _, err = call("validate", str(path))
    assert code == 64
    assert "has 1 error\n" in err
    assert f"  fix    {fix}" in err


def test_the_command_alone_prints_its_help(call: Call) -> None:
    for arguments in ((), ("image",)):
        code, out, err = call(*arguments)
        assert (code, err) == (0, "")
        assert "Usage: bringup" in out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("init", "nowhere/cluster.yaml"), "its folder is not there"),
        (("plan", "."), "give the path of a spec file"),
        (("init", ".", "--force"), "name a file"),
    ],
)
def test_what_to_do_about_a_file_depends_on_the_file(
    call: Call, arguments: tuple[str, ...], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call(*arguments)
    assert code == 64
    assert hint in err
    assert "BRINGUP_HOME" not in err


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


def test_a_difference_has_its_old_and_its_new_value(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    text = examples.path("h200-16").read_text()
    path.write_text(text.replace("cni: canal", "cni: cilium").replace("ada@example.org", "eve@example.org"))
    lines = call("plan", str(path), "--against", "h200-16")[1].splitlines()
    assert "task rke2.servers runs again: arguments.variables.rke2_cni: [canal] → [cilium]" in lines
    assert "approval before validation: approvers.eve@example.org: (none) → by name" in lines
    assert not any("confirm" in line for line in lines)
    made = json.loads(call("plan", str(path), "--against", "h200-16", "-o", "json")[1])
    assert made == yaml.safe_load(call("plan", str(path), "--against", "h200-16", "-o", "yaml")[1])
    found = {(one["what"], one["name"], one["path"]): one for one in made["differences"]}
    task = found["task", "rke2.servers", "arguments.variables.rke2_cni"]
    assert (task["how"], task["before"], task["after"]) == ("changed", ["canal"], ["cilium"])


def test_the_plan_shows_approvals_and_each_release_s_whole_life(call: Call) -> None:
    out = call("plan", "h200-16")[1]
    assert "before validation: ada@example.org" in " ".join(out.split())
    block = out[out.index("release gpu_operator v26.3.3 in namespace gpu-operator (stage gpu_operator)") :].split("release ")[1]
    for part in (
        "source: https://helm.ngc.nvidia.com/nvidia gpu-operator",
        "rollout: ",
        "healthy when: ClusterPolicy",
        "rollback: pin",
    ):
        assert f"  {part}" in block
    assert out.count("\nrelease ") == len(json.loads(call("plan", "h200-16", "-o", "json")[1])["releases"])


def test_a_narrow_plan_is_wrapped_and_never_cut(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = call("plan", "multi-rack-232")[1]
    ranges = json.loads(call("plan", "multi-rack-232", "-o", "json")[1])["hosts"]["ranges"]
    assert "…" not in out
    table = out[: out.index("\nrelease ")].splitlines()[3:]
    assert all(len(line) <= 60 or " " not in line.strip() for line in table), max(table, key=len)
    assert max(ranges.split("],"), key=len) in out


def test_faults_stages_and_doctor_have_data_for_scripts(call: Call) -> None:
    faults = json.loads(call("faults", "-o", "json")[1])
    assert len(faults) >= 18
    assert {"name", "gate", "summary", "caught_by"} <= faults[0].keys()
    stages = json.loads(call("stages", "-o", "json")[1])
    assert Counter(row["pipeline"] for row in stages) == {
        "bring-up": 10,
        "operation": 1,
        "image": 7,
        "stack": 4,
        "factory": 8,
        "slurm": 1,
    }
    assert any(row["for"] == "rehearsal" for row in json.loads(call("doctor", "-o", "json")[1]))


def test_an_installation_may_be_named_by_the_environment(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def template(*options: str) -> tuple[set[str], object]:
        assert call("render", "three-hosts", "--out", str(tmp_path), *options)[0] == 0
        spec = yaml.safe_load((tmp_path / "workflowtemplate.yaml").read_text())["spec"]
        return {one["container"]["image"] for one in spec["templates"] if "container" in one}, spec.get("imagePullSecrets")

    for name in ("BRINGUP_IMAGE", "BRINGUP_PULL_SECRET"):
        monkeypatch.delenv(name, raising=False)
    assert template() == ({f"bringup-steps:{__version__}"}, None)
    monkeypatch.setenv("BRINGUP_IMAGE", "registry.example.org/bringup-steps:1")
    monkeypatch.setenv("BRINGUP_PULL_SECRET", "registry-login")
    assert template() == ({"registry.example.org/bringup-steps:1"}, [{"name": "registry-login"}])
    assert template("--image", "other:2")[0] == {"other:2"}
    monkeypatch.setenv("BRINGUP_PULL_SECRET", "No Secret")
    assert "BRINGUP_PULL_SECRET='No Secret' is no name of a Secret" in call("render", "three-hosts")[2]


@pytest.fixture
def image_spec(tmp_path: Path) -> str:
    """The spec of a node image."""
    file = tmp_path / "image.yaml"
    told = {"apiVersion": "bringup/v1", "kind": "Image", "name": "lab", "owner": "hpc", "revision": "1", "recipe": "base"}
    file.write_text(yaml.safe_dump({**told, "publish": {"root": "/srv/images", "url": "http://boot.example.org/images"}}))
    return str(file)


def test_an_image_spec_is_planned_as_what_it_is(call: Call, image_spec: str) -> None:
    data = json.loads(call("plan", image_spec, "-o", "json")[1])
    assert [stage["id"] for stage in data["stages"]] == list(IMAGE_ORDER)
    code, out, _ = call("plan", image_spec)
    assert (code, "image_boot" in out, "target" in out.splitlines()[1]) == (0, True, False)
    assert "hosts" not in call("plan", image_spec, "-o", "tree")[1].splitlines()[0]
    narrow = json.loads(call("plan", image_spec, "--until", "image_lock", "-o", "json")[1])
    assert [stage["id"] for stage in narrow["stages"]] == ["image_lock"]
    for words in (("--only", "image_lock"), ("--operation", "upgrade")):
        code, _, err = call("plan", image_spec, *words)
        assert (code, "is an image spec" in err) == (64, True), words
    code, _, err = call("plan", image_spec, "--against", "three-hosts")
    assert (code, "nothing to compare" in err) == (64, True)


def test_an_image_spec_is_rendered_as_what_it_is(call: Call, image_spec: str) -> None:
    for words in ((), ("--pipeline", "image")):
        code, out, err = call("render", image_spec, "--builder-image", "registry.example.org/builder:1", *words)
        assert code == 0, err
        template = next(one for one in yaml.safe_load_all(out) if one["kind"] == "WorkflowTemplate")
        assert template["metadata"]["labels"]["bringup/pipeline"] == "image"
        used = {one["container"]["image"] for one in template["spec"]["templates"] if "container" in one}
        assert "registry.example.org/builder:1" in used
    for source, pipeline in ((image_spec, "bringup"), ("three-hosts", "image")):
        code, _, err = call("render", source, "--pipeline", pipeline)
        assert (code, f"pipeline {pipeline} cannot be rendered from it" in err) == (64, True)


@pytest.mark.parametrize("command", [["validate"], ["validate", "-o", "json"], ["inventory"]])
def test_a_spec_may_come_through_a_pipe(call: Call, tmp_path: Path, command: list[str]) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", examples.path("h200-16"), pipe]) as writer:
        code, out, err = call(*command, str(pipe))
        assert code == 0, out + err
    assert writer.returncode == 0


@pytest.mark.parametrize(
    "arguments", [["run"], ["rehearse"], ["host-keys"], ["inventory"], ["reset", "--yes"], ["add-node", "--hosts", "n1"]]
)
@pytest.mark.parametrize(
    ("kind", "fix"), [("Image", "bringup image build"), ("ImageRecipe", "image spec"), ("Stack", "bringup stack build")]
)
def test_a_file_of_another_kind_is_one_error_that_says_what_it_is(
    call: Call, tmp_path: Path, arguments: list[str], kind: str, fix: str
) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(f"apiVersion: bringup/v1\nkind: {kind}\nname: x\n")
    code, _, err = call(*arguments, str(path))
    assert code == 64
    assert "has 1 error" in err
    assert "none of a cluster" in err
    assert fix in err


@pytest.mark.parametrize("command", ["run", "inventory"])
def test_a_factory_is_no_cluster(call: Call, tmp_path: Path, command: str) -> None:
    path = tmp_path / "factory.yaml"
    path.write_text("apiVersion: bringup/v1\nkind: Factory\nname: x\n")
    code, _, err = call(command, str(path))
    assert code == 64
    assert "bringup factory up" in err


@pytest.mark.parametrize("arguments", [["image", "lock"], ["image", "update"], ["image", "build"]])
def test_an_image_spec_that_is_not_there_is_offered(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call(*arguments)
    assert code == 64
    assert "write one with `bringup init --image`" in err
