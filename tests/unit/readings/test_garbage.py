"""Whatever a file holds: reading it never raises, and nothing that no tool printed passes. Takes 4 s of CPU."""

import random
import time

import pytest
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st

from steps.readings import object_documents, recognition, site_values
from steps.readings.site_values import SiteValues
from tests.unit.readings.recorded_outputs import all_recorded

SEED = random.randrange(1 << 30)
LAVISH = site_values.parse(
    (
        *("nodes=2", "gpu_nodes=2", "expected_gpus=8", "expected_ports=1", "expected_nvlinks=1", "busbw_floor_gbps=1"),
        *("bw_floor_gbit=1", "bw_floor_mbs=1", "latency_ceiling_us=1000000", "rdma_expected=true", "powered_down_ok=true"),
    )
)
"""Values that an output reaches easily."""
FRAGMENTS = sorted({line for output in all_recorded() for line in output.text[:20_000].splitlines() if 8 < len(line) < 160})[::9]
TEXTS = st.lists(st.one_of(st.text(max_size=80), st.sampled_from(FRAGMENTS or ["# OSU MPI Bandwidth Test v7.5"])), max_size=12)


def read(text: str, site: SiteValues = LAVISH) -> str:
    return recognition.reading_of([text], site).verdict.value


@seed(SEED)
@settings(max_examples=200, deadline=None, database=None)
@given(TEXTS)
@example(["{", "}"])
@example(["spack:", "  specs: [*a, &a b]"])
@example(["GPU 0: x (UUID: GPU-1)", "\tLink 0: <inactive"])
def test_no_text_raises(lines: list[str]) -> None:
    assert read("\n".join(lines)) in ("pass", "fail", "inconclusive", "unknown-input")


@seed(SEED)
@settings(max_examples=150, deadline=None, database=None)
@given(st.text(max_size=2000))
def test_text_that_no_tool_printed_never_passes(text: str) -> None:
    assert read(text) != "pass"


@seed(SEED)
@settings(max_examples=60, deadline=None, database=None)
@given(st.binary(max_size=3000))
def test_bytes_never_pass(data: bytes) -> None:
    assert read(data.decode("utf-8", errors="replace")) != "pass"


@pytest.mark.parametrize("number", range(3))
def test_shuffled_characters_never_pass(number: int) -> None:
    chance = random.Random(SEED + number)
    for output in chance.sample(all_recorded(), min(20, len(all_recorded()))):
        characters = list(output.text[:4000])
        chance.shuffle(characters)
        assert output.read("".join(characters)).verdict != "pass", f"seed {SEED + number}, {output.path.name}"


LONG = (
    "GPU 0: a (UUID: GPU-b) " * 3000,
    "| " * 50_000,
    "NodeName=" * 20_000,
    "=" * 100_000,
    "a-" * 50_000,
    '{"a":' * 5000,
    "- " * 20_000,
    "x: {" * 3000,
    "<nvidia_smi_log>" * 5000,
    "[" * 50_000,
    "GPU0\tGPU1\n" * 5000,
    "NAME   READY   STATUS   RESTARTS   AGE\n" * 3000,
    "1 2 float sum " * 8000,
    " Link 0: " * 9000,
    "level=info msg=" * 6000,
    ('time="2026-11-30T10:00:00Z" level=info msg="' + "pulled a/b " * 30 + '"\n') * 200,
    (" " * 3990 + "1 2 3\n") * 100,
)
LIMIT = 3.0


@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:12].strip())
def test_time_grows_with_the_text_alone(text: str) -> None:
    before = time.process_time()
    assert read(text) != "pass"
    assert time.process_time() - before < LIMIT


@pytest.mark.parametrize(
    "line", ["[2026-11-30T10:00:00.000] error: no such thing\n", "[gpu001:1] no such thing\n", "[1, gpu001] no\n"]
)
def test_lines_that_begin_with_a_bracket_are_not_decoded_one_by_one(line: str) -> None:
    before = time.process_time()
    documents = object_documents.parse(line * 30_000 + '{"kind": "Node"}\n')
    assert documents.values == [{"kind": "Node"}]
    assert time.process_time() - before < 1.0


def test_arrays_between_lines_of_a_log_are_documents() -> None:
    text = '[\n {"a": 1}\n]\n[2026-11-30] x\n[1, 2]\n[]\n[ "a" ]\n[gpu001] y\n[true]\n{"b": 2}\n'
    documents = object_documents.parse(text)
    assert documents.values == [[{"a": 1}], [1, 2], [], ["a"], [True], {"b": 2}]
    assert documents.rest == "[2026-11-30] x\n[gpu001] y\n"
