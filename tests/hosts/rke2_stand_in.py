"""A stand-in for an RKE2 release: an archive with units and a program that opens RKE2's ports and says what RKE2 says.

It knows only what the plays ask for: version, supervisor and API ports, /readyz through kubectl, the kubelet's /healthz, the token.
"""

import hashlib
import io
import tarfile
from pathlib import Path

PROGRAM = r"""#!/usr/bin/python3
import http.server, os, re, socket, socketserver, sys, threading, urllib.request
VERSION = "@VERSION@"
if "--version" in sys.argv:
    print("rke2 version %s (standin)" % VERSION)
    sys.exit()
config = open("/etc/rancher/rke2/config.yaml").read()
value = lambda key: (re.search("^%s: *(.*)$" % key, config, re.M) or [0, ""])[1].strip("'\"")
class Say(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        good = self.path != "/token" or self.headers["Authorization"] == value("token")
        self.send_response(200 if good else 401); self.end_headers(); self.wfile.write(b"ok" if good else b"")
    def log_message(self, *args): pass
def serve(address, port):
    socketserver.TCPServer.allow_reuse_address = True
    server = socketserver.ThreadingTCPServer((address, port), Say)
    threading.Thread(target=server.serve_forever, daemon=True).start()
if value("server"):
    url = value("server").replace("https:", "http:") + "/token"
    urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": value("token")}), timeout=5)
if sys.argv[1] == "server":
    os.makedirs("/var/lib/rancher/rke2/bin", exist_ok=True)
    with open("/etc/rancher/rke2/rke2.yaml", "w") as out:
        out.write("clusters: [{name: default, cluster: {server: 'https://127.0.0.1:6443'}}]\n")
    with open("/var/lib/rancher/rke2/bin/kubectl", "w") as out:
        out.write("#!/bin/sh\nexec python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:6443/readyz').read().decode())\"\n")
    os.chmod("/var/lib/rancher/rke2/bin/kubectl", 0o755)
    serve("", 9345); serve("", 6443)
else:
    serve("127.0.0.1", 10248)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
    notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
threading.Event().wait()
"""

UNIT = """[Unit]
Description=Stand-in for RKE2 (@KIND@)
[Service]
Type=notify
NotifyAccess=all
ExecStart=/usr/local/bin/rke2 @KIND@
Restart=on-failure
RestartSec=1
[Install]
WantedBy=multi-user.target
"""


def release(folder: Path, version: str) -> None:
    """Write `FOLDER/VERSION/` with the archive and its list of checksums, as a download site has them."""
    place = folder / version
    place.mkdir(parents=True)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        _add(archive, "bin/rke2", PROGRAM.replace("@VERSION@", version), 0o755)
        for kind in ("server", "agent"):
            _add(archive, f"lib/systemd/system/rke2-{kind}.service", UNIT.replace("@KIND@", kind), 0o644)
    name = "rke2.linux-amd64.tar.gz"
    (place / name).write_bytes(data.getvalue())
    (place / "sha256sum-amd64.txt").write_text(f"{hashlib.sha256(data.getvalue()).hexdigest()}  {name}\n")


def _add(archive: tarfile.TarFile, name: str, text: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), mode
    archive.addfile(entry, io.BytesIO(text.encode()))
