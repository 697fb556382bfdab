"""What a change of a recipe costs, and what a build says that goes no further: by the command line, on a base that is built."""

from pathlib import Path

import pytest

from steps.contract.exit import ExitCode
from tests.boot.builder import shipped
from tests.boot.pipeline import by_ci, changing
from tests.boot.pipeline.changing import CHANGES, LAYERS, on_base, one


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has base's layer."""
    return shipped.store(tmp_path_factory.getbasetemp(), "base")[0]


@pytest.mark.parametrize(
    ("server", "more", "code", "sentence"),
    [
        ("gitlab", {"recipe": "none.yaml"}, ExitCode.USAGE, "none.yaml"),
        ("github", {"mirror": "http://127.0.0.1:9/debian"}, ExitCode.TEMPORARY, "127.0.0.1:9"),
    ],
)
def test_a_job_ends_with_the_code_that_its_table_says(
    server: str, more: dict[str, str], code: int, sentence: str, shared: Path, tmp_path: Path
) -> None:
    site = on_base(shared, tmp_path / "site", one("true"))
    (site.images / "archive").unlink()
    site.write(**{"recipe": "ours.yaml", **more})
    ended, said = by_ci.run(server, site, tmp_path / "log")
    assert ended == code, said
    assert sentence in said
    assert not list(site.tree.rglob("*"))


@pytest.mark.long
def test_a_layer_is_built_anew_where_it_or_one_below_it_changed(shared: Path, tmp_path: Path) -> None:
    """Each change alone; tests, budgets and kernel arguments are no part of a layer."""
    site = on_base(shared, tmp_path / "site", LAYERS)
    site.run("image", "build", "--until", "image_layers")
    found = {}
    for name, (change, _) in CHANGES.items():
        changing.write(site, changing.changed(change))
        site.lock()
        site.run("image", "build", "--until", "image_layers")
        found[name] = changing.built(site)
    assert found == {name: wanted for name, (_, wanted) in CHANGES.items()}
