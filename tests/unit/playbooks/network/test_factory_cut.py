"""The module that cuts a host off from a factory: its rules, by a stand-in for `ip`, and what it tries; about 1 CPU second."""

import datetime
import http.server
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.unit.playbooks.library import loaded

IP = f"""#!{sys.executable} -I
import sys
from pathlib import Path
rules = Path(__file__).with_name("rules")
lines = rules.read_text().splitlines() if rules.exists() else []
verb, words = sys.argv[3], sys.argv[4:]
if verb == "show":
    print(chr(10).join(lines))
elif verb == "add" and words[3] == "10.9.9.9":
    sys.exit("RTNETLINK answers: Operation not permitted")
elif verb == "add":
    rules.write_text(chr(10).join([*lines, " ".join(words)]))
else:
    rules.write_text(chr(10).join(line for line in lines if line.split()[3] != words[3]))
"""


@pytest.fixture
def ip(tmp_path: Path) -> Path:
    """A stand-in for `ip rule`, which keeps its rules in a file."""
    path = tmp_path / "ip"
    path.write_text(IP)
    path.chmod(0o755)
    return path


def rules(ip: Path) -> list[str]:
    path = ip.with_name("rules")
    return [line for line in path.read_text().splitlines() if line] if path.exists() else []


def test_rules_last_as_long_as_the_trial(ip: Path) -> None:
    with loaded("factory_cut").Cut(str(ip), ["10.1.0.1", "10.1.0.2"], 60) as cut:
        assert rules(ip) == ["pref 9877 to 10.1.0.1 unreachable", "pref 9877 to 10.1.0.2 unreachable"]
        watchdog = cut.watchdog.pid
    assert rules(ip) == []
    assert cut.remaining() == []
    with pytest.raises(ProcessLookupError):
        os.kill(watchdog, 0)


def test_rules_that_were_added_go_if_another_is_refused(ip: Path) -> None:
    with pytest.raises(OSError, match="Operation not permitted"), loaded("factory_cut").Cut(str(ip), ["10.1.0.1", "10.9.9.9"], 60):
        pass
    assert rules(ip) == []


def test_a_killed_module_is_cleaned_up_after(ip: Path) -> None:
    cut = loaded("factory_cut").Cut(str(ip), ["10.1.0.1"], 2)
    cut.__enter__()
    cut.watchdog.wait(30)
    assert rules(ip) == []


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[str]:
    """The address of a boot server with the folder `boot` of the test."""
    (tmp_path / "boot").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words, directory=str(tmp_path / "boot"))

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_boot_script_leads_to_all_its_files(boot: str, tmp_path: Path) -> None:
    folder = tmp_path / "boot"
    (folder / "start.ipxe").write_text(
        f"#!ipxe\n# http://192.0.2.1/old\nchain {boot}/${{net0/mac}}.ipxe ||\nchain {boot}/gpu.ipxe\n"
    )
    (folder / "gpu.ipxe").write_text(f"kernel {boot}/vmlinuz fetch={boot}/root.squashfs\ninitrd {boot}/initrd.img || goto failed\n")
    for name in ("vmlinuz", "root.squashfs"):
        (folder / name).write_text("x")
    resolve = loaded("factory_cut").resolve
    why, answered = resolve(f"{boot}/start.ipxe")
    assert (answered, why.startswith(f"{boot}/initrd.img: HTTP Error 404")) == (4, True), why
    (folder / "initrd.img").write_text("x")
    assert resolve(f"{boot}/start.ipxe") == ("", 5)


def test_the_content_of_a_folder_changes_with_names_bytes_modes_and_links(tmp_path: Path) -> None:
    content, tree = loaded("factory_cut").FolderReader().content, tmp_path / "tree"
    assert content(str(tree)) == ""
    (tree / "versions/1").mkdir(parents=True)
    (tree / "current").symlink_to("versions/1")
    module = tree / "versions/1/gcc.lua"
    digests = [content(str(tree))]
    for text in ("a", "b", "bb"):  # equal lengths must not be equal files
        module.write_text(text)
        os.utime(module, (1, 1))
        digests.append(content(str(tree)))
    module.chmod(0o755)
    digests.append(content(str(tree)))
    (tree / "current").unlink()
    (tree / "current").symlink_to("versions/2")
    digests.append(content(str(tree)))
    os.mkfifo(tree / "pipe")
    digests.append(content(str(tree)))
    assert len(set(digests)) == 7
    assert digests[-1] == content(str(tree))


def test_files_beyond_the_limits_count_by_size_and_time(tmp_path: Path) -> None:
    library = loaded("factory_cut")
    large = tmp_path / "large"

    def content(text: str, time: int) -> tuple[str, int]:
        large.write_text(text)
        os.utime(large, (time, time))
        reader = library.FolderReader(most=10, largest=4)
        return reader.content(str(tmp_path)), reader.unread

    assert content("12345", 1) == content("abcde", 1)
    assert content("12345", 1)[1] == 1
    assert len({content("12345", 1), content("12345", 2), content("123456", 1)}) == 3
    assert content("1234", 1) != content("abcd", 1), "a file within the limits is read"
    for name in ("a", "b"):
        (tmp_path / name).write_text("1234")
    assert content("1234", 1)[1] == 1, "two files of four bytes fit into ten"


MACHINE = """import signal, socket, sys
kind, port = sys.argv[1], int(sys.argv[2])
print("SeaBIOS", flush=True)
if kind == "silent":
    signal.pause()
if kind == "broken":
    sys.exit("no bootable device")
with socket.create_server(("127.0.0.1", port)) as server:
    print("n007 login: ", end="", flush=True)
    while True:
        with server.accept()[0] as connection:
            connection.sendall(b"SSH-2.0-stand-in\\r\\n")
"""
"""Stand-in for a machine behind the site's command: a console, and an SSH server."""


def plain_shell(command: str, _: str) -> subprocess.Popen[bytes]:
    """Start a line in a shell that reads no settings of this machine's users; it stands for a login shell."""
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def started(told: dict[str, Any]) -> str:
    """Start a machine, and return why it did not boot."""
    failure: str = loaded("factory_cut").MachineStart(told, plain_shell).run()["failure"]
    return failure


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, int]:
    """The program of a stand-in for a machine, and a free port for its SSH server."""
    program = tmp_path / "machine.py"
    program.write_text(MACHINE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        return program, server.getsockname()[1]


def order(machine: tuple[Path, int], kind: str, seconds: int, **told: str) -> dict[str, Any]:
    """Return how the stand-in is started."""
    program, port = machine
    power = f"{sys.executable} -I {program} {kind} {port}"
    return {"power": power, "user": "root", "seconds": seconds, **told}


def ended(port: int) -> bool:
    """Wait until nobody listens at a port any more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionError:
            return True
    return False


@pytest.mark.parametrize("signs", [("console",), ("answers",), ("console", "answers")])
def test_a_machine_has_booted_once_its_console_and_its_address_tell(machine: tuple[Path, int], signs: tuple[str, ...]) -> None:
    told = {"console": "n007 login:", "answers": f"ssh://127.0.0.1:{machine[1]}"}
    assert started(order(machine, "up", 30, **{sign: told[sign] for sign in signs})) == ""
    assert ended(machine[1]), "the command ends with the trial, and the machine with it"


@pytest.mark.parametrize(
    ("kind", "seconds", "told", "failure"),
    [
        ("silent", 2, {"console": "login:"}, "after 2 s its output has no 'login:': "),
        ("broken", 30, {"console": "login:"}, "its command ended with 1: no bootable device"),
        ("silent", 1, {"answers": "ssh://127.0.0.1:%d"}, "after 1 s ssh://127.0.0.1:%d does not answer"),
    ],
)
def test_a_machine_that_does_not_boot_is_told(
    machine: tuple[Path, int], kind: str, seconds: int, told: dict[str, str], failure: str
) -> None:
    told = {sign: text.replace("%d", str(machine[1])) for sign, text in told.items()}
    assert started(order(machine, kind, seconds, **told)).startswith(failure.replace("%d", str(machine[1])))


def test_a_port_that_is_merely_open_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # as an emulator's, before the machine behind it runs
        assert not loaded("factory_cut").is_answering(f"ssh://127.0.0.1:{server.getsockname()[1]}")


ANSWERS = {
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n": True,
    b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n": True,
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n": True,
    b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n": True,
    b"220 mail.example.org ESMTP\r\n": False,
    b"": False,
}
"""First bytes of a server, and True if they are those of a web server."""


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer[:12].decode() or "nothing")
def test_a_web_server_answers_with_any_status(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # a proxy of the host that must not be asked
    monkeypatch.setenv("no_proxy", "")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        library, url = loaded("factory_cut"), f"http://127.0.0.1:{server.getsockname()[1]}/start.ipxe"
        assert library.is_answering(url) is ANSWERS[answer]
        thread.join()


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[str]:
    """The address of a web server with a certificate that nobody else signed."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "n007")])
    today = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(today - datetime.timedelta(days=1)).not_valid_after(today + datetime.timedelta(days=1))
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = tmp_path / "pem"
    pem.write_bytes(text + made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def test_a_machine_may_have_a_certificate_of_its_own(certified: str) -> None:
    assert loaded("factory_cut").is_answering(certified)


def test_a_boot_server_that_speaks_no_http_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"220 mail.example.org ESMTP\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/start.ipxe"
        why, answered = loaded("factory_cut").resolve(url)
        thread.join()
    assert (answered, why.startswith(f"{url}: ")) == (0, True), why


def test_a_machine_that_never_went_down_proves_nothing(boot: str) -> None:
    told = {"power": "true", "user": "root", "seconds": 2, "answers": f"{boot}/"}
    assert started(told) == f"after 2 s {boot}/ has answered all the time, as before"


def test_a_command_that_ends_without_its_text_is_not_waited_for() -> None:
    told = {"power": "echo powered on", "user": "root", "seconds": 60, "console": "login:"}
    assert started(told) == "its command ended, and its output has no 'login:': powered on"


def test_a_machine_boots_under_the_cut(ip: Path, machine: tuple[Path, int]) -> None:
    kept, told = ip.with_name("seen"), order(machine, "up", 30, console="n007 login:")
    told["power"] = f"cp {ip.with_name('rules')} {kept}; exec {told['power']}"
    library, values = loaded("factory_cut"), trial(machine=told)
    observation = library.conclude(values, str(ip), library.attempt(values, str(ip), plain_shell))
    assert observation["machine"]["failure"] == ""
    assert "10.1.0.1 unreachable" in kept.read_text()
    assert (rules(ip), observation["remaining"]) == ([], [])


def trial(**changes: Any) -> dict[str, Any]:
    """Return the parameters of a trial without commands, boot scripts and a machine."""
    empty: dict[str, Any] = {"ports": [], "commands": [], "boot": [], "folders": [], "machine": {}}
    return {"addresses": ["10.1.0.1"], "user": "root", "seconds": 5, "cut_seconds": 60, **empty, **changes}


def test_a_host_stays_cut_off_until_it_is_joined(ip: Path) -> None:
    library = loaded("factory_cut")
    held = library.attempt(trial(), str(ip))
    assert rules(ip) == ["pref 9877 to 10.1.0.1 unreachable"]
    assert library.is_watchdog(held["watchdog"], ["10.1.0.1"]), "a host that nobody joins is not cut off for ever"
    joined = library.conclude(trial(), str(ip), held)
    assert (rules(ip), joined["reached"], joined["remaining"]) == ([], [], [])
    os.waitpid(held["watchdog"], 0)
    assert not library.is_watchdog(os.getpid(), ["10.1.0.1"]), "only a process that ends a cut is ended"


def test_a_cut_that_ended_before_the_slowest_trial_proves_nothing(ip: Path) -> None:
    library = loaded("factory_cut")
    with socket.create_server(("127.0.0.1", 0)) as factory:
        port = factory.getsockname()[1]
        held = library.attempt(trial(addresses=["127.0.0.1"]), str(ip))
        joined = library.conclude(trial(addresses=["127.0.0.1"], ports=[port]), str(ip), held)
    assert joined["reached"] == [f"127.0.0.1:{port}"]
    os.waitpid(held["watchdog"], 0)


def test_a_host_without_a_trial_is_joined_and_has_no_observation(ip: Path) -> None:
    addresses = ["10.1.0.7", "10.1.0.8"]
    left = loaded("factory_cut").attempt(trial(addresses=addresses), str(ip))["watchdog"]  # as of a trial that took too long
    assert loaded("factory_cut").conclude(trial(addresses=addresses), str(ip), {}) is None
    assert rules(ip) == []
    os.waitpid(left, 0)
    assert loaded("factory_cut").conclude(trial(addresses=[]), str(ip), {})["took"] == 0.0, "a look cuts nothing off"
