"""Folders that module files of EasyBuild and Spack, in Lua and Tcl, add to the search of the loader."""

import pytest

from steps.softwarestack.tree.module_search_paths import library_folders

ROOT = 'local root = "/s/hdf5/1.14"\n'


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        (ROOT + 'prepend_path("LD_LIBRARY_PATH", pathJoin(root, "lib"))', ["/s/hdf5/1.14/lib"]),
        (ROOT + 'prepend_path("LD_LIBRARY_PATH", pathJoin(root, "lib", "R", "lib"))', ["/s/hdf5/1.14/lib/R/lib"]),
        (ROOT + 'append_path("LD_LIBRARY_PATH", pathJoin(root, "deep/private/"))', ["/s/hdf5/1.14/deep/private"]),
        (ROOT + 'prepend_path("LD_LIBRARY_PATH", root)', ["/s/hdf5/1.14"]),
        (ROOT + 'local libs = pathJoin(root, "lib64")\nprepend_path("LD_LIBRARY_PATH", libs)', ["/s/hdf5/1.14/lib64"]),
        ('prepend_path("LD_LIBRARY_PATH", "/s/a/lib", ":")', ["/s/a/lib"]),
        ("if true then prepend_path('LD_LIBRARY_PATH', '/s/a/lib') end", ["/s/a/lib"]),
        ('setenv("LD_LIBRARY_PATH", "/s/a/lib:/s/b/lib:relative")', ["/s/a/lib", "/s/b/lib"]),
        ('prepend_path{"LD_LIBRARY_PATH", "/s/a/lib", priority=10}', ["/s/a/lib"]),
        ('-- prepend_path("LD_LIBRARY_PATH", "/s/a/lib")', []),
        ('prepend_path("LD_LIBRARY_PATH", unknown)', []),
        ('prepend_path("LIBRARY_PATH", "/s/a/lib")', []),
        ('remove_path("LD_LIBRARY_PATH", "/s/a/lib")', []),
        ("#%Module\nset root /s/z\nprepend-path\tLD_LIBRARY_PATH\t\t$root/lib", ["/s/z/lib"]),
        ("#%Module\nset root {/s/z}\nappend-path LD_LIBRARY_PATH [file join ${root} lib sub]", ["/s/z/lib/sub"]),
        ("#%Module1.0\nprepend-path --delim {:} LD_LIBRARY_PATH {/s/a/lib}", ["/s/a/lib"]),
        ("#%Module1.0\n# prepend-path LD_LIBRARY_PATH /s/a/lib", []),
    ],
)
def test_folders_are_read_from_modules(text: str, folders: list[str]) -> None:
    assert list(library_folders(text)) == folders
