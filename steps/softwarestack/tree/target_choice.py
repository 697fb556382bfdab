"""The module by which users get the best CPU target of a node, in a stack that is built for several. Pure.

A version has it as `modules/best/target.lua`. It reads the features of the CPU from /proc/cpuinfo, and adds the modules of the best
target that this CPU runs to MODULEPATH. The most demanding target is tried first.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from steps.softwarestack.contract import cpu_targets
from steps.softwarestack.contract.stack_input import BEST
from steps.softwarestack.contract.stack_release import MODULES

MODULE: Final = "target"
"""Name of the module."""
PATH: Final = f"{MODULES}/{BEST}/{MODULE}.lua"
"""Path of the module's file in a tree."""
FOLDER: Final = f"{MODULES}/{BEST}"
"""Folder that users name to `module use`."""
VARIABLE: Final = "BRINGUP_CPU_TARGET"
"""Variable that has the chosen target."""
NONE_FITS: Final = "this stack has no modules for the CPU of this node"
"""Beginning of the module's message on a node whose CPU runs no target."""
_LINUX_NAMES: Final = {"sse3": "pni"}
_SCRIPT: Final = """\
help([[Adds the modules of this stack that are compiled for the CPU of this node.]])
whatis("Description: modules for the CPU of this node")
conflict("{module}")
local targets = {{
{rows}
}}
local have, key = {{}}, ""
local file = io.open("/proc/cpuinfo")
if file then
   for line in file:lines() do
      local name, words = line:match("^(%a+)%s*:(.*)$")
      if name == "flags" or name == "Features" then
         key = name
         for word in words:gmatch("%S+") do have[word] = true end
         break
      end
   end
   file:close()
end
local chosen
for _, target in ipairs(targets) do
   local fits = target.key == key or target.key == ""
   for word in target.needs:gmatch("%S+") do fits = fits and have[word] end
   if fits then
      chosen = target
      break
   end
end
if chosen then
   setenv("{variable}", chosen.name)
   for _, folder in ipairs(chosen.folders) do prepend_path("MODULEPATH", folder) end
elseif mode() == "load" then
   LmodError("{none_fits}: it is built for {names}")
end
"""


def module_text(modules_root: str, folders: Mapping[str, Iterable[str]]) -> str:
    """Return the text of the module.

    `folders` are, for each target, the tree paths to `module use` first (`lmod_modules.start_folders`), `modules_root` is the path
    at which users see the folder of modules.
    """
    targets = cpu_targets.best_first(folders)
    rows = (_row(target, [modules_root + folder.removeprefix(MODULES) for folder in folders[target]]) for target in targets)
    return _SCRIPT.format(module=MODULE, rows="\n".join(rows), names=", ".join(targets), variable=VARIABLE, none_fits=NONE_FITS)


def _row(target: str, folders: Iterable[str]) -> str:
    needs = sorted(_LINUX_NAMES.get(feature, feature) for feature in cpu_targets.features(target))
    key = {"x86_64": "flags", "aarch64": "Features"}.get(cpu_targets.architecture(target), "")
    paths = ", ".join(f'"{folder}"' for folder in folders)
    return f'   {{ name = "{target}", key = "{key}", needs = "{" ".join(needs)}", folders = {{ {paths} }} }},'
