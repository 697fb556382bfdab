"""A tree against a folder: what is told of each file, whose files are never looked at, and how environments may not differ."""

from tests.unit.gitops.test_tree import ARGO_CD, cluster, made
from workflows.gitops import drift
from workflows.gitops.layout import Layout

LAYOUT = Layout("apps", "h200-16")
HOME = "apps/environments/h200-16"


def test_the_same_files_are_no_drift() -> None:
    files = made(cluster())
    assert drift.differences(LAYOUT, files, files) == []


def test_each_file_is_told_with_its_first_line_that_differs() -> None:
    files = made(cluster())
    values = f"{HOME}/values/gpu-operator.yaml"
    lines = files[values].splitlines(keepends=True)
    changed = "".join([*lines[:4], "  mine: 1\n", *lines[4:]])
    found = {**files, values: changed, f"{HOME}/values/forgotten.yaml": "{}\n"}
    del found[f"{HOME}/root.yaml"]
    told = [str(one) for one in drift.differences(LAYOUT, files, found)]
    assert told == [
        f"missing: {HOME}/root.yaml",
        f"extra: {HOME}/values/forgotten.yaml",
        f"differs: {values}, line 5: has 'mine: 1', the spec gives {lines[4].strip()!r}",
    ]


def test_of_a_long_line_the_part_that_differs_is_shown() -> None:
    wanted, found = {"README": "x" * 500 + "a\n"}, {"README": "x" * 500 + "b\n"}
    (one,) = drift.differences(LAYOUT, wanted, found)
    assert (one.wanted[-1], one.actual[-1], len(one.wanted)) == ("a", "b", 31)


def test_a_file_that_ends_early_differs_where_it_ends() -> None:
    (one,) = drift.differences(LAYOUT, {"README": "a\nb\n"}, {"README": "a\n"})
    assert (one.line, one.wanted, one.actual) == (2, "b", "")


def test_the_overlay_other_environments_and_foreign_files_are_never_compared() -> None:
    files = made(cluster())
    found = {
        **files,
        f"{HOME}/overlay/kustomization.yaml": "mine",
        f"{HOME}/overlay/more.yaml": "mine",
        "apps/environments/other/values/x.yaml": "theirs",
        "apps/notes.md": "ours",
    }
    assert drift.differences(LAYOUT, files, found) == []


def test_an_overlay_that_kustomize_cannot_build_is_told() -> None:
    """Every stage takes the overlay in: without it Argo CD builds none of them."""
    files = made(cluster())
    own = f"{HOME}/overlay/kustomization.yaml"
    without = {path: text for path, text in files.items() if path != own}
    for found in (without, without | {f"{HOME}/overlay/patch.yaml": "mine"}):
        assert [str(one) for one in drift.differences(LAYOUT, files, found)] == [f"missing: {own}"]
    for name in ("kustomization.yml", "Kustomization"):
        assert drift.differences(LAYOUT, files, without | {f"{HOME}/overlay/{name}": "mine"}) == []


def test_a_common_file_that_other_environments_share_is_no_drift_but_told() -> None:
    files = made(cluster())
    readme, application_set = LAYOUT.common
    alone = {**files, readme: "older\n", "apps/environments/notes.md": "of no environment"}
    assert [one.path for one in drift.differences(LAYOUT, files, alone)] == [readme]
    assert drift.shared_file_notes(LAYOUT, files, alone) == []
    together = alone | {"apps/environments/staging/environment.yaml": "theirs"}
    assert drift.differences(LAYOUT, files, together) == []
    (told,) = drift.shared_file_notes(LAYOUT, files, together)
    assert told == f"{readme} differs from what h200-16 renders; it is shared with staging, so it is left as it is"
    del together[application_set]
    assert [str(one) for one in drift.differences(LAYOUT, files, together)] == [f"missing: {application_set}"]


def test_environments_that_differ_in_more_than_values_are_told() -> None:
    mine = made(cluster())
    argo = ARGO_CD | {"environment": "staging"}
    theirs = made(
        cluster(
            delivery={"mode": "argo_cd", "argo_cd": argo},
            overrides={"cert_manager": {"version": "v1.19.1"}},
            slurm={"kind": "none"},
        )
    )
    told = drift.environment_differences(LAYOUT, {**theirs, **mine})
    assert told[0] == (
        "base-services/cert-manager: staging has https://charts.jetstack.io/cert-manager v1.19.1, "
        "h200-16 has https://charts.jetstack.io/cert-manager v1.20.2"
    )
    assert [line.partition(":")[0] for line in told[1:]] == ["slurm/slurm", "slurm/slurm-operator", "slurm/slurm-operator-crds"]
    assert "staging has no such release" in told[1]


def test_a_broken_file_of_another_environment_is_told_and_breaks_nothing() -> None:
    files = {**made(cluster()), "apps/environments/old/stages/gang/volcano.yaml": "a: [\n"}
    assert any(
        line.startswith("gang/volcano: old has a file that is no YAML") for line in drift.environment_differences(LAYOUT, files)
    )
