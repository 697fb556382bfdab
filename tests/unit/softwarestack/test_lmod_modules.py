"""Lmod's answers as data: routes through hierarchies, environments, reasons; the texts are those of Lmod 8.6.19."""

import msgspec
import pytest

from steps.softwarestack.tree import lmod_modules
from steps.softwarestack.tree.lmod_modules import LmodError

ROOT = "/software/small/current/modules"
MISSING = """Lmod has detected the following error: The following module(s) are unknown:
"nothere/1.0"

Please check the spelling or version number. Also try "module spider ..."
It is also possible your cache file is out-of-date; it may help to try:
  $ module --ignore_cache load "nothere/1.0"

Also make sure that all modulefiles written in TCL start with the string
#%Module
"""


def spider() -> str:
    """A hierarchy of compiler and MPI, as the spider lists it, beside a module of the site."""
    gcc, mpi = f"{ROOT}/all/Compiler/GCC/12", f"{ROOT}/all/MPI/GCC/12/OpenMPI/4"
    listed = {
        "GCC": {f"{ROOT}/all/Core/GCC/12.lua": {"fullName": "GCC/12", "Version": "12", "mpath": f"{ROOT}/all/Core"}},
        "OpenMPI": {f"{gcc}/OpenMPI/4.lua": {"fullName": "OpenMPI/4", "parentAA": [["GCC/12"]], "mpath": gcc}},
        "HPL": {f"{mpi}/HPL/2.lua": {"fullName": "HPL/2", "parentAA": [["gompi/1", "x/1"], ["GCC/12", "OpenMPI/4"]], "mpath": mpi}},
        "site": {"/opt/modules/site/1": {"fullName": "site/1"}},
    }
    return msgspec.json.encode(listed).decode()


def test_routes_lead_through_the_hierarchy() -> None:
    listed = lmod_modules.routes(spider(), ROOT)
    assert len(listed) == 3
    hpl = lmod_modules.route_of("MPI/GCC/12/OpenMPI/4/HPL/2", listed)
    assert hpl is not None
    assert hpl.load == ("GCC/12", "OpenMPI/4", "HPL/2")
    gcc = lmod_modules.route_of("Core/GCC/12", listed)
    assert gcc is not None
    assert gcc.load == ("GCC/12",)
    assert lmod_modules.route_of("Core/GCC/1", listed) is None
    assert lmod_modules.route_of("site/1", listed) is None


@pytest.mark.parametrize("output", ["{", "[1]", '{"a": {"b": {}}}', "lua: attempt to index a nil value", "[" * 5000])
def test_other_output_is_refused(output: str) -> None:
    with pytest.raises(LmodError, match="cannot be read"):
        lmod_modules.routes(output, ROOT)


@pytest.mark.parametrize(
    ("naming", "paths", "folders"),
    [
        ("HierarchicalMNS", ("modules/all/Core/GCC/12.lua", "modules/all/Compiler/GCC/12/zlib/1.lua"), ("modules/all/Core",)),
        ("EasyBuildMNS", ("modules/all/GCC/12.lua", "modules/all/Core/1.lua"), ("modules/all",)),
        ("", ("modules/spack/Core/zlib/1.lua",), ("modules/spack/Core",)),
        ("hierarchical", ("modules/all/Core/x/1", "modules/all/openmpi/4-abc/Core/y/1"), ("modules/all/Core",)),
        ("", ("modules/zlib/1.lua",), ("modules",)),
        ("", (), ()),
    ],
)
def test_users_start_in_the_first_folder(naming: str, paths: tuple[str, ...], folders: tuple[str, ...]) -> None:
    assert lmod_modules.start_folders(naming, paths) == folders


def test_an_environment_is_read_with_its_quotes() -> None:
    output = (
        'import os\nos.environ["A"] = "x \\"y\\" \\\\z";\nos.environ["B"] = "two\\\nlines";\nos.environ["C"] = "tab\\9";\n'
        'os.environ["LOADEDMODULES"] = "GCC/12:zlib/1";\nos.environ["odd name"] = "x";\nos.system("false")\n_mlstatus = True\n'
    )
    variables = lmod_modules.environment(output)
    assert variables == {"A": 'x "y" \\z', "B": "two\nlines", "C": "tab\t", "LOADEDMODULES": "GCC/12:zlib/1"}
    assert lmod_modules.is_loaded("zlib/1", variables)
    assert not lmod_modules.is_loaded("zlib", variables)


@pytest.mark.parametrize("output", ["", "_mlstatus = False\n", 'os.environ["A"] = "_mlstatus = True"'])
def test_a_failure_has_no_environment(output: str) -> None:
    with pytest.raises(LmodError):
        lmod_modules.environment(output)


def test_a_reason_is_one_line_without_advice() -> None:
    assert lmod_modules.reason(MISSING) == 'The following module(s) are unknown: "nothere/1.0"'
    assert lmod_modules.reason("lua5.3: not found\n") == "lua5.3: not found"
    assert lmod_modules.reason("") == ""
