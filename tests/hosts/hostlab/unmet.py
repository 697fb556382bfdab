"""Skips tests that this machine cannot run, and fails them under CI; apart from `tier_needs`, which scripts use without pytest."""

import os
from collections.abc import Sequence

import pytest


def demand(what: str, reasons: Sequence[str]) -> None:
    """Skip the test with the reasons why `what` cannot run on this machine, if any; under CI it fails."""
    if reasons and os.environ.get("CI") == "true":
        pytest.fail(f"{what}: {'; '.join(reasons)}", pytrace=False)
    if reasons:
        pytest.skip(f"{what}: {'; '.join(reasons)}")
