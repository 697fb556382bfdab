"""The commands of `bringup factory`, as a user calls them: init, validate, rehearse, status, timer, detach-check, and refusals."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

PHASES = ("preparation of the nodes", "Kubernetes", "services")


@pytest.fixture
def spec(machine: Any) -> Path:
    """The starter spec, as `bringup init --factory` writes it."""
    done = machine.call("init", "--factory")
    assert done.code == 0, done.text
    folder: Path = machine.folder
    return folder / "factory.yaml"


def test_a_factory_is_rehearsed_and_shown(machine: Any, spec: Path) -> None:
    checked = machine.call("validate", spec)
    assert (checked.code, "0 errors" in checked.out) == (0, True), checked.text
    assert "bringup factory up" in machine.call("factory", "status", spec).err
    done = machine.call("rehearse", spec)
    assert done.code == 0, done.text
    assert "all 6 stages passed" in done.out
    assert all(f"phase {phase}: " in done.out for phase in PHASES)
    shown = machine.call("factory", "status", spec)
    assert shown.code == 0, shown.text
    assert "factory_argo" in shown.out
    assert "kubeconfig" in shown.out


def test_a_rehearsal_ends_at_a_fault_and_takes_no_options_of_clusters(machine: Any, spec: Path) -> None:
    done = machine.call("rehearse", spec, "--until", "factory_registry", "--fault", "registry_down")
    assert done.code == 65, done.text
    assert "CrashLoopBackOff" in done.out
    for options in (("--only", "rke2"), ("--operation", "upgrade")):
        refused = machine.call("rehearse", spec, *options)
        assert (refused.code, options[0] in refused.err) == (64, True), refused.text
    unknown = machine.call("rehearse", spec, "--until", "factory_registri")
    assert (unknown.code, "did you mean factory_registry" in unknown.err) == (64, True), unknown.text


@pytest.mark.parametrize("command", ["down", "rebuild"])
def test_nothing_is_removed_without_a_person_or_yes(machine: Any, spec: Path, command: str) -> None:
    done = machine.call("factory", command, spec)
    assert (done.code, "add --yes" in done.err) == (64, True), done.text


def test_a_rebuild_is_refused_with_every_reason(machine: Any, spec: Path) -> None:
    folder: Path = machine.folder
    (folder / "old").write_text("x")
    two_days_ago = time.time() - 2 * 86400
    os.utime(folder / "old", (two_days_ago, two_days_ago))
    assert machine.call("init", "platform.yaml").code == 0
    text = (folder / "platform.yaml").read_text()
    assert "ranges: " in text
    (folder / "platform.yaml").write_text(text.replace("ranges: ", "ranges: factory03  # ", 1))
    copies = f"[{{what: stacks, path: {folder}/old}}, {{what: images, path: {folder}/none}}]"
    spec.write_text(
        spec.read_text().replace("start: 10.20.0.11", "start: 127.0.0.1")
        + f"rebuild: {{copies: {copies}, platforms: [platform.yaml]}}\n"
    )
    done = machine.call("factory", "rebuild", spec, "--yes", "--force", "because")
    assert done.code == 65, done.text
    for reason in (
        "48.0 h old",
        "there is no copy of images",
        "factory03 is part of platform",
        "the machine that this command runs",
    ):
        assert reason in done.err
    assert not machine.runs


def test_a_rebuild_until_an_unknown_stage_ends_before_anything_is_asked_or_removed(machine: Any, spec: Path) -> None:
    done = machine.call("factory", "rebuild", spec, "--yes", "--until", "factory_registri")
    assert (done.code, "did you mean factory_registry" in done.err) == (64, True), done.text
    assert not machine.runs


def test_the_spec_of_a_cluster_is_refused_in_one_sentence(machine: Any) -> None:
    assert machine.call("init", "cluster.yaml").code == 0
    for command in (("up",), ("status",), ("rebuild", "--yes"), ("drill", "--yes"), ("timer",)):
        refused = machine.call("factory", command[0], "cluster.yaml", *command[1:])
        assert (refused.code, "none of a factory" in refused.err, "1 error" in refused.err) == (64, True, True), refused.text


def test_a_drill_needs_its_section_a_person_and_its_platform(machine: Any, spec: Path) -> None:
    none = machine.call("factory", "drill", spec, "--yes")
    assert (none.code, "no section drill" in none.err, "bringup explain drill" in none.err) == (64, True, True), none.text
    spec.write_text(spec.read_text() + "drill: {platform: platform.yaml, hosts: [login01], commands: ['true']}\n")
    assert "add --yes" in machine.call("factory", "drill", spec, "--cut-only").err
    for options in (("--cut-only",), ()):
        missing = machine.call("factory", "drill", spec, "--yes", *options)
        assert (missing.code, "platform.yaml" in missing.err) == (64, True), missing.text
    assert not machine.runs


def test_a_timer_is_checked_by_systemd(machine: Any, spec: Path) -> None:
    none = machine.call("factory", "timer", spec)
    assert (none.code, "no rebuild.calendar" in none.err) == (64, True), none.text
    text = spec.read_text()
    spec.write_text(text + "rebuild: {calendar: Sun *-*-* 02:00}\n")
    done = machine.call("factory", "timer", spec, "--out", "units")
    assert done.code == 0, done.text
    service = (machine.folder / "units/bringup-factory-build-factory.service").read_text()
    assert f"factory rebuild {spec} --yes\n" in service
    assert "OnCalendar=Sun *-*-* 02:00\n" in (machine.folder / "units/bringup-factory-build-factory.timer").read_text()
    spec.write_text(text + "rebuild: {calendar: Someday 02:00}\n")
    refused = machine.call("factory", "timer", spec)
    assert (refused.code, "systemd refuses the units" in refused.err) == (64, True), refused.text


def test_a_second_place_is_written_only_if_the_spec_has_one(machine: Any, spec: Path) -> None:
    none = machine.call("factory", "timer", spec, "--argo")
    assert (none.code, "no rebuild.second_place" in none.err) == (64, True), none.text
    place = "{schedule: {cron: '0 2 * * 0'}, image: 'r.example.org/bringup:1', files: factory-files, home: factory-home}"
    spec.write_text(spec.read_text() + f"rebuild: {{second_place: {place}}}\n")
    done = machine.call("factory", "timer", spec, "--argo", "--out", "cron")
    assert done.code == 0, done.text
    assert "kind: CronWorkflow" in (machine.folder / "cron/rebuild-build-factory.yaml").read_text()


def test_a_way_into_the_factory_is_told(machine: Any, spec: Path) -> None:
    published: Path = machine.folder / "published"
    published.mkdir()
    (published / "gcc.lua").write_text('prepend_path("PATH", "/srv/stacks/gcc/bin")\n-- built on a factory\n')
    done = machine.call("factory", "detach-check", published, "--factory", spec)
    assert (done.code, "1 file read" in done.out) == (0, True), done.text
    (published / "binary").write_bytes(b"\x7fELF\0/lib\0/var/lib/bringup/volumes/pvc-1/lib\0")
    (published / "current").symlink_to("/var/lib/bringup/volumes/pvc-1")
    (published / "cluster.yaml").write_text("rke2: {registry_mirror: 'factory02:30500'}\n")
    done = machine.call("factory", "detach-check", published, "--factory", spec)
    assert done.code == 65, done.text
    assert len(done.out.splitlines()) == 3
    assert "leads to factory02" in done.out
    assert machine.call("factory", "detach-check", "nowhere", "--factory", spec).code == 64


def test_files_that_nothing_unpacks_are_accepted_by_option_alone(machine: Any, spec: Path) -> None:
    published: Path = machine.folder / "published"
    published.mkdir()
    (published / "gcc.lua").write_text('prepend_path("PATH", "/srv/stacks/gcc/bin")\n')
    (published / "pack-1.pack").write_bytes(b"PACK\0\0\0\2\0\0\0\1")
    words = ("factory", "detach-check", published, "--factory", spec)
    done = machine.call(*words)
    assert (done.code, "not read: " in done.out, "--unread-ok accepts that" in done.out) == (65, True, True), done.text
    done = machine.call(*words, "--unread-ok")
    assert (done.code, "pack-1.pack (packed by Git" in done.out) == (0, True), done.text
    assert "2 files checked, and no way into the factory seen; 1 place could not be read" in done.out
    (published / "gcc.lua").write_text("-- see\nurl = 'factory02'\n")
    done = machine.call(*words, "--unread-ok", "-o", "json")
    shown = json.loads(done.out)
    assert (done.code, shown["ok"], len(shown["links"]), len(shown["unread"])) == (65, False, 1, 1), done.text
