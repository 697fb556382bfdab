"""`bringup render SPEC --gitops DIR` and its `--check`: what is written, what is left alone, how drift ends."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.contract.exit import ExitCode
from workflows import examples
from workflows.cli.main import run

Call = Callable[..., tuple[int, str, str]]
HOME = "apps/environments/multi-rack-232"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `bringup render SPEC --gitops …`: exit code, stdout, stderr."""

    def command(*arguments: object, spec: object = "multi-rack-232") -> tuple[int, str, str]:
        code = run(["render", str(spec), "--gitops", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A spec like the example with other sections."""

    def write(name: str = "changed.yaml", /, **sections: Any) -> Path:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(yaml.safe_load(examples.path("multi-rack-232").read_text()) | sections))
        return path

    return write


def files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_is_written_is_no_drift(call: Call, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    code, out, _ = call(checkout)
    assert (code, out.split(" to ")[0]) == (ExitCode.OK, "wrote 29 files of 29")
    code, out, err = call(checkout, "--check")
    assert (code, err) == (ExitCode.OK, "")
    assert out.startswith("no drift: ")
    code, out, _ = call(checkout)
    assert out == f"wrote 0 files of 29 to {checkout}/apps; {HOME}/overlay is left as it is\n"


def test_drift_ends_with_65_and_names_every_file(call: Call, tmp_path: Path) -> None:
    call(tmp_path)
    chart, readme, stray = f"{HOME}/stages/gpu-operator/gpu-operator.yaml", "apps/README.md", f"{HOME}/values/stray.yaml"
    (tmp_path / chart).write_text((tmp_path / chart).read_text().replace("selfHeal: true", "selfHeal: false"))
    (tmp_path / readme).unlink()
    (tmp_path / stray).write_text("{}\n")
    before = files(tmp_path)
    code, out, err = call(tmp_path, "--check")
    assert code == ExitCode.GATE_FAILED
    assert out.splitlines() == [
        f"missing: {readme}",
        f"differs: {chart}, line 30: has 'selfHeal: false', the spec gives 'selfHeal: true'",
        f"extra: {stray}",
    ]
    assert err.startswith(f"error: drift: 3 files below {tmp_path} differ from multi-rack-232")
    assert files(tmp_path) == before, "a check writes nothing"


def test_what_is_no_longer_rendered_is_removed_and_said(call: Call, tmp_path: Path, changed: Callable[..., Path]) -> None:
    call(tmp_path)
    fewer = changed(scheduler={"gang": "kai"})
    code, out, _ = call(tmp_path, spec=fewer)
    assert code == ExitCode.OK
    assert out.splitlines()[:2] == [
        f"removed {HOME}/stages/gang/kueue.yaml: multi-rack-232 no longer renders it",
        f"removed {HOME}/values/kueue.yaml: multi-rack-232 no longer renders it",
    ]
    assert not (tmp_path / HOME / "values/kueue.yaml").exists()
    assert call(tmp_path, "--check", spec=fewer)[0] == ExitCode.OK


def test_folders_left_empty_go_too(call: Call, tmp_path: Path, changed: Callable[..., Path]) -> None:
    call(tmp_path)
    call(tmp_path, spec=changed(scheduler={"gang": "none"}))
    assert not (tmp_path / HOME / "stages/gang").exists()
    assert (tmp_path / HOME / "stages").is_dir()


def test_the_overlay_and_foreign_files_are_left_alone(call: Call, tmp_path: Path) -> None:
    mine = {
        f"{HOME}/overlay/patches.yaml": "mine",
        "apps/notes.md": "ours",
        "apps/environments/other/environment.yaml": "theirs",
        "README.md": "the repository's own",
    }
    for path, text in mine.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert call(tmp_path)[0] == ExitCode.OK
    assert call(tmp_path, "--check")[0] == ExitCode.OK
    assert files(tmp_path).items() >= mine.items()
    assert (tmp_path / HOME / "overlay/kustomization.yaml").exists(), "without one no stage can be built"


@pytest.mark.parametrize("name", ["kustomization.yaml", "kustomization.yml", "Kustomization"])
def test_a_kustomization_of_the_site_is_the_overlay(call: Call, tmp_path: Path, name: str) -> None:
    call(tmp_path)
    overlay = tmp_path / HOME / "overlay"
    (overlay / "kustomization.yaml").unlink()
    code, out, _ = call(tmp_path, "--check")
    assert (code, out) == (ExitCode.GATE_FAILED, f"missing: {HOME}/overlay/kustomization.yaml\n")
    (overlay / name).write_text("mine")
    assert call(tmp_path, "--check")[0] == ExitCode.OK
    assert call(tmp_path)[0] == ExitCode.OK
    assert files(overlay) == {name: "mine"}


def test_two_environments_in_one_checkout_are_compared(call: Call, tmp_path: Path, changed: Callable[..., Path]) -> None:
    argo = yaml.safe_load(examples.path("multi-rack-232").read_text())["delivery"]["argo_cd"] | {"environment": "staging"}
    staging = changed("staging.yaml", delivery={"mode": "argo_cd", "argo_cd": argo})
    call(tmp_path)
    assert "note:" not in call(tmp_path, spec=staging)[1]
    newer = changed("newer.yaml", delivery={"mode": "argo_cd", "argo_cd": argo}, overrides={"gpu_operator": {"version": "v26.7.0"}})
    _, out, _ = call(tmp_path, spec=newer)
    (note,) = [line for line in out.splitlines() if line.startswith("note:")]
    assert note.startswith("note: environments differ in more than values: gpu-operator/gpu-operator: multi-rack-232 has ")
    assert call(tmp_path, "--check")[0] == ExitCode.OK, "each is what its own spec renders"


def test_a_file_that_two_environments_share_is_no_drift_of_either(call: Call, tmp_path: Path, changed: Callable[..., Path]) -> None:
    argo = yaml.safe_load(examples.path("multi-rack-232").read_text())["delivery"]["argo_cd"]
    staging = changed("staging.yaml", delivery={"mode": "argo_cd", "argo_cd": argo | {"environment": "staging", "branch": "next"}})
    call(tmp_path)
    call(tmp_path, spec=staging)
    code, out, _ = call(tmp_path, "--check")
    assert code == ExitCode.OK
    assert out.startswith("note: apps/applicationset.yaml differs from what multi-rack-232 renders; it is shared with staging")
    code, out, _ = call(tmp_path, "--check", spec=staging)
    assert (code, "note:" in out) == (ExitCode.OK, False)


@pytest.mark.parametrize(
    ("spec", "arguments", "said"),
    [
        ("h200-16", ["."], "h200-16 is not delivered by Argo CD"),
        ("multi-rack-232", ["nowhere", "--check"], "nowhere is no folder"),
        ("multi-rack-232", [".", "--only", "os_prep"], "--gitops renders what Argo CD delivers to the target"),
        ("multi-rack-232", ["file"], "file is no folder"),
    ],
)
def test_usage_errors(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    code, out, err = call(*arguments, spec=spec)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith(f"error: {said}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_check_without_a_folder_says_which_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "multi-rack-232", "--check"]) == ExitCode.USAGE
    assert "--gitops DIR --check" in capsys.readouterr().err


def test_a_link_is_never_written_through(call: Call, tmp_path: Path) -> None:
    checkout, outside = tmp_path / "checkout", tmp_path / "outside"
    (checkout / "apps").mkdir(parents=True)
    outside.write_text("precious")
    (checkout / "apps/README.md").symlink_to(outside)
    code, _, err = call(checkout)
    assert code == ExitCode.USAGE
    assert "is no ordinary file" in err
    assert outside.read_text() == "precious"
    assert [path.name for path in (checkout / "apps").iterdir()] == ["README.md"], "nothing is written before all can be"


@pytest.mark.parametrize("linked", ["apps", "apps/environments", HOME, f"{HOME}/values", f"{HOME}/overlay"])
def test_a_linked_folder_leads_nothing_out_of_the_checkout(call: Call, tmp_path: Path, linked: str) -> None:
    """Git keeps the link alone, so what lies behind it is not in the repository either."""
    checkout, outside = tmp_path / "checkout", tmp_path / "outside"
    call(checkout)
    (checkout / linked).rename(outside)
    (checkout / linked).symlink_to(outside)
    before, there = files(outside), files(checkout)
    code, out, _ = call(checkout, "--check")
    assert (code, "missing: " in out) == (ExitCode.GATE_FAILED, True)
    code, _, err = call(checkout)
    assert code == ExitCode.USAGE
    assert f"{checkout / linked} is a link, and nothing is written through it" in err
    assert (files(outside), files(checkout), (checkout / linked).is_symlink()) == (before, there, True)


def test_a_link_in_place_of_a_file_is_drift_whatever_it_leads_to(call: Call, tmp_path: Path) -> None:
    call(tmp_path)
    readme = tmp_path / "apps/README.md"
    readme.rename(tmp_path / "elsewhere")
    readme.symlink_to("../elsewhere")
    code, out, _ = call(tmp_path, "--check")
    assert code == ExitCode.GATE_FAILED
    assert out.startswith("differs: apps/README.md, line 1: has 'a link to ../elsewhere'")


def test_the_checkout_itself_may_be_a_link(call: Call, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert call(tmp_path / "link")[0] == ExitCode.OK
    assert call(tmp_path / "real", "--check")[0] == ExitCode.OK


@pytest.mark.parametrize("server", ["github-actions.yml", "gitlab-ci.yml"])
def test_the_optional_job_of_the_snippets_is_the_check(server: str) -> None:
    """With its comment signs taken away it parses, and its command is the one that is tested here."""
    text = (Path(examples.__file__).parent / "ci" / server).read_text()
    head, _, job = text.partition("to use it.\n")
    whole = yaml.safe_load(head + "\n" + re.sub(r"(?m)^( *)# ", r"\1", job))
    steps = whole["jobs"]["gitops"]["steps"] if "jobs" in whole else [{"run": line} for line in whole["gitops"]["script"]]
    (command,) = [step["run"] for step in steps if "run" in step]
    assert command == "uv run bringup render cluster.yaml --gitops . --check"
