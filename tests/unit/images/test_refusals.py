"""Image builds that are refused: with one sentence and a hint, and without leaving an archive behind."""

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest


class _Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def empty_mirror() -> Iterator[str]:
    """A mirror that has nothing any more."""
    server = HTTPServer(("127.0.0.1", 0), _Empty)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def said(bench: Any, out: Path, code: int = 64, **environment: str) -> str:
    done = bench.command(out, http_proxy="", no_proxy="*", **environment)
    assert done.returncode == code, done.stdout + done.stderr
    assert not out.exists()
    assert "Traceback" not in done.stderr
    return str(done.stderr)


def forget(bench: Any, package: Path) -> None:
    (bench.cache / "images/packages" / hashlib.sha256(package.read_bytes()).hexdigest()).unlink()


@pytest.mark.skipif(not Path("/usr/lib/apt/apt-helper").exists(), reason="apt is not on this machine")
def test_a_version_that_the_mirror_no_longer_has(bench: Any, packages: dict[str, Path], empty_mirror: str, tmp_path: Path) -> None:
    bench.edit(debian={"archive": empty_mirror})
    forget(bench, packages["base"])
    text = said(bench, tmp_path / "out.tar")
    assert f"packages.lock: {empty_mirror} no longer has base=1:1.0-1, and the cache does not have it" in text
    assert "hint: run `bringup image step lock`" in text


@pytest.mark.skipif(not Path("/usr/lib/apt/apt-helper").exists(), reason="apt is not on this machine")
def test_a_mirror_that_does_not_answer_is_temporary(bench: Any, packages: dict[str, Path], tmp_path: Path) -> None:
    forget(bench, packages["base"])
    (tmp_path / "apt.conf").write_text('Acquire::Retries "0";')
    assert "base=1:1.0-1 could not be fetched from http://127.0.0.1:1" in said(
        bench, tmp_path / "out.tar", 75, APT_CONFIG=str(tmp_path / "apt.conf")
    )


def test_a_lock_that_is_older_than_uv_lock(bench: Any, tmp_path: Path) -> None:
    (bench.tree / "uv.lock").write_text("other versions")
    assert "images/step/wheels.lock has demo==1.0, uv.lock has other versions" in said(bench, tmp_path / "out.tar")


@pytest.mark.parametrize("line", ["base", "base=1.0 abc pool/base.deb", "--index-url=http://x", "base=1 $(id) x.deb"])
def test_a_line_that_is_no_pin(bench: Any, line: str, tmp_path: Path) -> None:
    lock = bench.tree / "images/step/packages.lock"
    lock.write_text(lock.read_text() + line + "\n")
    assert "images/step/packages.lock line 4" in said(bench, tmp_path / "out.tar")


def test_a_recipe_with_an_unknown_field(bench: Any, tmp_path: Path) -> None:
    bench.edit(privileged=True)
    assert "images/step/recipe.yaml: Object contains unknown field `privileged`" in said(bench, tmp_path / "out.tar")


def test_a_folder_that_is_no_checkout(bench: Any, tmp_path: Path) -> None:
    (bench.tree / "images/step/recipe.yaml").unlink()
    assert "name it with --tree" in said(bench, tmp_path / "out.tar")


def test_a_wheel_that_leads_out_of_the_image(bench: Any, packages: dict[str, Path], tmp_path: Path) -> None:
    evil = tmp_path / "evil.whl"
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("../../etc/passwd", "root::0:0::/:/bin/sh\n")
    digest = hashlib.sha256(evil.read_bytes()).hexdigest()
    evil.rename(bench.cache / "images/packages" / digest)
    (bench.tree / "images/step/wheels.lock").write_text(f"demo==1.0 --hash=sha256:{digest}\n")
    (bench.tree / "uv.lock").write_text(digest)
    assert "leads out of the image" in said(bench, tmp_path / "out.tar")


def test_a_package_that_the_disk_changed(bench: Any, packages: dict[str, Path], tmp_path: Path) -> None:
    (bench.cache / "images/packages" / hashlib.sha256(packages["base"].read_bytes()).hexdigest()).write_text("cut off")
    assert "no longer has the digest that names it" in said(bench, tmp_path / "out.tar")
