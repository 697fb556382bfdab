"""DCGM diagnostics: the results of one run of `dcgmi diag` by test (`steps/docs/facts/acceptance.md`, DCGM diag)."""

from msgspec import Struct


class DcgmFailure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failed result: the GPUs (ids as DCGM numbers them, empty: all) and the warning."""

    gpus: tuple[int, ...] = ()
    warning: str = ""


class DcgmTest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results of one test.

    `statuses` counts them by status in lower case (`pass`, `fail`, `skip`, `warn`, `not run`, `unknown`);
    `untested` are the GPUs of the run that have no pass of their own in this test.
    """

    name: str
    category: str = ""
    statuses: dict[str, int] = {}
    failures: tuple[DcgmFailure, ...] = ()
    untested: tuple[int, ...] = ()

    @property
    def loads_gpus(self) -> bool:
        """Return True unless the test is one of category Deployment: those check software and pass without touching a GPU."""
        return self.category.lower() != "deployment"


class DcgmRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results of one run of the diagnostics.

    `gpus` are the ids that any result names, or as many as the metadata lists. `error` is DCGM's message if the run failed as a
    whole.
    """

    tests: tuple[DcgmTest, ...] = ()
    gpus: tuple[int, ...] = ()
    version: str = ""
    driver: str = ""
    error: str = ""

    def count(self, status: str) -> int:
        """Return the number of results of all tests with a status."""
        return sum(test.statuses.get(status, 0) for test in self.tests)
