"""Programs of servers as Debian packages them, unpacked where they are not installed: installing would start them here."""

import shutil
import subprocess
from pathlib import Path

import pytest

FRAME = """daemon off;
{user}pid {folder}/pid;
error_log {folder}/errors;
events {{}}
http {{
  access_log {folder}/requests;
  {temporary}
  include {lines};
}}
"""
TEMPORARY = ("client_body_temp_path", "proxy_temp_path", "fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path")


def unpacked(package: str, folder: Path) -> Path:
    """A folder with the files of a package; where it cannot be fetched, the test is skipped for that reason."""
    done = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{package} is not installed and cannot be fetched: {done.stderr.strip()[-200:]}")
    subprocess.run(["dpkg-deb", "--extract", next(folder.glob(f"{package}_*.deb")), folder], check=True)
    return folder


def program(name: str, package: str, folder: Path) -> Path:
    """A server's program, the installed one or one unpacked; where it finds not all of its libraries, the test is skipped."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin")
    path = Path(found) if found else unpacked(package, folder) / "usr/sbin" / name
    asked = subprocess.run([path, "-v"], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(f"{name} does not start: {asked.stderr.strip()[-200:]}")
    return path


def nginx_lines(folder: Path, lines: Path, user: str) -> str:
    """The whole of nginx's configuration around lines for its conf.d; what it writes itself comes into the folder."""
    temporary = " ".join(f"{name} {folder}/{name};" for name in TEMPORARY)
    return FRAME.format(user=f"user {user};\n" if user else "", folder=folder, lines=lines, temporary=temporary)
