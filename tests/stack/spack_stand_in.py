"""A stand-in for `spack`: a small program that obeys recorded commands of Spack 0.23 over real lock files, and compiles nothing.

It has Spack's own checks, messages, exit codes and layouts as far as a build of one hash shows them (recordings: samples
`spack/real_0.23`): an install needs a lock and its dependencies in the database, `reindex` fills that from the install tree,
a package is a folder with `.spack/spec.json`, and a module file follows the install. Programs of packages print their name.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

RELEASE: Final = "0.23.0"
FAULTS, LOCK = "faults.json", "concretized.lock"
"""Files beside the program's folder: outputs and exit codes by command and package, and the lock that `concretize` writes."""
_PYTHON: Final = "/usr/bin/python3"
"""Interpreter of the system, which sandboxes of builds show."""


def write_program(folder: Path, lock: bytes = b"", faults: Mapping[str, tuple[int, str]] | None = None) -> dict[str, str]:
    """Write the stand-in to FOLDER/bin/spack, and return the variables by which it is used.

    `faults` are exit code and output of an install of a package by its name, of `concretize`, or of `fetch NAME`.
    """
    program = folder / "bin" / "spack"
    program.parent.mkdir(parents=True)
    source = Path(__file__).read_text()
    program.write_text(f"#!{_PYTHON} -I\n{source}\nif __name__ == '__main__':\n    sys.exit(_main(sys.argv[1:]))\n")
    program.chmod(0o755)
    write_faults(folder, faults or {})
    (folder / LOCK).write_bytes(lock)
    return {"PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}


def write_faults(folder: Path, faults: Mapping[str, tuple[int, str]]) -> None:
    """Replace the faults; without any, all commands succeed."""
    (folder / FAULTS).write_text(json.dumps(faults))


class _Failure(Exception):
    """Exception for a command that ends with an output and an exit code."""

    def __init__(self, code: int, output: str) -> None:
        super().__init__(output)
        self.code, self.output = code, output


def _main(arguments: list[str]) -> int:
    try:
        if arguments == ["--version"]:
            print(f"{RELEASE} (stand-in)")
            return 0
        _Command(arguments).run()
    except _Failure as failure:
        print(failure.output)
        return failure.code
    return 0


class _Command:
    """One command: its subcommand and arguments, the environment and the configuration scope."""

    def __init__(self, arguments: list[str]) -> None:
        values = dict[str, str]()
        while arguments and arguments[0].startswith("-"):
            values[arguments[0]] = arguments[1]
            arguments = arguments[2:]
        self._name, self._arguments = arguments[0], arguments[1:]
        self._environment = Path(values.get("-e", "/nowhere"))
        self._scope = Path(values.get("-C", "/nowhere"))
        self._home = Path(sys.argv[0]).resolve().parent.parent
        if not (self._environment / "spack.yaml").is_file():
            raise _Failure(1, f"==> Error: no environment in {self._environment}")

    def run(self) -> None:
        """Run the command. Raises _Failure."""
        match self._name:
            case "concretize":
                self._concretize()
            case "fetch":
                self._fail(f"fetch {self._wanted()['name']}")
                print(f"==> Fetching https://mirror.example.org/{self._wanted()['name']}.tar.gz")
            case "reindex":
                self._reindex()
            case "install":
                self._install()
            case _:
                raise _Failure(2, f"spack: error: argument COMMAND: invalid choice: '{self._name}'")

    def _fail(self, name: str) -> None:
        faults = json.loads((self._home / FAULTS).read_text())
        if name in faults:
            code, output = faults[name]
            raise _Failure(code, output)

    def _section(self, name: str) -> Any:
        return json.loads((self._scope / f"{name}.yaml").read_text())[name]

    @property
    def _root(self) -> Path:
        return Path(self._section("config")["install_tree"]["root"])

    @property
    def _database(self) -> Path:
        return self._root / ".spack-db" / "index.json"

    def _specs(self) -> dict[str, Any]:
        path = self._environment / "spack.lock"
        if not path.is_file():
            raise _Failure(0, f"==> {self._environment} environment has no specs to install")
        specs: dict[str, Any] = json.loads(path.read_text())["concrete_specs"]
        return specs

    def _wanted(self) -> dict[str, Any]:
        hash_ = self._arguments[-1].removeprefix("/")
        spec: dict[str, Any] | None = self._specs().get(hash_)
        if spec is None:
            raise _Failure(1, f"==> Error: Cannot install '/{hash_}' because no matching specs are in the current environment.")
        return spec

    def _concretize(self) -> None:
        self._fail("concretize")
        lock = (self._home / LOCK).read_bytes()
        (self._environment / "spack.lock").write_bytes(lock)
        roots = json.loads(lock)["roots"]
        print(f"==> Concretized {len(roots)} specs:")
        for root in roots:
            print(f" -   {root['hash'][:7]}  {root['spec']}")

    def _reindex(self) -> None:
        installs = {}
        for path in sorted(self._root.glob("*/.spack/spec.json")):
            spec = json.loads(path.read_text())
            installs[spec["hash"]] = str(path.parent.parent)
        self._write_database(installs)

    def _installs(self) -> dict[str, str]:
        installs: dict[str, str] = json.loads(self._database.read_text()) if self._database.is_file() else {}
        return installs

    def _write_database(self, installs: Mapping[str, str]) -> None:
        self._database.parent.mkdir(parents=True, exist_ok=True)
        self._database.write_text(json.dumps(installs))

    def _install(self) -> None:
        required = {"--only-concrete", "--only=package", "--no-cache"}
        if missing := sorted(required - set(self._arguments)):
            raise _Failure(2, f"spack install: error: the stand-in knows only installs with {shlex.join(missing)}")
        spec, installs = self._wanted(), self._installs()
        title = f"{spec['name']}-{spec['version']}-{spec['hash']}"
        absent = [
            f"{self._specs()[needed['hash']]['name']}-{self._specs()[needed['hash']]['version']}-{needed['hash']}"
            for needed in spec.get("dependencies", ())
            if needed["hash"] not in installs and not self._specs()[needed["hash"]].get("external")
        ]
        if absent:
            plural = "dependency" if len(absent) == 1 else "dependencies"
            raise _Failure(
                1,
                f"==> Error: Detected uninstalled dependencies for {title}: {set(absent)}\n"
                f"==> Error: Cannot proceed with {title}: {len(absent)} uninstalled {plural}: {','.join(absent)}",
            )
        print(f"==> Installing {title} [1/1]\n==> {spec['name']}: Executing phase: 'build'")
        prefix = self._root / f"{spec['name']}-{spec['version']}-{spec['hash'][:12]}"
        if prefix.is_dir():
            shutil.rmtree(prefix)  # Spack removes what another try has left, and what a failure leaves
        self._fail(spec["name"])
        self._write_package(prefix, spec)
        self._write_module(prefix, spec)
        self._write_database({**installs, spec["hash"]: str(prefix)})
        print(f"==> {spec['name']}: Successfully installed {title}\n[+] {prefix}")

    def _write_package(self, prefix: Path, spec: Mapping[str, Any]) -> None:
        metadata, program = prefix / ".spack", prefix / "bin" / spec["name"]
        metadata.mkdir(parents=True)
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho {shlex.quote(spec['name'])} {shlex.quote(spec['version'])}\n")
        program.chmod(0o755)
        (metadata / "spec.json").write_text(json.dumps(spec))
        (metadata / "spack-build-out.txt.gz").write_bytes(b"log")

    def _write_module(self, prefix: Path, spec: Mapping[str, Any]) -> None:
        modules = self._section("modules")["default"]
        excluded = {entry.rsplit("/", 1)[-1] for entry in modules["lmod"]["exclude"]}
        name = f"{spec['name']}/{spec['version']}-{spec['hash'][:7]}"
        needs, folder = [], "Core"
        for needed in spec.get("dependencies", ()):
            kinds = {*needed.get("type", ()), *needed.get("parameters", {}).get("deptypes", ())}
            other = self._specs()[needed["hash"]]
            if "hierarchy:" not in modules["lmod"] and "mpi" in needed.get("parameters", {}).get("virtuals", ()):
                folder = f"{other['name']}/{other['version']}-{needed['hash'][:7]}/Core"  # Spack's own default
            if needed["hash"] not in excluded and kinds & {"link", "run"}:
                needs.append(f"{other['name']}/{other['version']}-{needed['hash'][:7]}")
        lua = [f"whatis([[Name : {spec['name']}]])", *(f'depends_on("{needed}")' for needed in needs)]
        lua.append(f'prepend_path("PATH", "{prefix}/bin", ":")')
        tcl = ["#%Module1.0", *(f"depends-on {needed}" for needed in needs), f"prepend-path PATH {{{prefix}/bin}}"]
        texts = {"lmod": (f"{folder}/{name}.lua", lua), "tcl": (name, tcl)}
        for kind in modules["enable"]:
            path, lines = texts[kind]
            file = Path(modules["roots"][kind], path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(lines) + "\n")
