"""A stack for two CPU targets, built by EasyBuild: only what the cache lacks for one of them, and users get the best of a node."""

import json

from steps.softwarestack.builds import builder_cpu
from steps.softwarestack.contract import cpu_targets
from steps.softwarestack.contract.stack_input import choice_module
from steps.softwarestack.tree import target_choice
from tests.stack.conftest import SiteMaker


def test_each_target_is_built_with_its_flags_and_the_best_is_chosen(small: SiteMaker) -> None:
    targets = ("x86_64", "x86_64_v3")
    site = small("lz4")
    spec = {"target": None, "targets": list(targets), "tests": [{"name": "there", "modules": ["GCC", "lz4"], "command": ["true"]}]}
    site.write(**spec)
    assert "+ x86_64_v3/Compiler/GCC/12.2.0/lz4/1.9.4" in site.run("lock")
    site.run("build")
    assert {title: package["outcome"] for title, package in site.built().items()} == {"GCC@12.2.0": "built", "lz4@1.9.4": "built"}
    commands = [package["reproduce"] for package in site.built().values()]
    assert all("--optarch=march=x86-64-v3" in command for command in commands), (
        "builds for x86_64 come from the cache of another stack"
    )

    lacking = {target: missing for target in targets if (missing := cpu_targets.missing_features(target, builder_cpu.read()))}
    (tested,) = site.records("stack_test", "test")
    outcomes = {result["name"]: result["outcome"] for result in tested["observation"]["results"]}
    assert outcomes[f"best/{choice_module(site.name)}"] == "pass"
    expected = {f"there for {target}": "not_tested" if target in lacking else "pass" for target in targets}
    assert {name: outcome for name, outcome in outcomes.items() if name.startswith("there")} == expected
    manifest = json.loads((site.published / "current/manifest.json").read_text())
    assert sorted({package["target"] for package in manifest["packages"]}) == sorted(targets)

    words = ("sh", "-c", f'echo "${target_choice.variable(site.name)} $EBROOTLZ4"')
    chosen = site.loaded(*words, modules=(choice_module(site.name), "GCC", "lz4"), folder="best")
    best = next(target for target in cpu_targets.best_first(targets) if target not in lacking)
    (own,) = [package for package in manifest["packages"] if (package["name"], package["target"]) == ("lz4", best)]
    assert chosen.stdout.split() == [best, f"{site.root}/packages/{own['folder']}/lz4/1.9.4-GCC-12.2.0"], chosen
