"""Files over HTTP as hosts of the lab see them, such as a download site for the stand-in's releases."""

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import rke2_stand_in
from hostlab import network

from tests.unit.served import served


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address at which hosts reach the files of a folder, while the context lasts."""
    with ThreadingHTTPServer(("", 0), functools.partial(Quiet, directory=str(folder))) as server, served(server):
        yield f"http://{network.GATEWAY}:{server.server_address[1]}"


@contextmanager
def offered(folder: Path, versions: Iterable[str], programs: tuple[Path, ...] = ()) -> Iterator[str]:
    """The address of a site with these releases below `folder`/site, while the context lasts."""
    rke2_stand_in.authority(folder / "ca")
    for version in versions:
        rke2_stand_in.release(folder / "site", version, folder / "ca", programs)
    with serving(folder / "site") as url:
        yield url
