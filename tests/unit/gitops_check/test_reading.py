"""The command `gitops check` on folders, commits of Git and with a stand-in for helm: limits, forms, codes. Takes 4 s of CPU."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.gitops_check.test_cases import FRAGMENTS, tree
from workflows.cli.main import run

STAND_IN = """#!/bin/sh
# A stand-in for helm: it prints what a chart of one template might give, and where it was started.
case "$*" in *"template broken"*) echo "Error: template: nil pointer" >&2; exit 1;; esac
test -f "$3/Chart.yaml" || exit 3
grep -q volcano "$3/Chart.yaml" && exit 4
printf 'apiVersion: apps/v1\\nkind: Deployment\\nmetadata: {name: made}\\nspec:\\n  template:\\n    spec:\\n'
printf '      containers: [{name: made, image: "made:latest"}]\\n---\\n# proxy %s\\n' "$HTTPS_PROXY"
"""


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `bringup gitops check …`: exit code, stdout, stderr."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = run(["gitops", "check", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


HEAD = {"with": ["web"], "replace": {"apps/web.yaml": {"targetRevision: v1.0.0": "targetRevision: HEAD"}}}
MAIN = {"with": ["web"], "replace": {"apps/web.yaml": {"targetRevision: v1.0.0": "targetRevision: main"}}}


def test_exit_codes(call: Any, tmp_path: Path) -> None:
    clean, wrong, warned = (
        write(tmp_path / name, tree(case)) for name, case in (("a", {"with": ["web"]}), ("b", HEAD), ("c", MAIN))
    )
    code, out, _ = call(clean)
    assert (code, out.splitlines()[-1]) == (0, "0 errors, 0 warnings in 2 files (1 Application, 0 charts, 2 objects)")
    code, out, _ = call(wrong)
    assert code == 65
    assert "apps/web.yaml:12" in out
    assert call(warned)[0] == 0
    assert call(warned, "--strict")[0] == 65
    for words, sentence in (
        ((tmp_path / "absent",), "is no folder: name the checkout"),
        ((clean, "--against", "no-such-rev"), "the folder is in no work tree of Git"),
        ((clean, "--against", "--output=/tmp/x"), "expected a folder, or a revision of Git"),
    ):
        code, _, err = call(*words)
        assert code == 64
        assert sentence in err


def test_forms_for_scripts_ci_and_merge_requests(call: Any, tmp_path: Path) -> None:
    hostile = HEAD | {
        "files": {"web/map.yaml": "kind: ConfigMap\napiVersion: v1\nmetadata: {name: m}\ndata: {a: 'REPLACE_ME | <b>'}\n"}
    }
    folder, report = write(tmp_path / "tree", tree(hostile)), tmp_path / "report.xml"
    code, out, _ = call(folder, "-o", "json", "--junit", report)
    data = json.loads(out)
    assert code == 65
    assert data["errors"] == 2
    assert data["classes"]["manifest-generation"] == 2
    assert {"rule": "revision-floats", "file": "apps/web.yaml", "line": 12, "value": "HEAD"}.items() <= data["findings"][0].items()
    suites = ElementTree.fromstring(report.read_bytes())
    assert [suite.get("name") for suite in suites][:7] == list(data["classes"])
    failures = [case.get("name", "").partition(":")[0] for case in suites.iter("testcase") if case.find("failure") is not None]
    assert failures == ["revision-floats", "placeholder"]
    code, page, _ = call(folder, "-o", "markdown")
    assert "## manifest-generation" in page
    assert "`REPLACE_ME \\| <b>`" in page


def test_secrets_are_never_printed(call: Any, tmp_path: Path) -> None:
    canary = "canary-4711-battery-staple"
    secret = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{password: {canary}}}\n"
    values = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{adminPassword: {canary}, url: 'https://u:{canary}@h/x'}}\n"
    folder = write(tmp_path / "tree", tree({"with": ["web"], "files": {"web/s.yaml": secret, "web/v.yaml": values}}))
    report = tmp_path / "report.xml"
    texts = [call(folder, "-o", form, "--junit", report) for form in ("table", "json", "markdown")]
    assert all(code == 65 and out.count("secret-in-clear") >= 3 for code, out, _ in texts)
    assert not [text for text in (*(out + err for _, out, err in texts), report.read_text()) if canary in text]


def test_links_and_large_files_are_left_out(call: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text("kind: Secret\napiVersion: v1\nmetadata: {name: s}\nstringData: {a: b}\n")
    folder = write(tmp_path / "tree", tree({"with": ["web"]}))
    (folder / "web/link.yaml").symlink_to(outside)
    (folder / "web/up").symlink_to(tmp_path)
    (folder / "web/inner.yaml").symlink_to("deployment.yaml")
    (folder / "web/nowhere.yaml").symlink_to("absent.yaml")
    os.mkfifo(folder / "web/pipe.yaml")
    (folder / "web/large.yaml").write_bytes(b"a: b\n" * 500_000)
    code, out, _ = call(folder, "-o", "json")
    refused = {(entry["file"], entry["rule"]) for entry in json.loads(out)["findings"]}
    assert refused == {(f"web/{name}", "file-refused") for name in ("link.yaml", "up", "large.yaml", "nowhere.yaml", "pipe.yaml")}
    assert code == 0


def test_a_folder_of_which_nothing_is_read_fails(call: Any, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert call(folder)[0] == 65
    os.mkfifo(folder / "pipe.yaml")
    code, out, _ = call(folder)
    assert code == 65
    assert "pipe.yaml" in out
    assert "nothing was checked" in out.replace("\n", " ")


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@lab.test", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)


def test_a_sync_is_compared_with_a_commit(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    folder = write(repository / "lab", tree({"with": ["sunk"]}))
    git(tmp_path, "init", "-q", str(repository))
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    # a filter that must not be started
    (repository / ".git/info/attributes").write_text("* filter=x\n")
    git(repository, "config", "filter.x.smudge", f"touch {tmp_path}/started; cat")
    values = folder / "values/slurm.yaml"
    values.write_text(values.read_text().replace("gresGpu: h200:8", "gresGpu: h200:8\n      features: [fast]"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))  # as in a hook of another repository
    code, out, _ = call(folder, "--against", "HEAD", "-o", "json")
    [restart] = json.loads(out)["restarts"]
    assert (code, restart["owner"], restart["ends_jobs"]) == (0, "slurm", True)
    assert "compute.nodes.gpu.features" in restart["why"]
    code, out, _ = call(folder, "--against", "HEAD")
    assert "slurm restarts slurmd pods of NodeSet gpu, 10% at a time (compute.nodes.gpu.features); running jobs" in out
    assert not (tmp_path / "started").exists()
    assert "there is no revision v9" in call(folder, "--against", "v9")[2]


def test_a_chart_is_rendered_where_helm_is(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "tree", dict(FRAGMENTS["chart"]))
    empty = tmp_path / "bin"
    empty.mkdir()
    for program in ("env", "timeout", "prlimit", "sh", "grep", "printf", "test", "git"):
        (empty / program).symlink_to(Path("/usr/bin") / program)
    monkeypatch.setenv("PATH", str(empty))
    code, out, _ = call(folder)
    assert code == 0
    assert "tools/Chart.yaml: helm is not installed here" in out
    helm = empty / "helm"
    helm.write_text(STAND_IN)
    helm.chmod(0o755)
    code, out, _ = call(folder, "-o", "json")
    data = json.loads(out)
    assert code == 65
    assert [(entry["rule"], entry["file"], entry["value"]) for entry in data["findings"]] == [
        ("image-floats", "tools", "made:latest")
    ]
    assert any("volcano is not in charts/" in part["reason"] for part in data["not_checked"])
    chart = folder / "apps/tools.yaml"
    chart.write_text(chart.read_text().replace("helm: {", "helm: {releaseName: broken, "))
    code, out, _ = call(folder)
    assert code == 65
    assert "Error: template: nil pointer" in out
    assert os.environ["PATH"] == str(empty)
