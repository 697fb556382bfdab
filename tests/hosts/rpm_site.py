"""A repository of RPM packages with the names of a profile's, made by rpmbuild and createrepo: what is in them is a stand-in."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

VERSION = "1.0"
HEADER = f"""Name: site
Version: {VERSION}
Release: 1
Summary: Stand-ins
License: none
BuildArch: noarch
AutoReqProv: no
%description
Stand-ins.
"""
PART = """
%package -n @NAME@
Summary: Stand-in for @NAME@
@MORE@
%description -n @NAME@
Stand-in.
%files -n @NAME@
/usr/share/stand-in/@NAME@
"""
SERVICE = "/usr/lib/systemd/system/chronyd.service"
UNIT = """[Unit]
Description=Stand-in for chronyd
[Service]
ExecStart=/usr/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""


def repository(folder: Path, names: Iterable[str], needs: dict[str, str]) -> None:
    """Write a repository with these packages into `folder`; `needs`: package → one that it requires. chrony brings a unit."""
    built = folder.with_name(f"{folder.name}-build")
    files = built / "files"
    (files / "usr/share/stand-in").mkdir(parents=True)
    spec = HEADER + f"%install\ncp -r {files}/. %{{buildroot}}\n"
    for name in names:
        if name == "chrony":
            (files / SERVICE[1:]).parent.mkdir(parents=True)
            (files / SERVICE[1:]).write_text(UNIT)
        (files / "usr/share/stand-in" / name).write_text(f"{name}\n")
        more = f"Requires: {needs[name]}" if name in needs else ""
        spec += PART.replace("@NAME@", name).replace("@MORE@", more) + (f"{SERVICE}\n" if name == "chrony" else "")
    (built / "site.spec").write_text(spec)
    options = [f"_topdir {built}", f"_rpmdir {folder}", f"_dbpath {built}/db"]
    defines = [word for option in options for word in ("--define", option)]
    for command in (["rpmbuild", *defines, "-bb", str(built / "site.spec")], ["createrepo_c", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
