"""`image.yaml`: the example with every line turned on, what is refused with which sentence, and that nothing breaks loading."""

import copy
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows import examples, spec
from workflows.nodeimage import image_spec, recipe_files
from workflows.nodeimage.image_spec import BOOT_KEY, SIGN_KEY
from workflows.nodeimage.recipe_spec import RecipeSpec
from workflows.spec.parsing.loading import load_as
from workflows.spec.pipelines.publish_access import PUBLISH_KEY

EXAMPLE = Path(examples.__file__).parent / "images/image.yaml"
TEXT = EXAMPLE.read_text(encoding="utf-8")
SEED = 20261122
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "x",
    "a" * 70_000,
    [],
    [[]],
    [None],
    {},
    {"x": 1},
    "${name}",
    "{{ name }}",
    "%s",
)


def turned_on() -> str:
    """The example with all that it shows in comments."""
    text = re.sub(r"^# (variables|mirror|proxy|secrets|approval):", r"\1:", TEXT, flags=re.MULTILINE)
    text = re.sub(r"^#   (license|approvers):", r"  \1:", text, flags=re.MULTILINE)
    return re.sub(r"^  # (ssh|sign|boot_signing|signers):", r"  \1:", text, flags=re.MULTILINE)


def test_the_example_works_as_it_stands() -> None:
    image = image_spec.load_image(EXAMPLE)
    assert (image.recipe, image.boot.firmware, image.approvals, image.references) == ("compute", ("bios", "uefi"), (), {})
    assert image.publish.groups["compute"].nodes == {"52:54:00:12:34:56": "node001"}


def test_where_nodes_put_what_they_run_is_the_folder_that_the_tree_has_for_it() -> None:
    image = image_spec.load_image(TEXT.replace("keep: 3", "keep: 3\n  report: http://10.0.0.1:8080/nodes"))
    assert image.publish.report == "http://10.0.0.1:8080/nodes"


def test_every_line_of_the_example_that_can_be_turned_on_works() -> None:
    image = image_spec.load_image(turned_on())
    assert set(image.references) == {SIGN_KEY, BOOT_KEY, PUBLISH_KEY, "license"}
    assert image.proxy is not None
    assert image.approvals[0].before == "image_publish"
    assert [who.name for who in image.approvals[0].approvers] == ["ada@example.org"]
    assert image.schedule is None
    assert image.mirror == "https://mirror.example.org/debian"
    assert image.publish.ssh is not None


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("recipe: compute", "recipe: ../compute.yaml", "leads outside"),
        ("recipe: compute", 'recipe: compute\nschedule: {cron: "0 3 * * *"}', "schedule.source"),
        ("[bios, uefi]", "[bios, bios]", "a firmware stands twice"),
        ("[bios, uefi]", "[efi]", "write uefi"),
        ("nodes: 1", "nodes: 0", "at least 1"),
        ("memory_mib: 3072", "memory_mib: 128", "at least 512"),
        ("url: http://boot.example.org/images", "url: ftp://boot.example.org", "the expected form"),
        ("url: http://boot.example.org/images", "url: http://ada:hunter2@boot.example.org", "a URL with a password"),
        ("    default: {}", '    default: {nodes: {"52:54:00:12:34:56": node002}}', "is in group compute and in default"),
        ("52:54:00:12:34:56", "52:54:00:12:34:5G", "the expected form"),
        ("console=ttyS0,115200", "console=ttyS0 init=/bin/sh", "the expected form"),
        ("console=ttyS0,115200", "a=${net0/mac}", "the expected form"),
        ("keep: 3", "keep: 3\n  report: http://boot.example.org/images", "write url and /nodes, as in http://boot.example.org"),
        ("keep: 3", "keep: 3\n  report: http://boot.example.org/images/mynodes", "this names another one"),
        ("keep: 3", "keep: 3\n  sign: {file: ./key}", "nobody is told to trust"),
        ("keep: 3", "keep: 3\n  sign: ./key", "secrets are given by reference only"),
        ("keep: 3", "keep: 3\n  ssh: {host: boot, key: {file: ./key}}", "this key is required"),
        ("{kernel: linux-image-amd64}", "{a: 1}", "text is expected here"),
        ("recipe: compute", "recipe: compute\nmirror: https://m.example.org/debian/", "the expected form"),
        ("recipe: compute", 'recipe: compute\nproxy: {http: "http://ada:hunter2@proxy:1"}', "of an image is used without one"),
        ("recipe: compute", "recipe: compute\nproxy: {no_proxy: [.corp]}", "no proxy is named"),
        ("recipe: compute", "recipe: compute\nlok: x.json", "did you mean lock"),
        ("recipe: compute", "recipe: compute\nsecrets: {image_sign_key: {file: ./k}}", "which bringup names itself"),
        ("recipe: compute", "recipe: compute\nsecrets: {image_boot_key: {file: ./k}}", "which bringup names itself"),
    ],
)
def test_what_is_refused(old: str, new: str, sentence: str) -> None:
    assert old in TEXT
    with pytest.raises(spec.SpecErrors) as caught:
        image_spec.load_image(TEXT.replace(old, new))
    assert sentence in str(caught.value)
    assert all(one.fix for one in caught.value.errors)


SSH = "ssh: {host: boot, key: {secret: {name: boot, key: key}}, known_hosts: ./known_hosts}"
SCHEDULED = re.sub(r"^# ( +cron|schedule| +source):", r"\1:", TEXT, flags=re.MULTILINE).replace("  keep: 3", f"  keep: 3\n  {SSH}")
"""The example with its schedule turned on, and what that needs."""


def test_a_schedule_says_what_it_builds_and_has_what_a_pod_needs() -> None:
    image = image_spec.load_image(SCHEDULED)
    assert image.schedule is not None
    source = image.schedule.source
    assert (source.repository, source.branch, source.path) == ("https://git.example.org/site.git", "main", "image.yaml")
    assert source.secrets == {}
    ssh = "git@git.example.org:site.git, credentials: {name: git, key: key}, known_hosts: {name: git, key: known_hosts}"
    image = image_spec.load_image(SCHEDULED.replace("https://git.example.org/site.git", ssh))
    assert image.schedule is not None
    assert sorted(image.schedule.source.secrets) == ["credentials", "known_hosts"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (f"  {SSH}\n", "", "add publish.ssh, the boot server"),
        ("{secret: {name: boot, key: key}}", "{file: ./key}", "publish_ssh_key is of one machine"),
        ("recipe: compute", "recipe: compute\nsecrets: {license: {env: LICENSE}}", "license is of one machine"),
        ("https://git.example.org/site.git", "https://ada:canary-1c@git.example.org/site.git", "a URL with a password"),
        ("https://git.example.org/site.git", "'https://git.example.org/site.git?token=canary-1c'", "has a query or a fragment"),
        ("https://git.example.org/site.git", "git@git.example.org:site.git", "needs credentials and known_hosts"),
        ("path: image.yaml", "path: image.yaml, branch: a..b", "branch a..b is not a valid name in Git"),
        ("path: image.yaml", "path: ../image.yaml", "leads outside"),
        ("path: image.yaml", "path: image.yaml, known_hosts: {name: git, key: k}", "belongs to a repository reached by SSH"),
        (
            "https://git.example.org/site.git",
            "http://git.example.org/site.git, ca: {name: git, key: ca}",
            "ca belongs to a repository reached by https",
        ),
        ('"0 2 * * *"', '"0 2 * *"', "cron has five fields"),
        ("path: image.yaml", "path: -x.yaml", "schedule.source.path"),
        ("path: image.yaml", 'path: "{{workflow.name}}.yaml"', "schedule.source.path"),
        ("path: image.yaml", 'path: "image.yaml\\nx"', "schedule.source.path"),
        ("https://git.example.org/site.git", "'https://git.example.org/{{workflow.uid}}'", "schedule.source.repository"),
        ("https://git.example.org/site.git", "-oProxyCommand=x@git.example.org:site.git", "schedule.source.repository"),
        ("https://git.example.org/site.git", "git@-oProxyCommand=x:site.git", "schedule.source.repository"),
        ("https://git.example.org/site.git", "ssh://-oProxyCommand=x/site.git", "schedule.source.repository"),
        ("https://git.example.org/site.git", "ssh://git@-oProxyCommand=x/site.git", "schedule.source.repository"),
        ("known_hosts: ./known_hosts", "known_hosts: /etc/ssh/known_hosts", "no file outside of the spec's folder"),
        ("known_hosts: ./known_hosts", "known_hosts: ~/.ssh/known_hosts", "no file outside of the spec's folder"),
        ("known_hosts: ./known_hosts", "known_hosts: ../known_hosts", "no file outside of the spec's folder"),
    ],
)
def test_what_no_schedule_can_build_is_refused(old: str, new: str, sentence: str) -> None:
    assert old in SCHEDULED
    with pytest.raises(spec.SpecErrors) as caught:
        image_spec.load_image(SCHEDULED.replace(old, new))
    assert sentence in str(caught.value)
    assert "canary" not in str(caught.value)


def _places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ([here] if here else []) + [place for key, inner in items for place in _places(inner, (*here, key))]


@pytest.mark.parametrize("name", ["image", *recipe_files.shipped_names()])
def test_one_bad_value_never_breaks_loading(name: str) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    text = turned_on() if name == "image" else (recipe_files.RECIPES / f"{name}.yaml").read_text()
    model = image_spec.ImageSpec if name == "image" else RecipeSpec
    data = yaml.safe_load(text)
    said = []
    places = _places(data)
    for place in chance.sample(places, min(60, len(places))):
        changed = copy.deepcopy(data)
        here = changed
        for key in place[:-1]:
            here = here[key]
        here[place[-1]] = chance.choice(JUNK)
        try:
            load_as(model, yaml.safe_dump(changed, sort_keys=False))
        except spec.SpecErrors as errors:
            said.append(str(errors))
    assert len(said) > 10
    assert all(said)
