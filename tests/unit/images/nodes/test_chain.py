"""Recipes are read with all that they extend, and every error of all files comes at once, with place, value and fix."""

from pathlib import Path

import pytest

from workflows.nodeimage import recipe_chain, recipe_files
from workflows.spec.errors import SpecErrors

LOWEST = """
apiVersion: bringup/v1
kind: ImageRecipe
name: lowest
description: A stand-in.
foundation: {distribution: debian, release: bookworm, epoch: 1795219200, kernel: "{{ kernel }}"}
variables: {kernel: linux-image-cloud-amd64, banner: null}
layers:
  - name: base
    packages: [dash]
    files: [{path: /etc/motd, content: "{{ banner }}"}]
"""
UPPER = """
apiVersion: bringup/v1
kind: ImageRecipe
name: upper
description: A stand-in.
extends: lowest.yaml
variables: {kernel: linux-image-amd64, words: quiet}
layers:
  - name: site
    kernel_arguments: ["{{ words }}"]
    files: [{path: /etc/issue, content: "{{ banner }} from {{ words }}"}]
"""


def written(folder: Path, lowest: str = LOWEST, upper: str = UPPER) -> Path:
    (folder / "lowest.yaml").write_text(lowest)
    (folder / "upper.yaml").write_text(upper)
    return folder


def refused(folder: Path, given: dict[str, str] | None = None) -> SpecErrors:
    with pytest.raises(SpecErrors) as caught:
        recipe_chain.read("upper.yaml", folder, {"banner": "hello"} if given is None else given)
    assert caught.value.exit_code == 64
    return caught.value


def test_values_go_from_spec_over_upper_to_lower(tmp_path: Path) -> None:
    found = recipe_chain.read("upper.yaml", written(tmp_path), {"banner": "hello"})
    assert found.foundation.kernel == "linux-image-amd64"
    (_, base), (_, site) = found.layers
    assert (base.files[0].content, site.files[0].content) == ("hello", "hello from quiet")
    assert site.kernel_arguments == ("quiet",)
    assert found.lock == tmp_path / "upper.lock.json"
    assert recipe_chain.read("upper.yaml", tmp_path, {"banner": "x", "words": "splash"}).layers[1][1].kernel_arguments == (
        "splash",
    )


def test_errors_of_all_files_come_at_once(tmp_path: Path) -> None:
    lowest = LOWEST.replace("[dash]", "[dash, dash]").replace("kernel: linux", "odd: x, kernel: linux")
    upper = UPPER.replace("/etc/issue", "etc/issue").replace("from {{ words }}", "from {{ wrods }} {{ 7 }}")
    errors = refused(written(tmp_path, lowest, upper), {"baner": "x"})
    text = str(errors)
    assert "layers[0].files[0].path" in text
    assert "no variable of this name\n  fix    name it under variables (odd, kernel, banner, words)" in text
    assert "between {{ and }} stands one name" in text
    assert "lowest.yaml:7: variables.odd" in text
    assert "spec: variables.baner" in text
    assert "spec: variables.banner\n  error  the recipe needs a value" in text
    errors = refused(written(tmp_path, LOWEST.replace("[dash]", "[dash, dash]")))
    assert "lowest.yaml:10: layers[0].packages\n  value  dash\n  error  it stands twice" in str(errors)


WRONG = """
apiVersion: bringup/v1
kind: ImageRecipe
name: upper
description: Nothing in it is right.
extends: lowest.yaml
layers:
  - name: site
    packages: ["a b", one, one]
    files:
      - {path: /etc/a, content: a, link: b, mode: rw}
      - {path: /etc/b, source: files/missing}
    services: {enabled: [ssh, a.service], masked: [a.service]}
    tests: [{name: t, incident: short, run: a, check: setuid}]
    users: [{name: root, uid: 0}, {name: ada, uid: 1000}, {name: bob, uid: 1000}]
    commands: [{run: "true", secrets: [license]}]
  - {name: base, kernel_arguments: ["a b"]}
"""


def test_no_error_of_a_recipe_hides_another(tmp_path: Path) -> None:
    """All errors of a recipe are reported at once: none appears only after another one was mended."""
    written(tmp_path, LOWEST, WRONG)
    with pytest.raises(SpecErrors) as caught:
        recipe_chain.read("upper.yaml", tmp_path, {"banner": "hello"}, secrets=())
    found = {(one.path, one.problem) for one in caught.value.errors}
    assert {
        ("layers[0].files[0]", "it is of several kinds"),
        ("layers[0].services", "a unit has two states"),
        ("layers[0].tests[0]", "a test is a script or a check"),
        ("layers[0].packages", "it stands twice"),
        ("layers[0].files[1].source", "the file cannot be read: No such file or directory"),
        ("layers[0].users[0].uid", "number 0 is root's own"),
        ("layers[0].users[0].name", "root is in every image already"),
        ("layers[0].users[2].uid", "ada has this number"),
        ("layers[1].name", "two layers have this name"),
        ("spec: secrets.license", "a command of the recipe asks for this secret, and the spec has none of this name"),
    } <= found
    fixes = {one.path: one.fix for one in caught.value.errors}
    assert fixes["layers[0].packages[0]"] == "make each word an entry of its own: a, b"
    assert fixes["layers[1].kernel_arguments[0]"] == "make each word an entry of its own: a, b"
    wrong_fields = {path for path, problem in found if "expected form" in problem or "at least" in problem}
    assert {"layers[0].packages[0]", "layers[0].files[0].mode", "layers[0].services.enabled[0]"} <= wrong_fields
    assert {"layers[0].tests[0].incident", "layers[1].kernel_arguments[0]"} <= wrong_fields


def test_a_rule_says_nothing_where_it_cannot_know(tmp_path: Path) -> None:
    """One mistake is one error, also where a rule looks at the field that is wrong."""
    upper = UPPER + "    sources: [{url: http://x.example.org/y, suite: 5, keyring: k}]\n"
    errors = refused(written(tmp_path, LOWEST, upper))
    assert [one.path for one in errors.errors] == ["layers[0].sources[0].suite"]


@pytest.mark.parametrize(
    ("lowest", "upper", "sentence"),
    [
        (LOWEST, UPPER.replace("lowest.yaml", "lowst"), "bringup ships no recipe of this name"),
        (LOWEST, UPPER.replace("lowest.yaml", "bas"), "did you mean base?"),
        (LOWEST, UPPER.replace("lowest.yaml", "missing.yaml"), "cannot read"),
        (LOWEST, UPPER.replace("lowest.yaml", "upper.yaml"), "in a circle"),
        (LOWEST, UPPER.replace("extends: lowest.yaml", ""), "stands on another, or on a foundation"),
        (LOWEST, UPPER.replace("name: site", "name: base"), "two layers have this name"),
        (
            LOWEST,
            UPPER.replace('["{{ words }}"]', '["a b"]').replace(", words: quiet", "").replace(" {{ words }}", ""),
            "the expected form",
        ),
        (LOWEST, UPPER.replace("from {{ words }}", "from {{ words"), "opens a variable that nothing closes"),
        (LOWEST, UPPER + "    tests: [{name: t, incident: it was so once, run: a, check: setuid}]\n", "keep one of run and check"),
        (LOWEST, UPPER + "    tests: [{name: t, incident: it was so once, check: setuid, where: boot}]\n", "not a booted node"),
        (LOWEST, UPPER + "    users: [{name: root2, uid: 0, password: hunter2hunter2}]\n", "written out in the spec"),
        (LOWEST, UPPER + "    users: [{name: ada, uid: 1000, gid: 0}]\n", "group 0 is root's own"),
        (LOWEST, UPPER + "    users: [{name: ada, uid: 1}]\n  - {name: more, users: [{name: ada, uid: 2}]}\n", "stands twice"),
        (LOWEST, UPPER + '    users: [{name: ada, uid: 1000, home: "/a:/b"}]\n', "a colon ends a field of /etc/passwd"),
        (LOWEST, UPPER + '    users: [{name: ada, uid: 1000, shell: "/a\\nroot:x"}]\n', "the expected form"),
        (LOWEST, UPPER + "    services: {enabled: [a.service], masked: [a.service]}\n", "a unit has two states"),
        (LOWEST, UPPER + "    services: {enabled: [ssh]}\n", "the expected form"),
        (
            LOWEST,
            UPPER + "    sources: [{url: http://x.example.org/y, suite: /, components: [main], keyring: k}]\n",
            "flat repository",
        ),
        (LOWEST, UPPER + "    components: [non-fre-firmware]\n", "it has main, contrib, non-free, non-free-firmware"),
        (LOWEST.replace("debian", "ubuntu"), UPPER + "    components: [contrib]\n", "ubuntu has no component of this name"),
        (LOWEST, UPPER.replace('content: "{{ banner }} from {{ words }}"', "content: a, link: b"), "several kinds"),
        (LOWEST.replace("{path: /etc/motd,", "{path: /etc/../motd,"), UPPER, "plain form"),
        (LOWEST.replace("epoch: 1795219200", "epoch: yesterday"), UPPER, "a whole number is expected"),
    ],
)
def test_what_is_refused(tmp_path: Path, lowest: str, upper: str, sentence: str) -> None:
    errors = refused(written(tmp_path, lowest, upper))
    assert sentence in str(errors)
    assert all(one.fix for one in errors.errors)


def test_one_who_only_looks_needs_no_values(tmp_path: Path) -> None:
    found = recipe_chain.read("upper.yaml", written(tmp_path), {}, by_name=True)
    assert found.layers[0][1].files[0].content == "banner"


@pytest.mark.parametrize("name", recipe_files.shipped_names())
def test_each_shipped_recipe_is_sound_and_each_test_tells_its_incident(name: str) -> None:
    found = recipe_chain.read(name, Path(), {}, by_name=True)
    assert found.top.is_shipped
    assert found.top.spec.name == name
    tests = [test for _, layer in found.layers for test in layer.tests]
    assert len(tests) >= 10
    assert all(test.next_step and test.incident.endswith(".") for test in tests)
