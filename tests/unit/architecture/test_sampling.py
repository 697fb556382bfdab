"""Samples of tests: one seed always chooses alike, seeds together choose everything, and no seed leaves nothing out."""

from pathlib import Path

import pytest

from tests import sampling

TESTS = """
import pytest

@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("row", range(5))
def test_rows(row): ...

@pytest.mark.parametrize("row", range(3))
def test_all(row): ...

@pytest.mark.parametrize("row", [8, *(pytest.param(row, marks=pytest.mark.sampled_rows(1, "few")) for row in range(4))])
def test_family(row): ...
""" + "".join(f"\n@pytest.mark.sampled('kills')\ndef test_kill_{name}(): ...\n" for name in "abc")


@pytest.fixture
def items(tmp_path: Path) -> list[pytest.Item]:
    """The tests above, collected by pytest."""
    file, collected = tmp_path / "test_sampled.py", list[pytest.Item]()
    file.write_text(TESTS)

    class Collecting:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            collected.extend(session.items)

    settings = ("-p", "no:cacheprovider", "--import-mode=importlib", "-o", "addopts=", "-W", "ignore", f"--rootdir={tmp_path}")
    pytest.main(["--collect-only", "-q", *settings, str(file)], [Collecting()])
    return collected


def chosen(items: list[pytest.Item], seed: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tests that a seed chooses."""
    monkeypatch.setenv(sampling.SEED, seed)
    left = list(items)
    sampling.deselect(items[0].config, left)
    return [item.name for item in left]


def test_a_seed_takes_some_rows_and_some_of_a_group_and_all_that_is_not_sampled(
    items: list[pytest.Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = chosen(items, "1", monkeypatch)
    taken = {part: sum(name.startswith(part) for name in names) for part in ("test_rows", "test_all", "test_family", "test_kill")}
    assert taken == {"test_rows": 2, "test_all": 3, "test_family": 2, "test_kill": 1}
    assert "test_family[8]" in names
    assert names == chosen(items, "1", monkeypatch)


def test_seeds_together_take_everything_as_no_seed_does(items: list[pytest.Item], monkeypatch: pytest.MonkeyPatch) -> None:
    every = chosen(items, "", monkeypatch)
    assert len(every) == 5 + 3 + 5 + 3
    assert set(every) == {name for seed in range(30) for name in chosen(items, str(seed), monkeypatch)}
