"""Messages of the real controller that users rely on come from the embedded engine too; `messages.yaml` explains the others."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.corpus import Results

LISTS: dict[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("messages.yaml").read_text())
TIMES = ("exceeded its deadline", "longer than the specified deadline", "Max duration limit")


def matches(row: dict[str, Any], message: str, key: str = "message") -> bool:
    return re.fullmatch(row[key], message) is not None


@pytest.fixture(scope="module")
def different(results: Results, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str, Any, Any]]:
    """Every field in which both differ, messages word by word: case, node, field, recorded, ours."""
    kept = tmp_path_factory.mktemp("compared") / "different.json"
    results.compare("--json", str(kept))
    return [(case, *row) for case, rows in json.loads(kept.read_text()).items() for row in rows]


def test_nothing_differs_but_messages_and_those_for_a_stated_reason(different: list[tuple[str, str, str, Any, Any]]) -> None:
    unexplained = [
        row
        for row in different
        if row[2] != "message" or not any(matches(one, row[3]) and matches(one, row[4], "ours") for one in LISTS["differs"])
    ]
    assert not unexplained


def test_each_reason_is_needed(different: list[tuple[str, str, str, Any, Any]]) -> None:
    idle = [one["message"] for one in LISTS["differs"] if not any(matches(one, str(row[3])) for row in different)]
    assert not idle


def test_every_message_of_the_controller_is_in_one_list(results: Results) -> None:
    rows = LISTS["relied_on"] + LISTS["differs"]
    unlisted = {message for message in results.messages() if not any(matches(row, message) for row in rows)}
    assert not unlisted


@pytest.mark.parametrize("row", LISTS["relied_on"], ids=[row["message"][:40] for row in LISTS["relied_on"]])
def test_a_message_that_users_rely_on_is_recorded_and_the_same(
    row: dict[str, Any], results: Results, different: list[tuple[str, str, str, Any, Any]]
) -> None:
    assert any(matches(row, message) for message in results.messages()), "nothing of the corpus shows it"
    assert not [found for found in different if found[2] == "message" and matches(row, str(found[3]))]


def test_what_was_compared(results: Results, different: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Enough of everything that must equal the recordings, so that an emptier corpus does not pass for agreement."""
    nodes = [node for _, node in results.nodes()]
    actions = [action for case in results.executed for action in results.recorded(case).get("actions", ())]
    messages = list(results.messages())
    counted = {
        "nodes": len(nodes),
        "output parameters": sum(len((node.get("outputs") or {}).get("parameters") or ()) for node in nodes),
        "messages": len(messages),
        "retries": sum(node["type"] == "Retry" for node in nodes),
        "skipped or omitted": sum(node["phase"] in ("Skipped", "Omitted") for node in nodes),
        "exit handlers": sum(node["path"].endswith(".onExit") for node in nodes),
        "approvals": sum(node["type"] == "Suspend" for node in nodes),
        "operators' actions": len(actions),
        "time-outs": sum(any(word in message for word in TIMES) for message in messages),
    }
    with capsys.disabled():
        said = ", ".join(f"{number} {what}" for what, number in counted.items())
        print(f"\nconformance: {said} compared; {len(different)} messages differ for {len(LISTS['differs'])} stated reasons")
    least = {"nodes": 500, "output parameters": 60, "messages": 130, "retries": 25, "skipped or omitted": 40, "exit handlers": 10}
    least |= {"approvals": 12, "operators' actions": 15, "time-outs": 3}
    assert all(counted[what] >= number for what, number in least.items()), counted
