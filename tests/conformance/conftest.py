"""The whole corpus is executed once for all tests of this folder."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.corpus import DATA, Results, cases, execute

AT_ONE_TIME = 10  # most of a case is waiting


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Execute every case with the embedded engine and return the results."""
    if not cases():
        pytest.fail(f"no conformance cases under {DATA}: set BRINGUP_TEST_DATA to the folder that holds argo_conformance/")
    folder = tmp_path_factory.mktemp("results")
    with ThreadPoolExecutor(AT_ONE_TIME) as pool:
        outcomes = dict(zip((case.name for case in cases()), pool.map(lambda case: execute(case, folder), cases()), strict=True))
    return Results(folder, outcomes)
