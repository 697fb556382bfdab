"""Outputs that look right at a first glance and hold a fault, or prove nothing, are no pass. Takes 3 s of CPU.

Each case is an output in a tool's own format, with the values that a site states for it.
"""

import json

import pytest

from steps.readings import recognition, site_values

Case = tuple[str, str, tuple[str, ...], str, str]
"""Name, output, stated values, verdict, and a part of its cause."""

EIGHT = ("expected_gpus=8",)


def diagnostic(*rows: str) -> str:
    """Return the table of `dcgmi diag` with these rows of hardware tests."""
    return "\n".join(
        (
            "+---------------------------+------------------------------------------------+",
            "|-----  Metadata  ----------+------------------------------------------------|",
            "| DCGM Version              | 4.4.1                                          |",
            "| GPU Device IDs Detected   | 2330,2330,2330,2330,2330,2330,2330,2330        |",
            "|-----  Deployment  --------+------------------------------------------------|",
            "| software                  | Pass                                           |",
            "|-----  Hardware  ----------+------------------------------------------------|",
            *(f"| {name.strip():25} | {value.strip():46} |" for name, value in (row.split("|") for row in rows)),
            "+---------------------------+------------------------------------------------+\n",
        )
    )


def results(**statuses: str) -> str:
    """Return the JSON of `dcgmi diag` with a status for each of eight GPUs (one letter each) in each hardware test."""
    words = {"P": "Pass", "S": "Skip", "W": "Warn", "F": "Fail"}

    def test(name: str, letters: str) -> dict[str, object]:
        return {
            "name": name,
            "results": [{"entity_group": "GPU", "entity_id": gpu, "status": words[at]} for gpu, at in enumerate(letters)],
        }

    categories = [
        {"category": "Deployment", "tests": [test("software", "PPPPPPPP")]},
        {"category": "Hardware", "tests": [test(name, letters) for name, letters in statuses.items()]},
    ]
    return json.dumps({"DCGM Diagnostic": {"test_categories": categories}}) + "\n"


DCGM: tuple[Case, ...] = (
    ("all pass", diagnostic("memory | Pass - All"), EIGHT, "pass", ""),
    ("each GPU has a line", diagnostic("memory | Pass", *(f" | GPU{gpu}: Pass" for gpu in range(8))), EIGHT, "pass", ""),
    (
        "second status of a cell",
        diagnostic("GPU Memory | Pass - GPUs: 1, 2, 3, 4, 5, 6, 7", " | Fail - GPU: 0"),
        EIGHT,
        "fail",
        "GPU 0",
    ),
    (
        "long list of GPUs before the failure",
        diagnostic("GPU Memory | Pass - GPUs: 0, 1, 2, 3,", " | 4, 5, 6", " | Fail - GPU: 7", "Warning | Thermal violations"),
        EIGHT,
        "fail",
        "on GPU 7",
    ),
    ("line of one GPU below a pass", diagnostic("memory | Pass", " | GPU0: Pass", " | GPU1: Fail"), EIGHT, "fail", "on GPU 1"),
    (
        "a GPU without a line",
        diagnostic("memory | Pass", *(f" | GPU{gpu}: Pass" for gpu in range(7))),
        EIGHT,
        "inconclusive",
        "GPU 7",
    ),
    (
        "one GPU skipped",
        diagnostic("memory | Pass - GPUs: 0, 1, 2, 3, 4, 5, 6", " | Skip - GPU: 7"),
        EIGHT,
        "inconclusive",
        "GPU 7",
    ),
    ("hardware tests skipped", diagnostic("memory | Skip - All"), EIGHT, "inconclusive", "no hardware test"),
    ("a status that nobody knows", diagnostic("memory | Aborted"), EIGHT, "inconclusive", "has no result"),
    ("JSON, all pass", results(memory="PPPPPPPP", diagnostic="PPPPPPPP"), EIGHT, "pass", ""),
    ("JSON, hardware tests skipped", results(memory="SSSSSSSS"), EIGHT, "inconclusive", "no hardware test"),
    (
        "JSON, a warning on each GPU",
        results(memory="PPPPPPPP", pcie="WWWWWWWW"),
        EIGHT,
        "inconclusive",
        "pcie ended with a warning",
    ),
    (
        "JSON, one GPU skipped",
        results(memory="PPPPPPPS", diagnostic="PPPPPPPS"),
        EIGHT,
        "inconclusive",
        "memory has no pass of GPU 7",
    ),
    ("JSON, one GPU missing in a test", results(memory="PPPPPPPP", diagnostic="PPPPPPP"), EIGHT, "inconclusive", "of GPU 7"),
)

CASES: tuple[Case, ...] = (*DCGM,)


@pytest.mark.parametrize(("text", "stated", "verdict", "cause"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_reads(text: str, stated: tuple[str, ...], verdict: str, cause: str) -> None:
    reading = recognition.reading_of([text], site_values.parse(stated))
    assert (reading.verdict.value, cause in reading.cause) == (verdict, True), reading
