#!/usr/bin/python3
"""A stand-in for the program rke2: it opens RKE2's ports, says what RKE2 says there, and knows its cluster's nodes.

It leaves processes, mounts, links and rules behind as RKE2 does, so that a reset has something to remove. It recognises a machine
by its node password, except beside a real API server. It saves etcd and restores it (`--cluster-reset`), and refuses what RKE2
refuses; a real etcd is saved by its own snapshot and restored by `etcdutl`. A real API server gets what RKE2 makes of config.yaml:
encryption of Secrets, the audit policy with RKE2's place for the log, `kube-apiserver-arg`. With profile `cis`, etcd does not run
as root.

/etc/rke2-stand-in.json on a host makes it fail: `crash` (a list of versions), `slow` (seconds until it starts), `learner` (seconds
until a server votes in etcd), `unready` (seconds for which its supervisor answers 503 at readyz and its own etcd reports that it is
not healthy).
"""
# ruff: noqa: E402 - plays ask hundreds of times for the version, and the other imports take four fifths of such a call

import sys

VERSION = "@VERSION@"
if sys.argv[1:2] == ["--version"]:
    print(f"rke2 version {VERSION} (stand-in)")
    sys.exit()

import base64
import contextlib
import hashlib
import http.server
import ipaddress
import json
import os
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import tarfile
import threading
import time
import urllib.request
from pathlib import Path

CONFIG = Path("/etc/rancher/rke2/config.yaml")
DATA = Path("/var/lib/rancher/rke2")
ETCD = DATA / "server/db/etcd"
SHARE = Path("/usr/local/share/rke2-stand-in")
FAULTS = Path("/etc/rke2-stand-in.json")
LOG = Path("/var/log/rke2-stand-in.log")
AUDIT_LOG = DATA / "server/logs/audit.log"
PASSWORD = Path("/etc/rancher/node/password")
REJECTED = 'level=fatal msg="Node password rejected, duplicate hostname or contents of /etc/rancher/node/password may not match"'
UNVERIFIED = ssl._create_unverified_context()
LOCK = threading.Lock()


def settings() -> str:
    """The text of config.yaml; a quick start has none."""
    return CONFIG.read_text() if CONFIG.exists() else f"node-name: {socket.gethostname()}\n"


def setting(key: str) -> str:
    """A plain value of config.yaml, or of a drop-in, which wins."""
    texts = [settings(), *(file.read_text() for file in sorted(Path(f"{CONFIG}.d").glob("*.yaml")))]
    found = [said for text in texts for said in re.findall(f"^{key}: *(.*)$", text, re.M)]
    return found[-1].strip("'\"") if found else ""


def node_ip() -> str:
    """Return this node's address: from config.yaml, else that of the default route; exit as RKE2 does if it is not usable here."""
    said = setting("node-ip")
    try:
        found = ipaddress.ip_address(said or default_address())
    except ValueError:
        sys.exit(f"level=fatal msg=\"invalid node-ip: invalid ip format '{said}'\"")
    try:
        with socket.socket(socket.AF_INET if found.version == 4 else socket.AF_INET6) as probe:
            probe.bind((str(found), 0))
    except OSError as error:
        sys.exit(f'level=fatal msg="listen tcp {found}:2380: bind: {error.strerror}"')
    return str(found)


def default_address() -> str:
    """The first address of the interface that the default route leads to."""
    route, *_ = json.loads(subprocess.check_output(["ip", "-json", "-4", "route", "show", "default"]))
    (link,) = json.loads(subprocess.check_output(["ip", "-json", "-4", "address", "show", "dev", route["dev"]]))
    return str(link["addr_info"][0]["local"])


def is_address(text: str) -> bool:
    """Return True if a text is an IP address and not a name."""
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def listed(key: str) -> list:
    """A list of plain values of config.yaml."""
    found = re.search(rf"^{key}:\n((?: *- .*\n)*)", settings(), re.M)
    return [one.strip("'\"") for one in re.findall(r"- +(\S+)", found[1])] if found else []


def names() -> str:
    """For which names this server's certificates are: its own, and those of `tls-san`, as RKE2's."""
    addresses = ["127.0.0.1", node_ip(), *listed("tls-san")]
    return "subjectAltName=" + ",".join(f"{'IP' if is_address(one) else 'DNS'}:{one}" for one in dict.fromkeys(addresses))


def password() -> str:
    """The secret part of the token."""
    return Path(setting("token-file")).read_text().strip().rpartition(":")[2]


def ask(address: str, path: str, body: object = None) -> bytes:
    """One request to another server's supervisor."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"https://{address}:9345{path}", data=data)
    request.add_header("Authorization", "Basic " + base64.b64encode(b"node:" + password().encode()).decode())
    return urllib.request.urlopen(request, timeout=5, context=UNVERIFIED).read()


class Cluster:
    """The nodes as every server keeps them; a change goes to all other servers."""

    def __init__(self) -> None:
        self.path = ETCD / "nodes.json"
        self.nodes = json.loads(self.path.read_text()) if self.path.exists() else {}

    def change(self, nodes: dict, removed: list, *, spread: bool) -> None:
        """Take nodes in and out; `spread`: tell the other servers."""
        with LOCK:
            before = dict(self.nodes)
            self.nodes.update(nodes)
            for name in removed:
                self.nodes.pop(name, None)
            self.path.write_text(json.dumps(self.nodes))
        own = setting("node-name")
        for name, node in before.items():
            if spread and name != own and "etcd" in node["metadata"]["labels"].get("stand-in/roles", ""):
                with contextlib.suppress(OSError):
                    ask(node["status"]["address"], "/stand-in/change", {"nodes": nodes, "removed": removed})


def own_node(kind: str, known: dict, *, voter: bool = True) -> dict:
    """Return this host's Node; annotations and spec that others wrote are kept."""
    labels = {"node-role.kubernetes.io/control-plane": "true", "stand-in/roles": "etcd"} if kind == "server" else {}
    conditions = [{"type": "Ready", "status": "True"}] + ([{"type": "EtcdIsVoter", "status": str(voter)}] if labels else [])
    status = {"nodeInfo": {"kubeletVersion": VERSION}, "conditions": conditions, "address": node_ip()}
    name = setting("node-name")
    old = known.get(name, {})
    metadata = {"name": name, "labels": labels, "annotations": old.get("metadata", {}).get("annotations", {})}
    return {name: {"metadata": metadata, "spec": old.get("spec", {}), "status": status, "password": node_password()}}


def node_password() -> str:
    """Return the password by which servers know this machine; empty with a real API server, which may delete Nodes unseen."""
    if programs():
        return ""
    if not PASSWORD.exists():
        PASSWORD.parent.mkdir(parents=True, exist_ok=True)
        PASSWORD.write_text(secrets.token_hex(16))
    return PASSWORD.read_text()


def is_another(nodes: dict, known: dict) -> bool:
    """Return True if one of these nodes is already known with another password."""
    return any(name in known and known[name]["password"] != node["password"] for name, node in nodes.items())


def programs() -> Path | None:
    """The images of this release where they hold programs of a real control plane."""
    images = next((DATA / "agent/images").glob("rke2-images-*"), None)
    return images if images and tarfile.is_tarfile(images) else None


class Say(http.server.BaseHTTPRequestHandler):
    """Answers on all ports; what needs the token is refused without it."""

    cluster: Cluster
    secret = ""
    shared = ""
    ready_at = 0.0
    """When a server calls itself ready, by the monotonic clock."""

    def do_GET(self) -> None:  # http.server's name
        """Read."""
        answers = {
            "/ping": "pong",
            "/cacerts": (SHARE / "ca.pem").read_text(),
            "/readyz": "ok",
            "/healthz": "ok",
            "/v1-rke2/readyz": "ok",
            "/health": '{"health":"true","reason":""}',
            "/metrics": metrics(self.cluster.nodes) if self.secret else "",
            "/stand-in/nodes": json.dumps(self.cluster.nodes) if self.secret else "",
            "/stand-in/shared": self.shared,
        }
        early = time.monotonic() < self.ready_at
        if early:
            answers["/health"] = '{"health":"false","reason":"RAFT NO LEADER"}'
        guarded = self.path.startswith(("/v1-rke2/", "/stand-in/"))
        code = 404 if self.path not in answers else 401 if guarded and not self._may() else 200
        code = 503 if early and code == 200 and self.path == "/v1-rke2/readyz" else code
        self._answer(code, answers.get(self.path, "") if code == 200 else "")

    def do_POST(self) -> None:  # http.server's name
        """Change nodes: from kubectl on this host, which is spread, or from another server or a joining agent."""
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._may():
            return self._answer(401, "")
        if self.path == "/stand-in/register" and is_another(change["nodes"], self.cluster.nodes):
            return self._answer(200, "rejected")
        self.cluster.change(change["nodes"], change["removed"], spread=self.path != "/stand-in/change")
        return self._answer(200, "")

    def _may(self) -> bool:
        given = base64.b64decode(self.headers.get("Authorization", "").partition(" ")[2]).decode().partition(":")[2]
        return self.client_address[0] == "127.0.0.1" or given == self.secret

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def metrics(nodes: dict) -> str:
    """Return metrics as etcd serves them."""
    peers = [name for name, node in nodes.items() if node["metadata"]["labels"] and name != setting("node-name")]
    fsync = "etcd_disk_wal_fsync_duration_seconds"
    lines = [f'{fsync}_bucket{{le="0.001"}} 990', f'{fsync}_bucket{{le="+Inf"}} 1000', f"{fsync}_count 1000"]
    lines += ["etcd_server_leader_changes_seen_total 1", "etcd_server_has_leader 1", "etcd_server_is_learner 0"]
    lines += [f'etcd_network_active_peers{{Local="{setting("node-name")}",Remote="{peer}"}} 1' for peer in peers]
    lines += [f'etcd_network_known_peers{{Local="x",Remote="{peer}"}} 1' for peer in [setting("node-name"), *peers]]
    return "\n".join([*lines, f"process_start_time_seconds {time.time() - 3600}", ""])


def serve(address: str, port: int, context: ssl.SSLContext | None = None) -> None:
    """Open a port."""
    server = http.server.ThreadingHTTPServer((address, port), Say)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def certificate() -> ssl.SSLContext:
    """A certificate for this server, signed by the cluster's CA."""
    folder = DATA / "server/tls"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "names").write_text(names())
    new = "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=stand-in -keyout own.key -out own.csr"
    sign = f"openssl x509 -req -in own.csr -CA {SHARE}/ca.pem -CAkey {SHARE}/ca.key -CAcreateserial -CAserial ca.srl -days 9"
    for command in (new, f"{sign} -extfile names -out own.pem"):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem", folder / "own.key")
    return context


def server() -> None:
    """Found a cluster, or join the one that the configuration names, and open the ports."""
    joins = setting("server") and not any(path.name != "lost+found" for path in ETCD.glob("*"))
    joined = setting("server")[8:].rpartition(":")[0] if joins else ""
    nodes = json.loads(ask(joined, "/stand-in/nodes")) if joins else {}
    if is_another(own_node("server", nodes), nodes):
        sys.exit(REJECTED)
    (ETCD / "member").mkdir(parents=True, exist_ok=True)
    Say.cluster, Say.secret = Cluster(), password()
    for node in list(Say.cluster.nodes.values()):
        if node["metadata"]["name"] != setting("node-name") and node["metadata"]["labels"]:
            with contextlib.suppress(OSError):
                nodes |= json.loads(ask(node["status"]["address"], "/stand-in/nodes"))
    Say.cluster.change(nodes, [], spread=False)
    learns = faults().get("learner", 0)
    Say.cluster.change(own_node("server", Say.cluster.nodes, voter=not learns), [], spread=True)
    threading.Timer(learns, lambda: Say.cluster.change(own_node("server", Say.cluster.nodes), [], spread=True)).start()
    secure = f"K10{hashlib.sha256((SHARE / 'ca.pem').read_bytes()).hexdigest()}::server:{Say.secret}\n"
    (DATA / "server/token").write_text(secure)
    (DATA / "bin").mkdir(exist_ok=True)
    if images := programs():
        real_control_plane(images, joined)
    else:
        Path("/etc/rancher/rke2/rke2.yaml").write_text("clusters: [{name: default, cluster: {server: 'https://127.0.0.1:6443'}}]\n")
        shutil.copy(SHARE / "kubectl.py", DATA / "bin/kubectl")
        serve("127.0.0.1", 6443)
        serve("127.0.0.1", 2381)
    Say.ready_at = time.monotonic() + faults().get("unready", 0)
    serve("", 9345, certificate())
    kubelet()


def control_plane(images: Path) -> "ControlPlane":  # noqa: F821 - its module lies beside the release
    """etcd and the API server whose programs the images hold."""
    sys.path.insert(0, str(SHARE))
    from control_plane import ControlPlane

    place = DATA / "data" / VERSION / "bin"
    if not (place / "kubectl").exists():
        fresh = place.with_name("bin.new")
        with tarfile.open(images) as archive:
            archive.extractall(fresh)  # of our own making
        place.mkdir(parents=True, exist_ok=True)
        for program in fresh.iterdir():
            program.rename(place / program.name)
    folders = {"data": DATA / "server/real", "etcd": ETCD / "real", "programs": place}
    user = "etcd" if setting("profile") == "cis" else ""
    return ControlPlane(setting("node-name"), node_ip(), names(), folders, flags(), user)


def flags() -> dict:
    """Return the API server's flags that RKE2 derives from config.yaml."""
    policy, found = setting("audit-policy-file"), {}
    if policy:
        AUDIT_LOG.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = {"audit-policy-file": policy, "audit-log-path": str(AUDIT_LOG)}
    return found | dict(one.split("=", 1) for one in listed("kube-apiserver-arg"))


def secrets_encrypt(word: str) -> None:
    """Say whether Secrets are encrypted, or turn that off as of the next start. Without a real API server nothing is written."""
    plane = control_plane(images) if (images := programs()) else None
    if plane and word == "disable":
        plane.encrypt(False)
    print("Encryption Status:", "Enabled" if not plane or plane.encrypts() else "Disabled")
    print("Current Rotation Stage: start")


def real_control_plane(images: Path, joined: str) -> None:
    """Start them; `joined` answers for the cluster that a new server comes to: one of its servers, or a load balancer."""
    plane = control_plane(images)
    told = json.loads(ask(joined, "/stand-in/shared")) if joined else {"address": node_ip(), "files": None}
    plane.start(told["address"], told["files"])
    Say.shared = json.dumps({"address": node_ip(), "files": plane.shared()})
    Path("/etc/rancher/rke2/rke2.yaml").write_text(plane.kubeconfig())
    (DATA / "bin/kubectl").unlink(missing_ok=True)
    (DATA / "bin/kubectl").symlink_to(plane.programs / "kubectl")


def agent() -> None:
    """Register with the server, and be a kubelet."""
    where = setting("server")[8:].rpartition(":")[0]
    known = json.loads(ask(where, "/stand-in/nodes"))
    if ask(where, "/stand-in/register", {"nodes": own_node("agent", known), "removed": []}):
        sys.exit(REJECTED)
    (DATA / "agent").mkdir(parents=True, exist_ok=True)
    (DATA / "agent/kubelet.kubeconfig").write_text("kubeconfig\n")
    kubelet()


def kubelet() -> None:
    """Serve the kubelet's two ports: health, and the one that the API server uses."""
    serve("127.0.0.1", 10248)
    serve("", 10250)


def save_etcd(snapshot: Path) -> None:
    """Write what this server's etcd holds."""
    saved = {"nodes": json.loads((ETCD / "nodes.json").read_text()), "etcd": ""}
    if images := programs():
        saved["etcd"] = base64.b64encode(control_plane(images).save()).decode()
    snapshot.parent.mkdir(parents=True, exist_ok=True)
    snapshot.write_text(json.dumps(saved))


def reset_etcd(snapshot: str) -> None:
    """Have this server's etcd hold what the snapshot does, with no other member; RKE2 refuses what is refused here."""
    flag = ETCD.parent / "reset-flag"
    if setting("server"):
        sys.exit('level=fatal msg="cannot perform cluster-reset while server URL is set - remove server from configuration"')
    if subprocess.run(["systemctl", "--quiet", "is-active", "rke2-server"], check=False).returncode == 0:
        sys.exit('level=fatal msg="bind: address already in use"')
    saved = json.loads(Path(snapshot).read_text())
    if ETCD.exists():
        ETCD.rename(f"{ETCD}-old-{int(time.time())}")  # as RKE2 does: it ends at a mount, and takes a link away
    (ETCD / "member").mkdir(parents=True)
    flag.touch()  # before etcd is there, and of no use where a snapshot is named
    (ETCD / "nodes.json").write_text(json.dumps(saved["nodes"]))
    if images := programs():
        control_plane(images).restore(base64.b64decode(saved["etcd"]))
    with LOG.open("a") as log:
        log.write(f"reset {VERSION} {snapshot}\n")


def leave_traces() -> None:
    """Leave on the host what containers leave: processes that outlive the service, mounts, network namespaces, links, rules."""
    shim = DATA / "data" / VERSION / "bin/containerd-shim-runc-v2"
    shim.parent.mkdir(parents=True, exist_ok=True)
    if not shim.exists():
        shutil.copy("/usr/bin/sleep", shim)
    subprocess.Popen([shim, "100000"], start_new_session=True, stdin=subprocess.DEVNULL)
    volumes = ("/run/k3s/containerd/sandbox", "/var/lib/kubelet/pods/a/volumes/token")
    for place in (*volumes, "/run/nvidia/driver", "/run/nvidia/driver/dev"):
        if not os.path.ismount(place):
            os.makedirs(place, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    os.makedirs("/etc/cni/net.d", exist_ok=True)
    tries = [
        "ip netns add cni-stand-in",
        "ip link add cni0 type bridge",
        "ip link add flannel.1 type vxlan id 1 dstport 8472",
        "iptables -t nat -N KUBE-SERVICES",
        "iptables -t nat -A PREROUTING -m comment --comment standin -j KUBE-SERVICES",
        "iptables -A FORWARD -s 192.0.2.0/24 -j ACCEPT",
    ]
    for command in tries:
        if shutil.which(command.split()[0]):
            subprocess.run(command.split(), check=False, capture_output=True)


def faults() -> dict:
    """Return the faults that a test has set for this host."""
    return dict(json.loads(FAULTS.read_text())) if FAULTS.exists() else {}


def main() -> None:
    """Run one command of the program, as its arguments say."""
    word = sys.argv[1]
    if word == "secrets-encrypt":
        secrets_encrypt(sys.argv[2])
    elif word == "etcd-snapshot":
        save_etcd(DATA / f"server/db/snapshots/{sys.argv[sys.argv.index('--name') + 1]}-{setting('node-name')}-1")
    elif word == "server" and sys.argv[2:3] == ["--cluster-reset"]:
        reset_etcd(sys.argv[3].partition("=")[2])
    else:
        (ETCD.parent / "reset-flag").unlink(missing_ok=True)
        with LOG.open("a") as log:
            log.write(f"start {word} {VERSION}\n")
        if VERSION in faults().get("crash", ()):
            sys.exit('level=fatal msg="the stand-in was told to crash"')
        node_ip()  # which may end it, before anything else
        time.sleep(faults().get("slow", 0))
        {"server": server, "agent": agent}[word]()
        leave_traces()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
        threading.Event().wait()


main()
