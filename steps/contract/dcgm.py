"""DCGM diagnostics: what one run of `dcgmi diag` says of each test (gpu_stack §8.5)."""

from msgspec import Struct


class DcgmFailure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One failed result: which GPUs (ids as DCGM numbers them, empty: all), and its warning."""

    gpus: tuple[int, ...] = ()
    warning: str = ""


class DcgmTest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test: how many results it has of each status, as words in lower case (`pass`, `fail`, `skip`, `warn`, `not run`)."""

    name: str
    category: str = ""
    statuses: dict[str, int] = {}
    failures: tuple[DcgmFailure, ...] = ()


class DcgmRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run; `gpus` are the ids that any result names, or as many as the metadata lists. `error` is what DCGM says went wrong
    as a whole."""

    tests: tuple[DcgmTest, ...] = ()
    gpus: tuple[int, ...] = ()
    version: str = ""
    driver: str = ""
    error: str = ""

    def count(self, status: str) -> int:
        """How many results of all tests have a status."""
        return sum(test.statuses.get(status, 0) for test in self.tests)
