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
""" + "".join(f"\n@pytest.mark.sampled('kills')\ndef test_kill_{name}(): ...\n" for name in "abc")


def chosen(folder: Path, seed: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tests above that a seed chooses."""
    monkeypatch.setenv(sampling.SEED, seed)
    file = folder / "test_sampled.py"
    file.write_text(TESTS)
    taken: list[str] = []

    class Taking:
        def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
            sampling.deselect(config, items)
            taken.extend(item.name for item in items)

    options = [
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "-o",
        "addopts=",
        f"--rootdir={folder}",
        str(file),
    ]
    pytest.main(options, [Taking()])
    return taken


def test_a_seed_takes_some_rows_and_some_of_a_group_and_all_that_is_not_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = chosen(tmp_path, "1", monkeypatch)
    assert [sum(name.startswith(part) for name in names) for part in ("test_rows", "test_all", "test_kill")] == [2, 3, 1]
    assert names == chosen(tmp_path, "1", monkeypatch)


def test_seeds_together_take_everything_as_no_seed_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = chosen(tmp_path, "", monkeypatch)
    assert len(every) == 5 + 3 + 3
    assert set(every) == {name for seed in range(30) for name in chosen(tmp_path, str(seed), monkeypatch)}
