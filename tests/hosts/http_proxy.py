"""A real HTTP proxy that wants a password: behind it a site whose names nobody else knows, or hosts that nobody else reaches."""

import functools
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hostlab import network
from hostlab.host import Host
from hostlab.lab import Lab
from hostlab.waiting import listens, until
from release_site import Quiet

from tests.unit.served import served
from workflows.spec.sections import proxy as proxies

NAMES = ".example.org"
USER = "site"
SETTINGS = """Listen @ADDRESS@
Port @PORT@
Timeout 60
LogFile "@LOG@"
LogLevel Info
BasicAuth @USER@ @PASSWORD@
Upstream http 127.0.0.1:@SITE@ "@NAMES@"
"""
"""Of tinyproxy; what it is asked for under NAMES it gets from the site."""
START_SECONDS = 30
BEFORE_SSH = """Listen @ADDRESS@
Port @PORT@
Timeout 60
LogFile "@LOG@"
LogLevel Connect
BasicAuth @USER@ @PASSWORD@
ConnectPort 22
"""
BEFORE_SSH_PORT = 3128


class Site(ThreadingHTTPServer):
    """A site, and the URLs that it was asked for."""

    asked: list[str]


class Behind(Quiet):
    """Serves files to a proxy, which asks with the whole URL, and remembers what was asked for."""

    def send_head(self) -> Any:
        """Begin to answer."""
        assert isinstance(self.server, Site)
        self.server.asked.append(self.path)
        return super().send_head()

    def translate_path(self, path: str) -> str:
        """The file of a URL."""
        return super().translate_path("/" + path.split("/", 3)[3] if path.startswith("http://") else path)


@dataclass(frozen=True)
class Proxy:
    """Running proxy: its port, its log and the requests that it passed on."""

    port: int
    log: Path
    asked: list[str]
    """Every URL that came through to the site."""

    def variables(self, lab: Lab) -> dict[str, Any]:
        """Return the variables by which plays learn of the proxy, without its password."""
        spec = proxies.Proxy(http=f"http://{network.GATEWAY}:{self.port}")
        given = proxies.environment(spec, ("10.42.0.0/16", "10.43.0.0/16"), [host.address for host in lab.hosts])
        return {"bringup_proxy": given, "bringup_proxy_user": USER}

    def logged(self) -> list[str]:
        """Every URL that the proxy says it was asked for."""
        lines = self.log.read_text().splitlines()
        return [line.split(" GET ")[1].split()[0] for line in lines if "Request (file" in line and " GET " in line]


@contextmanager
def behind_a_proxy(site: Path, password: str) -> Iterator[Proxy]:
    """Serve the files of `site` as any name below NAMES, to nobody but the proxy, while the context lasts."""
    handler = functools.partial(Behind, directory=str(site))
    with Site(("127.0.0.1", 0), handler) as server, served(server):
        server.asked = []
        proxy = Proxy(_free_port(), site.with_name("proxy.log"), server.asked)
        words = {"ADDRESS": network.GATEWAY, "PORT": proxy.port, "LOG": proxy.log, "USER": USER, "PASSWORD": password}
        text = SETTINGS
        for word, value in (words | {"SITE": server.server_address[1], "NAMES": NAMES}).items():
            text = text.replace(f"@{word}@", str(value))
        settings = site.with_name("proxy.conf")
        settings.write_text(text)
        with subprocess.Popen(["tinyproxy", "-d", "-c", str(settings)], stdout=subprocess.DEVNULL) as process:
            try:
                assert until(lambda: listens(network.GATEWAY, proxy.port), START_SECONDS), proxy.log.read_text()
                yield proxy
            finally:
                process.terminate()


@dataclass(frozen=True)
class BeforeSsh:
    """The URL of a proxy that connects to port 22 of others, and what it wrote down."""

    url: str
    log: Path

    def connected(self) -> set[str]:
        """Every place that it was asked to connect to."""
        lines = self.log.read_text().splitlines()
        return {line.split(" CONNECT ")[1].split()[0] for line in lines if "Request (file" in line and " CONNECT " in line}


@contextmanager
def before_ssh(host: Host, folder: Path, password: str) -> Iterator[BeforeSsh]:
    """A proxy in a host's network while the context lasts."""
    proxy = BeforeSsh(f"http://{host.address}:{BEFORE_SSH_PORT}", folder / "proxy.log")
    words = {"ADDRESS": host.address, "PORT": BEFORE_SSH_PORT, "LOG": proxy.log, "USER": USER, "PASSWORD": password}
    text = BEFORE_SSH
    for word, value in words.items():
        text = text.replace(f"@{word}@", str(value))
    settings = folder / "proxy.conf"
    settings.write_text(text)
    command = ["ip", "netns", "exec", network.namespace(host.name), "tinyproxy", "-d", "-c", str(settings)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            assert until(lambda: listens(host.address, BEFORE_SSH_PORT), START_SECONDS), proxy.log.read_text()
            yield proxy
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server((network.GATEWAY, 0)) as held:
        return int(held.getsockname()[1])
