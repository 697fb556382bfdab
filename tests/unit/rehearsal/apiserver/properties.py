"""Settings of property tests: the same examples each time, and no deadline, because machines are shared."""

from hypothesis import settings

repeatable = settings(derandomize=True, database=None, deadline=None, max_examples=60)
