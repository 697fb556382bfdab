"""Program: resolve easyconfigs with EasyBuild's own dependency resolution, and write the resolved set as JSON.

Run by the interpreter that EasyBuild is installed for, isolated, so that nothing in the current folder is imported:
`python -I resolve_easyconfigs.py OUT EASYCONFIG[,EASYCONFIG…] [EasyBuild's options…]`. OUT gets `{"easybuild": VERSION,
"packages": […]}`, packages after their dependencies. It builds nothing. Errors are on stderr, with exit code 1.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main(out: str, easyconfigs: str, options: list[str]) -> int:
    """Resolve and write; return the exit code."""
    # imported here: EasyBuild is no dependency of bringup, and only its own interpreter has it
    from easybuild.framework.easyconfig.tools import parse_easyconfigs
    from easybuild.tools.build_log import EasyBuildError
    from easybuild.tools.modules import modules_tool
    from easybuild.tools.options import set_up_configuration
    from easybuild.tools.robot import resolve_dependencies
    from easybuild.tools.version import VERSION

    try:
        set_up_configuration(args=options, silent=True)
        parsed, _ = parse_easyconfigs([(path, False) for path in easyconfigs.split(",")])
        resolved = resolve_dependencies(parsed, modules_tool(), retain_all_deps=True)
        packages = [_package(entry) for entry in resolved]
    except EasyBuildError as error:
        sys.stderr.write(f"{error.msg}\n")
        return 1
    Path(out).write_text(json.dumps({"easybuild": str(VERSION), "packages": packages}))
    return 0


def _package(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of one resolved easyconfig; dependencies are module names, with the toolchain among them."""
    easyconfig = entry["ec"]
    build = {dependency["full_mod_name"] for dependency in easyconfig.builddependencies()}
    runtime = {dependency["full_mod_name"] for dependency in easyconfig["dependencies"]}
    needed = [dependency["full_mod_name"] for dependency in easyconfig.all_dependencies]
    external = [dependency["full_mod_name"] for dependency in easyconfig.all_dependencies if dependency.get("external_module")]
    toolchain = easyconfig["toolchain"]
    return {
        "easyconfig": entry["spec"],
        "name": easyconfig.name,
        "version": f"{easyconfig.version}{easyconfig['versionsuffix']}",
        "module": easyconfig.full_mod_name,
        "toolchain": "" if toolchain["name"] == "system" else f"{toolchain['name']}/{toolchain['version']}",
        # a package may be needed to build and to run; a toolchain is loaded with the module
        "build": [name for name in dict.fromkeys(needed) if name in build and name not in runtime],
        "runtime": [name for name in dict.fromkeys(needed) if name not in build or name in runtime],
        "external": external,
        "sources": [_source(source) for source in easyconfig["sources"]],
        "patches": [_patch(patch) for patch in easyconfig["patches"]],
        "checksums": [_checksum(checksum) for checksum in easyconfig["checksums"]],
    }


def _source(source: Any) -> dict[str, Any]:
    if isinstance(source, dict):
        return {"name": str(source.get("filename") or source.get("download_filename") or ""), "git": bool(source.get("git_config"))}
    return {"name": str(source[0] if isinstance(source, (list, tuple)) else source), "git": False}


def _patch(patch: Any) -> str:
    if isinstance(patch, dict):
        return str(patch.get("name", ""))
    return str(patch[0] if isinstance(patch, (list, tuple)) else patch)


def _checksum(checksum: Any) -> Any:
    """Return a checksum as EasyBuild allows it: text, a list of alternatives, a dictionary by file name, or None."""
    if isinstance(checksum, (list, tuple)):
        return [_checksum(entry) for entry in checksum]
    if isinstance(checksum, dict):
        return {str(name): _checksum(entry) for name, entry in checksum.items()}
    return checksum


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
