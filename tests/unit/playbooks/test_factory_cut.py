"""The module that cuts a host off from a factory: its rules, by a stand-in for `ip`, and what it tries; about 1 CPU second."""

import http.server
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
