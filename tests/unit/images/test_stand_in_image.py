"""Same inputs, same bytes; what is in the layers and what is not; and each layer anew only when its own inputs change."""

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any


def test_the_same_inputs_give_the_same_bytes_in_any_folder_at_any_time_for_any_umask(
    bench: Any, second_bench: Any, tmp_path: Path
) -> None:
    for path in second_bench.tree.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)
    first = bench.build(tmp_path / "first.tar")
    second = second_bench.build(tmp_path / "second.tar", umask=0o077, TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="7")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert (tmp_path / "first.tar.cdx.json").read_bytes() == (tmp_path / "second.tar.cdx.json").read_bytes()


def test_every_blob_has_its_digest_and_every_layer_its_diff_id(bench: Any, tmp_path: Path) -> None:
    image = bench.build(tmp_path / "image.tar")
    names = {"io.containerd.image.name": "docker.io/library/stand-in:0.1.0", "org.opencontainers.image.ref.name": "0.1.0"}
    assert image.index["annotations"] == names
    assert json.loads(image.member("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    for descriptor in (image.index, image.manifest["config"], *image.manifest["layers"]):
        blob = image.blob(descriptor["digest"])
        assert (len(blob), f"sha256:{hashlib.sha256(blob).hexdigest()}") == (descriptor["size"], descriptor["digest"])
    unpacked = [gzip.decompress(image.blob(layer["digest"])) for layer in image.manifest["layers"]]
    assert image.config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in unpacked]
    assert len(image.config["history"]) == len(unpacked)
    docker = json.loads(image.member("manifest.json"))[0]
    assert [image.member(path) for path in docker["Layers"]] == [image.blob(layer["digest"]) for layer in image.manifest["layers"]]


def test_the_configuration_says_how_a_container_starts(bench: Any, tmp_path: Path) -> None:
    config = bench.build(tmp_path / "image.tar").config
    assert (config["architecture"], config["os"], config["created"]) == ("amd64", "linux", "2001-09-09T01:46:40Z")
    started = config["config"]
    assert (started["User"], started["Entrypoint"]) == ("8737:8737", ["python3", "-m", "steps"])
    assert started["Env"] == ["LANG=C.UTF-8"]
    assert started["Labels"]["org.opencontainers.image.version"] == "0.1.0"
    assert started["Labels"]["io.bringup.recipe"].startswith("sha256:")


def test_packages_are_unpacked_into_merged_usr_and_no_script_runs(bench: Any, tmp_path: Path, packages: dict[str, Path]) -> None:
    files = bench.build(tmp_path / "image.tar").files()
    assert files["bin"][0].linkname == "usr/bin"
    assert files["usr/bin/tool"][1] == files["usr/bin/tool2"][1] == b"\x7fELF tool"
    assert files["usr/bin/alias"][0].linkname == "tool"
    assert files["usr/bin/tool"][0].mode == 0o755, "set-user-id is not kept"
    assert "usr/share/doc/base/copyright" in files
    assert not [path for path in files if "changelog" in path or path.endswith("tool.1")]
    assert files["etc/ssl/certs/ca-certificates.crt"][1] == b"a\nb\n"
    assert files["etc/passwd"][1].startswith(b"root:")
    assert files["var/lib/dpkg/status"][1].startswith(b"Package: base\nStatus: install ok installed\n")
    assert not packages["ran"].exists()


def test_owners_modes_and_times_are_fixed(bench: Any, tmp_path: Path) -> None:
    files = bench.build(tmp_path / "image.tar").files()
    assert {member.mtime for member, _ in files.values()} == {1000000000}
    assert {(path, member.uid) for path, (member, _) in files.items() if member.uid or member.gid} == {("bringup/out", 8737)}
    assert {member.uname for member, _ in files.values()} == {""}
    assert files["tmp"][0].mode == 0o1777
    for layer in bench.build(tmp_path / "again.tar").layers():
        assert layer.getnames() == sorted(layer.getnames())


def test_wheels_are_unpacked_with_their_programs(bench: Any, tmp_path: Path) -> None:
    files = bench.build(tmp_path / "image.tar").files()
    program = files["opt/app/lib/bin/Demo-run"]
    assert program[0].mode == 0o755
    assert b"#!/usr/bin/python3\n" in program[1]
    assert b"from demo.cli import app\n" in program[1]
    assert b"sys.exit(app.main())" in program[1]
    assert files["opt/app/lib/bin/demo-script"][1] == b"#!/usr/bin/python3\nprint(1)\n"
    assert files["opt/app/lib/share/demo.txt"][1] == b"data\n"
    assert not [path for path in files if path.endswith((".h", "bin/x"))]


def test_our_code_goes_in_without_leftovers_and_with_a_bill_of_materials(
    bench: Any, tmp_path: Path, packages: dict[str, Path]
) -> None:
    files = bench.build(tmp_path / "image.tar").files()
    ours = {path: member.mode for path, (member, _) in files.items() if path.startswith("opt/app/steps/")}
    assert ours == {"opt/app/steps/__init__.py": 0o644, "opt/app/steps/tool.sh": 0o755}
    assert files["usr/share/bringup/sbom.cdx.json"][1] == (tmp_path / "image.tar.cdx.json").read_bytes()
    bill = json.loads(files["usr/share/bringup/sbom.cdx.json"][1])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    hashed = {part["purl"]: part["hashes"][0]["content"] for part in bill["components"]}
    assert (
        hashed["pkg:deb/debian/base@1%3A1.0-1?arch=amd64&distro=bookworm"]
        == hashlib.sha256(packages["base"].read_bytes()).hexdigest()
    )
    assert set(hashed) >= {"pkg:pypi/demo@1.0"}


def test_a_change_of_our_code_makes_only_the_last_layer_anew(bench: Any, tmp_path: Path) -> None:
    first = bench.command(tmp_path / "first.tar")
    assert first.stderr.split("\n")[:3] == ["layer debian", "layer wheels", "layer application"]
    assert bench.command(tmp_path / "same.tar").stderr == ""
    (bench.tree / "steps/__init__.py").write_text("x = 2\n")
    assert bench.command(tmp_path / "second.tar").stderr == "layer application\n"
    bench.edit(folders=[{"path": "tmp"}])
    assert bench.command(tmp_path / "third.tar").stderr.startswith("layer debian\n")
