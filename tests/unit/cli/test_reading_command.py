"""The command `read`: files, standard input, what is right at a site, forms of the output, exit codes. Takes 6 s of CPU."""

import json
import re
from pathlib import Path
from typing import Any

from steps.readings import site_values

GUIDE = Path(__file__).parents[3] / "workflows/docs/captured_output.md"
SINFO = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nbatch*       up   infinite      9   idle dgx[1-9]\n"
DRAINED = SINFO.replace("  9   idle dgx[1-9]", "  9  drain dgx[1-9]")


def test_several_files_give_one_result_each(machine: Any) -> None:
    good, bad = machine.folder / "good", machine.folder / "nccl_pass.log"
    good.write_text(SINFO)
    bad.write_text(DRAINED)
    done = machine.call("read", good, bad, "--expect", "nodes=9", "-o", "json")
    assert done.code == 65
    first, second = json.loads(done.out)
    assert (first["file"], first["verdict"], first["idle"]) == (str(good), "pass", 9)
    assert (second["verdict"], second["class"]) == ("fail", "health")
    assert "cause" not in first
    told = machine.call("read", good, "--expect", "nodes=9")
    assert told.code == 0
    assert f"{good}: pass, sinfo: 9 nodes usable" in told.out


def test_wrong_use_is_told_in_one_sentence(machine: Any) -> None:
    good = machine.folder / "good"
    good.write_text(SINFO)
    for words, sentence in (
        (("read", machine.folder / "absent"), "there is no such file"),
        (("read", good, "--expect", "busbw=3"), "expected KEY=VALUE with one of the keys"),
        (("read", good, "--expect", "nodes=many"), "expected a whole number"),
        (("read", "-", "-"), "name `-` once"),
        (("read", machine.folder), "that is a folder"),
    ):
        done = machine.call(*words)
        assert (done.code, sentence in done.text) == (64, True), done.text


def test_an_unknown_text_is_no_pass(machine: Any) -> None:
    odd = machine.folder / "odd"
    odd.write_bytes(bytes(range(256)) * 40)
    done = machine.call("read", odd, "-o", "yaml")
    assert done.code == 65
    assert "verdict: unknown-input" in done.out


def test_the_guide_names_every_value_that_can_be_stated() -> None:
    rows = re.findall(r"^\| (`.*?) \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(site_values.KEYS)
