"""Plans of node images: their stages and keys, what travels with the tasks, approvals, and what is refused."""

import json
from pathlib import Path

import msgspec
import pytest

from steps.contract.task import MAX_BYTES, Task, Verb, encode
from steps.nodeimage.contract import boot_tree, build_keys
from steps.nodeimage.contract import resolved_recipe as contract
from tests.unit import small_image
from workflows import image
from workflows.app.specs import manifests
from workflows.nodeimage.image_plan import compile_image
from workflows.plan.model import Plan, PlanError
from workflows.render.secret_volumes import needed_secrets
from workflows.stages import IMAGE_ORDER


def planned(folder: Path, **more: object) -> Plan:
    return compile_image(small_image.spec(folder, **more), small_image.recipe(), small_image.files())


def task(plan: Plan, stage: str, name: str) -> Task:
    return next(one for one in plan.tasks if (one.stage, one.name) == (stage, name))


def test_stages_come_in_order_and_each_has_its_judge(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert tuple(stage.id for stage in plan.stages) == IMAGE_ORDER
    assert all(stage.steps[-1].task.verb is Verb.JUDGE for stage in plan.stages)
    layers = next(stage for stage in plan.stages if stage.id == "image_layers")
    assert [(step.name, step.after) for step in layers.steps[:-1]] == [("layer_base", ()), ("layer_hpc", ("layer_base",))]
    boots = next(stage for stage in plan.stages if stage.id == "image_boot")
    assert [(step.name, step.after) for step in boots.steps[:-1]] == [("boot_bios", ()), ("boot_uefi", ())], "side by side"


def test_same_spec_same_bytes_and_rendered_within_all_rules(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert plan == planned(tmp_path)
    bundle = manifests.rendered(plan, image.build)
    assert bundle == manifests.rendered(planned(tmp_path), image.build)
    assert bundle.template["metadata"]["labels"]["bringup/pipeline"] == "image"


def test_recipe_and_its_files_travel_with_the_tasks_by_digest(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert contract.decode(plan.archives[contract.FILE]) == small_image.recipe()
    assert small_image.unpacked(plan.archives[contract.FILES]) == small_image.files()
    named = {one.arguments["recipe"] for one in plan.tasks if one.verb in (Verb.BUILD, Verb.PUBLISH)}
    assert named == {small_image.recipe().digest}


def test_what_no_test_machine_boots_is_refused_unless_it_ends_before(tmp_path: Path) -> None:
    spec, recipe = small_image.spec(tmp_path), small_image.recipe(architecture="arm64")
    for until in ("", "image_boot", "image_publish"):
        with pytest.raises(PlanError, match=r"recipe lab-nodes is for arm64, and test machines are amd64.* --until image_sandbox"):
            compile_image(spec, recipe, small_image.files(), until)
    plan = compile_image(spec, recipe, small_image.files(), "image_sandbox")
    assert plan.stages[-1].id == "image_sandbox"


@pytest.mark.parametrize("argument", ["ks=http://cfg.example.org/ks", "nfsroot=10.0.0.1:/srv/root", "url=/srv/x"])
def test_kernel_arguments_that_fetch_from_outside_of_the_tree_are_told_before_anything_is_built(
    tmp_path: Path, argument: str
) -> None:
    """The gate of the publication refuses what they make of the boot scripts."""
    publish = {**small_image.SPEC["publish"], "groups": {"gpu": {"kernel_arguments": [argument]}}}
    address = argument.partition("=")[2]
    with pytest.raises(
        PlanError, match=rf"kernel arguments of publish\.groups\.gpu have nodes fetch {address}, which is not below"
    ):
        planned(tmp_path, publish=publish)
    spec, recipe = small_image.spec(tmp_path), small_image.recipe(kernel_arguments=("quiet", argument))
    with pytest.raises(PlanError, match="kernel arguments of the recipe have nodes fetch"):
        compile_image(spec, recipe, small_image.files())
    assert compile_image(spec, recipe, small_image.files(), "image_boot").stages[-1].id == "image_boot", "nothing is published"


def test_other_addresses_in_kernel_arguments_lead_nowhere(tmp_path: Path) -> None:
    own = f"{small_image.SPEC['publish']['url']}/boot/answers"
    arguments = ("cloud-config-url=http://cfg.example.org/n.yaml", f"ks={own}", "root=/dev/ram0")
    plan = compile_image(small_image.spec(tmp_path), small_image.recipe(kernel_arguments=arguments), small_image.files())
    assert plan.stages[-1].id == "image_publish"


@pytest.mark.parametrize("machines", [1_000, 10_000])
def test_a_fleet_travels_beside_the_tasks_that_name_it_by_digest(tmp_path: Path, machines: int) -> None:
    nodes = small_image.fleet(machines)
    publish = {**small_image.SPEC["publish"], "groups": {"default": {}, "gpu": {"nodes": nodes}}}
    plan, small = planned(tmp_path, publish=publish), planned(tmp_path)
    data = plan.archives[boot_tree.GROUPS]
    asks, publishes = task(plan, "image_status", "tree"), task(plan, "image_publish", "tree")
    for one in (asks, publishes):
        assert len(encode(one)) < MAX_BYTES / 4
        assert "groups" not in one.arguments["place"]
        groups = {group.name: group.nodes for group in boot_tree.decode_groups(data, one.arguments["groups"])}
        assert groups == {"default": {}, "gpu": nodes}
        other = task(small, one.stage, one.name).arguments["groups"]
        assert other != one.arguments["groups"], "another machine makes another plan"
        with pytest.raises(boot_tree.GroupsError, match="the task was made for"):
            boot_tree.decode_groups(data, other)
    template = manifests.rendered(plan, image.build).template
    assert len(json.dumps(template)) == len(json.dumps(manifests.rendered(small, image.build).template)), "of one size"


def test_a_fleet_that_cannot_travel_is_refused(tmp_path: Path) -> None:
    nodes = {mac: f"{name}.{'a' * 60}.example.org" for mac, name in small_image.fleet(8_000).items()}
    publish = {**small_image.SPEC["publish"], "groups": {"gpu": {"nodes": nodes}}}
    with pytest.raises(PlanError, match=r"publish\.groups with 8000 machines has \d+ bytes, the recipe .* limit 800000 together"):
        planned(tmp_path, publish=publish)


def test_a_layer_expects_all_packages_below_it_and_its_key(tmp_path: Path) -> None:
    want = task(planned(tmp_path), "image_layers", "layer_hpc").expectations
    assert want == {"layer": "hpc", "key": build_keys.layers(small_image.recipe())["hpc"], "packages": 4, "budget_mib": 500}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"origin": "commit 123"}, ("base", "hpc", "image")),
        ({"sources": ()}, ("base", "hpc", "image")),
        ({"kernel_arguments": ("quiet",)}, ("base", "hpc")),
        ({"tests": ()}, ("base", "hpc")),
        ({"epoch": 1_700_000_001}, ()),
        ({"release": "trixie"}, ()),
    ],
    ids=["origin", "mirrors", "kernel arguments", "tests", "epoch", "release"],
)
def test_keys_change_with_what_the_bytes_are_made_of_alone(change: dict[str, object], same: tuple[str, ...]) -> None:
    before, after = small_image.recipe(), small_image.recipe(**change)
    found = {**build_keys.layers(before), "image": build_keys.image(before)}
    now = {**build_keys.layers(after), "image": build_keys.image(after)}
    assert tuple(name for name in found if found[name] == now[name]) == same


def more(layer: contract.ResolvedLayer, what: str) -> contract.ResolvedLayer:
    """The layer with one thing more of a kind: only that is changed."""
    added = {
        "packages": small_image.package("htop"),
        "users": contract.LayerUser(name="ada", uid=2001),
        "files": contract.PlacedFile(path="/etc/issue", link="motd"),
        "commands": contract.LayerCommand(run="true"),
        "services": contract.LayerService(unit="fstrim.timer", state="masked"),
    }
    return msgspec.structs.replace(layer, **{what: (*getattr(layer, what), added[what])})


@pytest.mark.parametrize("what", ["packages", "users", "files", "commands", "services"])
def test_a_change_of_a_layer_changes_its_key_and_those_above(what: str) -> None:
    recipe = small_image.recipe()
    (base, hpc), before = recipe.layers, build_keys.layers(recipe)
    lower, upper = (build_keys.layers(small_image.recipe(layers=two)) for two in ((more(base, what), hpc), (base, more(hpc, what))))
    assert [name for name in before if lower[name] != before[name]] == ["base", "hpc"]
    assert [name for name in before if upper[name] != before[name]] == ["hpc"]


def test_keys_of_an_image_are_the_same_in_each_release_of_one_builder() -> None:
    """By these keys sites find what they have built: other keys have all of them build all layers anew. They change with the number
    of the builder (and the last one with the packer's), which is part of them; whoever raises it writes the new ones here. If they
    change by anything else, the keys of caches that still hold have changed."""
    recipe = contract.Recipe(
        name="tiny",
        distribution="debian",
        release="bookworm",
        architecture="amd64",
        epoch=1_700_000_000,
        sources=(),
        layers=(contract.ResolvedLayer(name="low"), contract.ResolvedLayer(name="high")),
        kernel="linux-image-amd64",
    )
    assert {**build_keys.layers(recipe), "image": build_keys.image(recipe)} == {
        "low": "8a0e7ecd4ae9e457599ad13f8617e3dca620258e59bfabcefed4a947f05be896",
        "high": "d082c3ee8b5e8413d595599733e09c003e249d1f65b1bf25a5494e567410ac22",
        "image": "b8a30cb8703b153e28d26b9ef12ec1ce29da5a906f65538f1225a3a64cc51808",
    }


def test_an_approval_holds_back_the_publication_alone(tmp_path: Path) -> None:
    plan = planned(tmp_path, approval={"approvers": ["ada@example.org"], "timeout": "2h"})
    held = {stage.id: stage.approval for stage in plan.stages if stage.approval is not None}
    assert list(held) == ["image_publish"]
    assert held["image_publish"].timeout_seconds == 7200
    assert plan.confirm_tasks["image_publish"].arguments["approved"] == "image_boot"


def test_until_narrows_and_names_what_there_is(tmp_path: Path) -> None:
    spec = small_image.spec(tmp_path)
    plan = compile_image(spec, small_image.recipe(), small_image.files(), until="image_sandbox")
    assert [stage.id for stage in plan.stages] == list(IMAGE_ORDER[1:5])
    with pytest.raises(PlanError, match="'image_test' is no stage of an image; stages are image_status, image_lock"):
        compile_image(spec, small_image.recipe(), {}, until="image_test")


def test_the_published_tree_is_asked_first_but_where_a_build_is_meant_whatever_it_says(tmp_path: Path) -> None:
    spec, recipe = small_image.spec(tmp_path), small_image.recipe()
    for told, first in (
        ({}, "image_status"),
        ({"until": "image_status"}, "image_status"),
        ({"until": "image_lock"}, "image_lock"),
        ({"again": True}, "image_lock"),
    ):
        assert compile_image(spec, recipe, {}, **told).stages[0].id == first, told


def test_the_task_that_asks_gets_the_way_to_the_tree_and_no_key_that_signs(tmp_path: Path) -> None:
    server = {"host": "boot.example.org", "key": {"file": "./id"}, "known_hosts": "./known_hosts"}
    signed = {
        "sign": {"file": "./sign"},
        "signers": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"],
    }
    plan = planned(tmp_path, publish={**small_image.SPEC["publish"], "ssh": server, **signed})
    asks, publishes = task(plan, "image_status", "tree"), task(plan, "image_publish", "tree")
    assert asks.arguments["signed"] is True
    assert needed_secrets(asks, plan.secrets) == ("publish_known_hosts", "publish_ssh_key")
    assert needed_secrets(publishes, plan.secrets) == ("image_sign_key", "publish_known_hosts", "publish_ssh_key")


def test_everything_after_that_task_is_left_out_where_it_says_so(tmp_path: Path) -> None:
    """The first stage has the condition; each of the others comes after one that succeeded, so it is omitted with it."""
    main = {one["name"]: one for one in manifests.rendered(planned(tmp_path), image.build).template["spec"]["templates"]}["image"]
    tasks = {one["name"]: one for one in main["dag"]["tasks"]}
    assert {name: one["when"] for name, one in tasks.items() if "when" in one} == {
        "image-lock": "{{tasks.image-status.outputs.parameters.status}} == changed"
    }
    names = list(tasks)
    assert [one["depends"] for one in tasks.values() if "depends" in one] == [f"{name}.Succeeded" for name in names[:-1]]


def test_files_that_cannot_travel_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"limit 79\d{4}: put large files into a package"):
        compile_image(small_image.spec(tmp_path), small_image.recipe(), {"0" * 64: bytes(700_000)})


def test_what_an_older_version_installed_to_start_builds_is_taken_away(tmp_path: Path) -> None:
    """A schedule of that time built one recipe for ever: the next installation retires it, a narrowed one leaves it alone."""
    assert manifests.rendered(planned(tmp_path), image.build).starts == ()
    narrowed = compile_image(small_image.spec(tmp_path), small_image.recipe(), {}, until="image_lock")
    assert narrowed.starts is None


def test_secrets_are_named_never_told(tmp_path: Path) -> None:
    publish = {
        **small_image.SPEC["publish"],
        "sign": {"file": "./sign"},
        "signers": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"],
        "ssh": {"host": "boot.example.org", "key": {"file": "./key"}, "known_hosts": "./known_hosts"},
    }
    plan = planned(tmp_path, publish=publish, secrets={"license": {"env": "LICENSE"}})
    assert [file.name for file in plan.secrets] == ["image_sign_key", "license", "publish_known_hosts", "publish_ssh_key"]
    place = task(plan, "image_publish", "tree").arguments["place"]
    assert (place["key"], place["ssh_key"], place["known_hosts"]) == ("image_sign_key", "publish_ssh_key", "publish_known_hosts")


def test_the_way_back_is_told_by_the_spec_where_that_says_more_than_the_path(tmp_path: Path) -> None:
    """By the path alone nobody knows whose signature a version must have, nor how to log in."""
    there = {"ssh": {"host": "boot.example.org", "key": {"file": "./key"}, "known_hosts": "./known_hosts"}}
    signed = {"signers": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"]}
    for more, tree in (({}, "/srv/images"), (there, "image.yaml"), (signed, "image.yaml")):
        plan = planned(tmp_path, publish={**small_image.SPEC["publish"], **more})
        assert plan.stages[-1].rollback.startswith(f"bringup image rollback --tree {tree} --image lab-nodes: "), more


def test_a_layer_gets_the_secrets_of_its_own_commands(tmp_path: Path) -> None:
    recipe = small_image.recipe()
    base = msgspec.structs.replace(recipe.layers[0], commands=(contract.LayerCommand(run="true", secrets=("license",)),))
    spec = small_image.spec(tmp_path, secrets={"license": {"env": "LICENSE"}, "other": {"env": "OTHER"}})
    plan = compile_image(spec, small_image.recipe(layers=(base, recipe.layers[1])), {})
    needing = {one.name for one in plan.tasks if needed_secrets(one, plan.secrets)}
    assert needing == {"layer_base"}
    assert needed_secrets(task(plan, "image_layers", "layer_base"), plan.secrets) == ("license",)
