"""Copies of recorded outputs read the same however they were captured, and a cut one never passes. Takes 4 s of CPU.

Each run disturbs each output in two ways that a seed picks; a failure names the seed, and `BRINGUP_SEED` repeats it.
"""

import os
import random
import re
from collections.abc import Callable

import pytest

from tests.unit.readings.recorded_outputs import Recorded, all_recorded

LONGEST = 60_000
"""Longest output that is disturbed: longer ones are read in parts like those, and take seconds."""
SEED = int(os.environ.get("BRINGUP_SEED") or random.randrange(1 << 30))
CUTS = 6
OUTPUTS = [output for output in all_recorded() if output.path.stat().st_size < LONGEST]
NOISE = (
    "Loading cuda/12.4",
    "+ set -e",
    "INFO: starting step 3 of 7",
    "Warning: Permanently added '10.1.2.3' (ED25519) to the list of known hosts.",
    "user@login01:~$ ",
)
HOSTS = {"dgx": "rack7n", "gpu-node-": "zz-", "gpu-1-": "qq-", "c0": "k0", "lxfoo": "abc", "compute0": "calc0", "ip-10": "ip-99"}
SPANNING = ("compute_pod_seccomp_profile_missing", "kueue_workload_admitted.yaml")
"""Outputs of a few lines that belong together: another line between them makes another text."""

pytestmark = pytest.mark.skipif(not OUTPUTS, reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")


def before_each_line(prefix: str) -> Callable[[str, random.Random], str]:
    def disturbed(text: str, chance: random.Random) -> str:
        second = f"{chance.randrange(60):02}"
        return re.sub(r"^(?=.)", prefix.replace("SS", second), text, flags=re.MULTILINE)

    return disturbed


def with_other_lines(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    for line in NOISE:
        lines.insert(chance.randrange(max(1, len(lines) - 1)), line)
    return "\n".join(lines)


def with_other_hosts(text: str, _: random.Random) -> str:
    return re.sub("|".join(map(re.escape, HOSTS)), lambda match: HOSTS[match[0]], text)


WAYS: dict[str, Callable[[str, random.Random], str]] = {
    "carriage returns": lambda text, _: text.replace("\n", "\r\n"),
    "colours": lambda text, _: re.sub(r"^(.+)$", "\x1b[1;32m\\1\x1b[0m", text, flags=re.MULTILINE),
    "byte-order mark": lambda text, _: "\ufeff" + text,
    "kubectl --timestamps": before_each_line("2026-11-29T16:20:SS.123456789Z "),
    "time in brackets": before_each_line("[2026-11-29 16:20:SS] "),
    "clock": before_each_line("16:20:SS "),
    "journal": before_each_line("Nov 29 16:20:SS login01 job[4711]: "),
    "container log": before_each_line("2026-11-29T16:20:SS.1Z stdout F "),
    "other lines": with_other_lines,
    "other hosts": with_other_hosts,
}


def ways_of(output: Recorded) -> list[str]:
    is_document = output.path.suffix in (".json", ".yaml", ".xml", ".lock") or output.path.stem in SPANNING
    return [way for way in WAYS if not (is_document and way == "other lines")]


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: f"{output.path.parent.name}/{output.path.name}")
def test_reads_the_same_however_it_was_captured(output: Recorded) -> None:
    chance = random.Random(f"{SEED} {output.path.name}")
    for way in chance.sample(ways_of(output), 2):
        reading = output.read(WAYS[way](output.text, chance))
        seen = (reading.verdict.value, reading.failure_class if reading.verdict == "fail" else None)
        assert seen == (output.expected["verdict"], output.expected.get("class")), f"{way}, BRINGUP_SEED={SEED}: {reading.cause}"


PASSES = [
    output
    for output in OUTPUTS
    # a recorded spack.yaml ends without a line end in a name, of which no part can be told from the whole
    if output.expected["verdict"] == "pass" and (output.text.endswith("\n") or output.path.suffix != ".yaml")
]


@pytest.mark.parametrize("output", PASSES, ids=lambda output: f"{output.path.parent.name}/{output.path.name}")
def test_a_cut_output_never_passes(output: Recorded) -> None:
    """Cut within a line, as by a full disk or a limit of bytes. After a whole row of a list nothing tells that more followed."""
    chance, text = random.Random(f"{SEED} {output.path.name}"), output.text
    inside = [at for at in range(len(text)) if text[at] != "\n" and text[at - 1 : at] != "\n" and text[at:].strip()]
    for at in chance.sample(inside, min(CUTS, len(inside))):
        assert not output.read(text[:at]).is_pass, f"cut after {at} of {len(text)} characters, BRINGUP_SEED={SEED}"


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("h100_p5_2node_eks_truncated.txt", "[1,0]<stdout>:"),
        ("lspci_nn_a10.txt", "[10de:2236]"),
        ("lspci_vvv_8xh100_lnksta_excerpt.txt", "\n\t"),
    ],
)
def test_an_output_cut_where_it_looks_whole_never_passes(name: str, ending: str) -> None:
    """Cut behind the prefix of a line, before the revision of a device, and behind the blanks of a line."""
    output = next(output for output in PASSES if output.path.name == name)
    assert not output.read(output.text[: output.text.rindex(ending) + len(ending)]).is_pass


@pytest.mark.parametrize("output", [output for output in PASSES if output.stated.get("nodes")], ids=lambda output: output.path.name)
def test_another_number_of_nodes_never_passes(output: Recorded) -> None:
    more = output._replace(stated={**output.stated, "nodes": output.stated["nodes"] + 1})
    assert not more.read().is_pass


def test_nothing_but_the_text_decides() -> None:
    """Two names of one text read alike, since no name reaches the readings; another text under a known name reads by its text."""
    good = next(output for output in OUTPUTS if output.path.name == "sinfo_9dgx_idle.txt")
    assert good.read(good.text.replace("idle", "down")).verdict == "fail"
    assert good.read(good.text.replace("[1-9]", "[1-8]").replace(" 9 ", " 8 ")).verdict == "inconclusive"
