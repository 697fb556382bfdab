"""Every recorded output gets the reading that a person took from it: verdict, class, figures and cause. Takes 3 s of CPU."""

import re
from typing import Any

import msgspec
import pytest

from steps.readings import recognition
from tests.unit.readings.recorded_outputs import Recorded, all_recorded, spack_commands

RECORDED = all_recorded()
pytestmark = pytest.mark.skipif(not RECORDED, reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")

BEYOND_THE_TEXT = {
    "compared with another run": (
        "gh200_2node_slingshot_hook_disabled_slow",
        "osu_bw_2node_no_cxi_slow",
        "osu_bw_cuda_2node_no_cxi_slow",
    ),
    "known from the thread": (
        "h200_cuda_illegal_memory_access",
        "rtx5090_unhandled_cuda_error",
        "rke2_stig_protect_kernel_defaults_etcd_deadline",
    ),
}
"""Why a person knew more about a cause than the text tells, and the outputs for which that holds."""
UNKNOWABLE = {name for names in BEYOND_THE_TEXT.values() for name in names}


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def is_in_text(key: str, value: Any, text: str) -> bool:
    """Return False for a figure that the page around an output told: its word is nowhere in the output."""
    if key == "collective":
        return value == "all_reduce"
    word = re.split(r"[ (/,]", value)[0] if isinstance(value, str) else ""
    return not word or re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


@pytest.mark.parametrize("output", RECORDED, ids=lambda output: f"{output.path.parent.name}/{output.path.name}")
def test_reads_as_a_person_read_it(output: Recorded) -> None:
    reading = output.read()
    expected, seen = output.expected, plain(recognition.fields(reading))
    assert (seen["verdict"], seen.get("class")) == (expected["verdict"], expected.get("class")), reading
    figures = {key: value for key, value in expected.items() if key not in ("verdict", "class", "cause")}
    text = output.text
    known = {
        key: plain(value) for key, value in figures.items() if key in seen or (value is not None and is_in_text(key, value, text))
    }
    assert {key: seen.get(key) for key in known} == known


@pytest.mark.parametrize(
    "output",
    [output for output in RECORDED if "cause" in output.expected],
    ids=lambda output: f"{output.path.parent.name}/{output.path.name}",
)
def test_names_the_cause(output: Recorded) -> None:
    reading = output.read()
    assert reading.cause
    if output.path.stem in UNKNOWABLE:
        return
    told = words(f"{reading.cause} {reading.detail}")
    wanted = words(output.expected["cause"])
    assert len(wanted & told) >= 0.4 * len(wanted), f"{output.expected['cause']!r} against {reading.cause!r}"


ENVIRONMENTS = ("env_unsat.spack.yaml", "env_badpkg.spack.yaml", "env_badvar.spack.yaml")
"""Environments whose fault only Spack itself can tell: it has to know the packages."""
AMBIGUOUS = "buildcache_check_present.txt"
"""An output that is the same as that of a command which failed."""


@pytest.mark.parametrize("output", spack_commands(), ids=lambda output: output.path.name)
def test_output_of_spack(output: Recorded) -> None:
    """A failure is read to its class and kind. A success is no failure; a command without a word proves nothing."""
    reading, expected = output.read(), output.expected
    if output.path.name in (*ENVIRONMENTS, AMBIGUOUS):
        return
    if expected["verdict"] != "fail":
        assert reading.verdict != "fail", reading
        assert all(reading.figures.get(key, value) == value for key, value in expected.items() if key in ("installed", "pushed"))
        return
    seen = plain(recognition.fields(reading))
    assert (seen["verdict"], seen.get("class")) == ("fail", expected["class"]), reading
    known = {key: expected[key] for key in ("kind", "retry") if key in expected and key in seen}
    assert {key: seen[key] for key in known} == known
    told, wanted = words(f"{reading.cause} {reading.detail}"), words(expected.get("cause", ""))
    assert len(wanted & told) >= 0.4 * len(wanted) or output.path.stem in UNKNOWABLE, (
        f"{expected['cause']!r} against {reading.cause!r}"
    )


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9][\w./-]{2,}|\d+", text.lower()))
