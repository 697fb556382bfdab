"""The module that chooses a CPU target, loaded by the real Lmod on nodes of other CPUs, in both languages of module files."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.softwarestack.contract import cpu_targets
from steps.softwarestack.contract.stack_input import LUA, TCL, StackInput, choice_module
from steps.softwarestack.tree import lmod_modules, target_choice
from tests.unit.softwarestack import small_trees

TARGETS = ("x86_64_v3", "zen4")


class LoginShell:
    """A user's environment, which moves from node to node: each node has its own content of `cpuinfo`."""

    def __init__(self, cpuinfo: Path, *stacks: StackInput) -> None:
        self._cpuinfo = cpuinfo
        self.variables = {"PATH": "/usr/bin:/bin", "HOME": "/", "LMOD_IGNORE_CACHE": "yes", "MODULEPATH": ""}
        for stack in stacks:
            place = Path(stack.root) / stack.name / "current"
            folders = {target: [f"modules/{target}/all/Core"] for target in stack.targets}
            for folder in (target_choice.FOLDER, *(path for paths in folders.values() for path in paths)):
                (place / folder).mkdir(parents=True)
            text = target_choice.module_text(stack, folders)
            (place / target_choice.path(stack)).write_text(text.replace("/proc/cpuinfo", str(cpuinfo)))
            start = f"{place}/{target_choice.FOLDER}"
            self.variables["MODULEPATH"] = ":".join(filter(None, (self.variables["MODULEPATH"], start)))

    def run(self, target: str, *words: str) -> str:
        """Run `module WORDS` on a node whose CPU has exactly the features of a target; return what Lmod says."""
        features = sorted("pni" if name == "sse3" else name for name in cpu_targets.features(target))
        key = {"x86_64": "flags", "aarch64": "Features"}.get(cpu_targets.architecture(target), "cpu")
        self._cpuinfo.write_text(f"processor\t: 0\nmodel name\t: {target}\n{key}\t\t: {' '.join(features)}\n")
        lmod = lmod_modules.find_lmod(os.environ)
        assert lmod is not None, "these tests need package lmod"
        done = subprocess.run([lmod.lmod, "python", *words], env=self.variables, capture_output=True, text=True, check=False)
        if done.returncode == 0 and "_mlstatus = True" in done.stdout:
            self.variables |= lmod_modules.environment(done.stdout)
            for name in re.findall(r'^del os.environ\["(\w+)"\]$', done.stdout, re.MULTILINE):
                self.variables.pop(name, None)
        return lmod_modules.reason(done.stderr)

    def chosen(self, stack: StackInput) -> list[str]:
        """Return the targets of a stack whose modules are seen."""
        place = f"{stack.root}/{stack.name}/current/modules/"
        folders = [path.removeprefix(place) for path in self.variables["MODULEPATH"].split(":") if path.startswith(place)]
        return [folder.removesuffix("/all/Core") for folder in folders if folder.endswith("/all/Core")]


@pytest.mark.parametrize("syntax", [LUA, TCL])
def test_a_choice_is_that_of_the_node_on_which_it_is_loaded(tmp_path: Path, syntax: str) -> None:
    tools = replace(small_trees.stack(), name="tools", root=str(tmp_path), targets=TARGETS, syntax=syntax)
    other = replace(tools, name="other-2", targets=("x86_64", "x86_64_v3"))
    shell = LoginShell(tmp_path / "cpuinfo", tools, other)

    assert shell.run("zen4", "load", choice_module("tools"), choice_module("other-2")) == ""
    assert (shell.chosen(tools), shell.chosen(other)) == (["zen4"], ["x86_64_v3"])
    variables = [shell.variables[name] for name in ("BRINGUP_CPU_TARGET_TOOLS", "BRINGUP_CPU_TARGET_OTHER_2")]
    assert variables == ["zen4", "x86_64_v3"]

    # a job inherits the environment of that login node
    shell.run("x86_64_v3", "load", choice_module("tools"))
    assert (shell.chosen(tools), shell.variables["BRINGUP_CPU_TARGET_TOOLS"]) == (["x86_64_v3"], "x86_64_v3")
    assert shell.chosen(other) == ["x86_64_v3"]
    shell.run("aarch64", "unload", choice_module("tools"))
    assert (shell.chosen(tools), shell.chosen(other)) == ([], ["x86_64_v3"])

    for target in ("x86_64", "power9le"):
        shell.run("zen4", "load", choice_module("tools"))
        assert f"{target_choice.NONE_FITS}: it is built for zen4, x86_64_v3" in shell.run(target, "load", choice_module("tools"))
        assert shell.run(target, "unload", choice_module("tools")) == ""
        assert "BRINGUP_CPU_TARGET_TOOLS" not in shell.variables
        shell.variables["BRINGUP_CPU_TARGET_TOOLS"] = "zen4"  # as if a job inherited it without modules
        assert f"{target_choice.NONE_FITS}: it is built" in shell.run(target, "load", choice_module("tools"))
        assert shell.chosen(tools) == []
