"""The module by which users get the best CPU target of a node, in a stack that is built for several. Pure.

A version has it in `modules/best`, in the language of its other module files. It reads the features of the CPU from /proc/cpuinfo,
and adds the modules of the best target that this CPU runs to MODULEPATH. The most demanding target is tried first. Its name and its
variable have the name of the stack, so that several stacks can be used together: Lmod unloads a module before it loads another one
of the same name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from steps.contract import release_layout
from steps.softwarestack.contract import cpu_targets
from steps.softwarestack.contract.stack_input import BEST, LUA, StackInput, choice_module
from steps.softwarestack.contract.stack_release import MODULES

FOLDER: Final = f"{MODULES}/{BEST}"
"""Folder that users name to `module use`."""
SCHEMA: Final = 2
"""Number that changes with the content of the module, so that a tree with an older one is not reused."""
NONE_FITS: Final = "this stack has no modules for the CPU of this node"
"""Beginning of the module's message on a node whose CPU runs no target."""
_LINUX_NAMES: Final = {"sse3": "pni"}
_LISTS: Final = {"x86_64": "flags", "aarch64": "Features"}
"""Names of the list of features in /proc/cpuinfo."""
# a job inherits the module of its login node, whose CPU may be another one: what was chosen there is unloaded, whatever fits here
_LUA_SCRIPT: Final = """\
help([[Adds the modules of this stack that are compiled for the CPU of this node.]])
whatis("Description: modules for the CPU of this node")
local targets = {
@rows@
}
local have, key = {}, ""
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
local loaded = mode() == "unload" and os.getenv("@variable@")
local chosen
for _, target in ipairs(targets) do
   local fits = target.key == key
   for word in target.needs:gmatch("%S+") do fits = fits and have[word] end
   if loaded then fits = target.name == loaded end
   if fits then
      chosen = target
      break
   end
end
if chosen then
   setenv("@variable@", chosen.name)
   for _, folder in ipairs(chosen.folders) do prepend_path("MODULEPATH", folder) end
elseif mode() == "load" then
   LmodError("@none_fits@: it is built for @names@")
end
"""
# Lmod evaluates loaded modules once more, to check what they need, and tells Tcl that it loads them: the variable is set then
_TCL_SCRIPT: Final = """\
#%Module1.0
proc ModulesHelp { } {
   puts stderr "Adds the modules of this stack that are compiled for the CPU of this node."
}
module-whatis "Description: modules for the CPU of this node"
set targets {
@rows@
}
set key ""
set words ""
if {![catch {open /proc/cpuinfo} file]} {
   while {[gets $file line] >= 0} {
      if {[regexp {^(flags|Features)\\s*:(.*)$} $line all key words]} { break }
   }
   close $file
}
set have [regexp -all -inline {\\S+} $words]
set unloads [expr {[lsearch {unload remove} [module-info mode]] >= 0}]
set loaded [expr {$unloads && [info exists ::env(@variable@)]}]
set chosen ""
foreach target $targets {
   foreach {name list needs folders} $target { break }
   set fits [expr {$list eq $key}]
   foreach word $needs {
      if {[lsearch -exact $have $word] < 0} { set fits 0 }
   }
   if {$loaded} { set fits [expr {$name eq $::env(@variable@)}] }
   if {$fits} {
      set chosen $name
      break
   }
}
if {$chosen ne ""} {
   setenv @variable@ $chosen
   foreach folder $folders { prepend-path MODULEPATH $folder }
} elseif {[module-info mode load] && !([info exists ::env(@variable@)] && [is-loaded @module@])} {
   error "@none_fits@: it is built for @names@"
}
"""


def path(stack: StackInput) -> str:
    """Return the path of the module's file in a tree."""
    return f"{FOLDER}/{choice_module(stack.name)}{'.lua' if stack.syntax == LUA else ''}"


def variable(stack: str) -> str:
    """Return the name of the variable that has the chosen target of a stack."""
    return f"BRINGUP_CPU_TARGET_{re.sub('[^A-Z0-9]', '_', stack.upper())}"


def module_text(stack: StackInput, folders: Mapping[str, Iterable[str]]) -> str:
    """Return the text of the module.

    `folders` are, for each target, the tree paths to `module use` first (`lmod_modules.start_folders`).
    """
    modules_root = f"{stack.root}/{stack.name}/{release_layout.CURRENT}/{MODULES}"
    targets = cpu_targets.best_first(folders)
    script, row = (_LUA_SCRIPT, _lua_row) if stack.syntax == LUA else (_TCL_SCRIPT, _tcl_row)
    rows = (row(target, [modules_root + folder.removeprefix(MODULES) for folder in folders[target]]) for target in targets)
    words = {
        "rows": "\n".join(rows),
        "names": ", ".join(targets),
        "module": choice_module(stack.name),
        "variable": variable(stack.name),
        "none_fits": NONE_FITS,
    }
    return re.sub("@([a-z_]+)@", lambda mark: words[mark[1]], script)


def _lua_row(target: str, folders: Iterable[str]) -> str:
    paths = ", ".join(f'"{folder}"' for folder in folders)
    return f'   {{ name = "{target}", key = "{_key(target)}", needs = "{_needs(target)}", folders = {{ {paths} }} }},'


def _tcl_row(target: str, folders: Iterable[str]) -> str:
    return f"   {{{target} {_key(target)} {{{_needs(target)}}} {{{' '.join(folders)}}}}}"


def _key(target: str) -> str:
    return _LISTS[cpu_targets.architecture(target)]


def _needs(target: str) -> str:
    return " ".join(sorted(_LINUX_NAMES.get(feature, feature) for feature in cpu_targets.features(target)))
